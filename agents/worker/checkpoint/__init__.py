"""Checkpoints that do not know how many stages wrote them: one file a layer, complete once they have a manifest.

    <checkpoint uri>/step-00000040/manifest.json
                                   embedding.safetensors  layer-0000.safetensors …  head.safetensors

Stages write apart from that name: under `file://` into `step-00000040.<allocation>.tmp`, elsewhere into
`step-00000040/<allocation>`. When every file is written, rank 0 adds the manifest, with the digest of each. Under
`file://` it stands in the folder before that gets its name by one rename; elsewhere it is the last object written.
So a checkpoint is there whole or not at all. Without a manifest that fits it is torn, and ignored.
"""
