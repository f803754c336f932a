"""Codecs in a checkpoint: two files a coded boundary, one an end, beside the files of the layers.

    step-00000040/boundary-0007-sender.safetensors     A, its momentum, the sender's anchors with basis and moments
                  boundary-0007-receiver.safetensors   A, and the receiver's

A boundary is known by the last layer before it, so that its codec is found wherever the model is cut there. A boundary
that the checkpoint does not know takes over what the nearest one has learned: all are subspaces of the same stream.
With no coded boundary in the checkpoint codecs start as in a new job, and a job without a codec leaves them alone.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import partial

import torch
from torch import Tensor

from agents.worker.checkpoint.folder import CheckpointPart, NamedTensors
from agents.worker.checkpoint.manifest import file_name
from agents.worker.codec.edge import Receiver, Sender
from agents.worker.codec.training import CodecTraining
from agents.worker.optimizer import layer_tensors, restore_layer

BASIS = "basis"
MOMENTUM = "projector.momentum"
_FILE = re.compile(r"boundary-([0-9]{4,})-(sender|receiver)\.safetensors")


def codec_tensors(codec: CodecTraining) -> dict[str, dict[str, Tensor]]:
    """What a checkpoint holds of the ends of one stage: for each of their files its named tensors."""
    return {_name(end.layer, end): _tensors(codec, end) for end in codec.ends}


def codec_names(codec: CodecTraining, files: Iterable[str]) -> list[str]:
    """Under which of the names in a checkpoint with these files the ends of one stage go on."""
    known = coded_boundaries(files)
    return [_name(_nearest(known, end), end) for end in codec.ends if known]


def restore_codec(part: CheckpointPart, codec: CodecTraining) -> None:
    """Bring the ends of one stage to what they, or those of the nearest boundary, were; `part` has their `codec_names`.

    Raises WorkerEndError `checkpoint-unusable`, also where they have another rank.
    """
    for end in codec.ends:
        known = {
            int(match[1])
            for name in part.files
            if (match := _FILE.fullmatch(file_name(name))) and match[2] == end.side
        }
        if not known:
            continue
        nearest = _nearest(known, end)
        part.restore(_name(nearest, end), partial(_restore, codec, end, step=part.step))
        if nearest != end.layer:
            print(f"the codec behind layer {end.layer} goes on from that behind layer {nearest}", flush=True)


def coded_boundaries(files: Iterable[str]) -> set[int]:
    """The layers behind which a checkpoint with these files has both ends of a codec."""
    ends = {(int(match[1]), match[2]) for match in map(_FILE.fullmatch, files) if match}
    return {layer for layer, side in ends if {(layer, each.side) for each in (Sender, Receiver)} <= ends}


def _nearest(known: Iterable[int], end: Sender | Receiver) -> int:
    return min(known, key=lambda layer: (abs(layer - end.layer), layer))


def _name(layer: int, end: Sender | Receiver) -> str:
    return f"boundary-{layer:04d}-{end.side}"


def _tensors(codec: CodecTraining, end: Sender | Receiver) -> dict[str, Tensor]:
    tensors = {"projector": end.projector, BASIS: end.anchors.basis}
    if codec.spel is not None and end.side == Sender.side:
        tensors[MOMENTUM] = codec.spel.momentum
    return tensors | layer_tensors(codec.anchors, end.anchors)


@torch.no_grad()
def _restore(codec: CodecTraining, end: Sender | Receiver, tensors: NamedTensors, step: int) -> None:
    written = tensors["projector"]
    if written.shape != end.projector.shape:
        raise ValueError(
            f"its codec has rank {written.shape[-1]}, the plan's {end.projector.shape[-1]}: "
            "go on with the rank that it was written with, or without a codec"
        )
    end.projector.copy_(written)
    end.anchors.basis.copy_(tensors[BASIS])
    if codec.spel is not None and end.side == Sender.side:
        codec.spel.momentum.copy_(tensors[MOMENTUM])
    restore_layer(codec.anchors, end.anchors, tensors, step)
