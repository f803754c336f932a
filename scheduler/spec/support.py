"""What a job file may ask for and this version cannot honour: told with a reason, never ignored in silence."""

from __future__ import annotations

from collections.abc import Collection
from fnmatch import fnmatchcase

from scheduler.job import Elasticity
from scheduler.spec.issues import FieldIssue
from scheduler.spec.job import JobDocument

_SECRET_KINDS = ("file:", "env:")
_BUILTIN_STORES = ("file://", "s3://", "gs://", "gcs://", "az://", "abfs://", "abfss://")
_BUILTIN_MIN_VOCAB = 256  # the built-in worker's tokens are bytes


def unsupported(document: JobDocument) -> list[FieldIssue]:
    """What the service cannot honour: it refuses the job with these."""
    return [
        *_unsupported_by_agents(document),
        *(_unsupported_by_builtin(document) if document.is_builtin else ()),
    ]


def unknown_regions(document: JobDocument, regions: Collection[str]) -> list[FieldIssue]:
    """The regions and patterns of regions in a job that none of `regions` is or matches: misspelt, most likely."""
    wanted = [(f"/placement/regions/{index}", each) for index, each in enumerate(document.placement.regions)]
    wanted += [(f"/placement/exclude/{index}", each) for index, each in enumerate(document.placement.exclude)]
    there_are = ", ".join(sorted(regions))
    issues = [
        FieldIssue(pointer, pattern, f"a pattern that matches one of the regions {there_are}")
        for pointer, pattern in wanted
        if not any(fnmatchcase(region, pattern) for region in regions)
    ]
    issues += [
        FieldIssue(pointer, region, f"one of the regions {there_are}")
        for pointer, region in named_regions(document)
        if region not in regions
    ]
    return issues


def named_regions(document: JobDocument) -> list[tuple[str, str]]:
    """(JSON pointer, region) of every region that a job names itself, not by a pattern."""
    named = [
        (f"/data/{index}/regions/{position}", region)
        for index, each in enumerate(document.data)
        for position, region in enumerate(each.regions)
    ]
    home = document.placement.home
    return named if home is None else [*named, ("/placement/home", home)]


def _unsupported_by_agents(document: JobDocument) -> list[FieldIssue]:
    issues = []
    if document.run.image is not None:
        expected = "no image: this version's agents start commands directly; name the command alone"
        issues.append(FieldIssue("/run/image", document.run.image, expected))
    for name, reference in (document.run.secrets or {}).items():
        if not reference.startswith(_SECRET_KINDS):
            expected = f"a reference of a kind that agents resolve: {', '.join(_SECRET_KINDS)}"
            issues.append(FieldIssue(f"/run/secrets/{name}", reference.partition(":")[0] + ":…", expected))
    uri = document.checkpoint.uri
    if uri is not None and document.is_builtin and (expected := _not_a_store(uri)):
        issues.append(FieldIssue("/checkpoint/uri", uri, expected))
    if document.run.command is not None and not document.run.command[0]:
        issues.append(FieldIssue("/run/command/0", "", "the program to start"))
    data = document.parallelism.data
    if data != int(data):
        issues.append(FieldIssue("/parallelism/data", data, "a whole number: only a replay runs a fraction"))
    if document.elasticity is Elasticity.RESIZE and not document.is_builtin:
        expected = "none or restart: that a command resumes with other stages cannot be relied on here"
        issues.append(FieldIssue("/elasticity", document.elasticity.value, expected))
    return issues


def _not_a_store(uri: str) -> str:
    """What a checkpoint's address should be, empty where it is."""
    if not uri.startswith(_BUILTIN_STORES):
        return f"a folder or bucket that the job's nodes share, at {', '.join(_BUILTIN_STORES)}"
    scheme, _, rest = uri.partition("://")
    if scheme == "file" and not rest.removeprefix("localhost").startswith("/"):
        return "an absolute folder, such as file:///shared/checkpoints"
    return "" if scheme == "file" or rest.partition("/")[0] else f"a bucket, such as {scheme}://bucket/folder"


def _unsupported_by_builtin(document: JobDocument) -> list[FieldIssue]:
    """The built-in worker trains dense, untied RMSNorm/RoPE/SwiGLU models, pipelined and data-parallel."""
    issues = []
    if document.parallelism.tensor > 1:
        expected = "1: the built-in worker does not cut layers; a command of your own may"
        issues.append(FieldIssue("/parallelism/tensor", document.parallelism.tensor, expected))
    if document.training.dtype == "fp16":
        issues.append(
            FieldIssue("/training/dtype", "fp16", "bf16 or fp32: the built-in worker scales no loss")
        )
    shape = document.model.shape()
    wants: tuple[tuple[str, object, bool, str], ...] = (
        ("gated_mlp", shape.gated_mlp, shape.gated_mlp, "true: the built-in worker's MLP is gated (SwiGLU)"),
        (
            "tied_embeddings",
            shape.tied_embeddings,
            not shape.tied_embeddings,
            "false: the first and the last stage each hold a matrix of their own",
        ),
        ("learned_positions", shape.learned_positions, not shape.learned_positions, "false: it uses RoPE"),
        ("experts", shape.experts, shape.experts == 1, "1: the built-in worker trains dense models"),
        ("head_dim", shape.head_dim, shape.head_dim % 2 == 0, "an even number: RoPE turns pairs"),
        ("vocab", shape.vocab, shape.vocab >= _BUILTIN_MIN_VOCAB, "at least 256: its tokens are bytes"),
    )
    for name, value, fits, expected in wants:
        if not fits:
            issues.append(FieldIssue(f"/model/{name}", value, expected))
    return issues
