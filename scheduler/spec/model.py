"""The `model` section of a job: a preset, or a transformer's shape."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import Field

from scheduler.errors import InvalidValueError, UnknownPresetError
from scheduler.job import ModelShape
from scheduler.presets import MODEL_NAMES
from scheduler.presets import model as model_preset
from scheduler.spec.fields import Flag, Section, whole
from scheduler.spec.issues import FieldIssue

_FFN_MULTIPLE = 64  # a gated MLP of 8/3 hidden is rounded up to this, as Llama's are to theirs


class ModelSection(Section):
    """`{preset: llama-2-7b}` (any case), or the shape; with a preset only `seq_len` may differ from it.

    Of a shape, layers, hidden, heads, vocab and seq_len are required. Else kv_heads = heads, head_dim =
    hidden / heads, gated_mlp = true and ffn = 8/3 hidden rounded up to a multiple of 64 (4 hidden where it is
    not gated).
    """

    preset: Annotated[str, Field(max_length=64)] | None = None
    layers: Annotated[int, whole(1, 1024)] | None = None
    hidden: Annotated[int, whole(1, 65_536)] | None = None
    heads: Annotated[int, whole(1, 1024)] | None = None
    kv_heads: Annotated[int, whole(1, 1024)] | None = None
    head_dim: Annotated[int, whole(1, 1024)] | None = None
    ffn: Annotated[int, whole(1, 1_000_000)] | None = None
    gated_mlp: Flag | None = None
    vocab: Annotated[int, whole(1, 10_000_000)] | None = None
    seq_len: Annotated[int, whole(1, 10_000_000)] | None = None
    tied_embeddings: Flag | None = None
    learned_positions: Flag | None = None
    experts: Annotated[int, whole(1, 4096)] | None = None
    experts_per_token: Annotated[int, whole(1, 4096)] | None = None
    shared_experts: Annotated[int, whole(0, 4096)] | None = None
    dense_layers: Annotated[int, whole(0, 1024)] | None = None
    dense_ffn: Annotated[int, whole(0, 1_000_000)] | None = None
    attention_parameters: Annotated[int, whole(0, 10**12)] | None = None

    def shape(self) -> ModelShape:
        """The complete shape. Only after `model_issues` has found nothing."""
        given = self._given()
        if self.preset is not None:
            shape = model_preset(self.preset)
            return ModelShape(**{**_fields_of(shape), "seq_len": self.seq_len or shape.seq_len})
        heads, hidden = given["heads"], given["hidden"]
        gated = given.get("gated_mlp", True)
        defaults = {
            "kv_heads": heads,
            "head_dim": hidden // heads,
            "gated_mlp": gated,
            "ffn": -(-8 * hidden // 3 // _FFN_MULTIPLE) * _FFN_MULTIPLE if gated else 4 * hidden,
        }
        return ModelShape(name="custom", **{**defaults, **given})

    def _given(self) -> dict[str, Any]:
        values = {name: getattr(self, name) for name in ModelSection.model_fields if name != "preset"}
        return {name: value for name, value in values.items() if value is not None}


def model_issues(section: ModelSection) -> list[FieldIssue]:
    """What is wrong with the section as a whole."""
    given = section._given()
    if section.preset is not None:
        return _preset_issues(section.preset, given)
    issues = [
        FieldIssue(f"/model/{name}", None, f"{name}, or a preset (one of {', '.join(MODEL_NAMES)})")
        for name in ("layers", "hidden", "heads", "vocab", "seq_len")
        if name not in given
    ]
    if issues:
        return issues
    if "head_dim" not in given and given["hidden"] % given["heads"]:
        return [
            FieldIssue(
                "/model/heads", given["heads"], f"a divisor of hidden = {given['hidden']}, or head_dim"
            )
        ]
    if given.get("dense_layers", 0) > given["layers"]:
        return [
            FieldIssue("/model/dense_layers", given["dense_layers"], f"at most layers = {given['layers']}")
        ]
    try:
        section.shape()
    except InvalidValueError as error:
        return [FieldIssue("/" + error.field.replace(".", "/"), error.value, error.expected)]
    return []


def completed_model(section: ModelSection) -> dict[str, Any]:
    """The section with every field filled; reads back to the same shape."""
    fields = _fields_of(section.shape())
    fields.pop("name")
    return {"preset": section.preset, **fields} if section.preset is not None else fields


def _preset_issues(preset: str, given: dict[str, Any]) -> list[FieldIssue]:
    try:
        fields = _fields_of(model_preset(preset))
    except UnknownPresetError as error:
        return [FieldIssue("/model/preset", preset, error.expected)]
    return [
        FieldIssue(f"/model/{name}", value, f"{fields[name]} as preset {preset} has it, or no preset")
        for name, value in given.items()
        if name != "seq_len" and value != fields[name]
    ]


def _fields_of(shape: ModelShape) -> dict[str, Any]:
    return {name: getattr(shape, name) for name in ModelShape.__dataclass_fields__}
