"""A plan with a codec that cannot be is refused before the gang meets, with what would be right."""

from __future__ import annotations

import json

import pytest

from agents.worker.causes import Cause, WorkerEndError
from agents.worker.settings import read_settings

PLAN = {
    "model": {
        "layers": 4, "hidden": 32, "heads": 4, "kv_heads": 2, "head_dim": 8, "ffn": 48, "vocab": 256, "seq_len": 16,
    },
    "steps": 1, "micro_batch": 1, "micro_batches": 2, "dtype": "fp32", "recompute": "none",
    "layers_per_stage": [1, 2, 1], "window": [3, 2, 1], "learning_rate": 0.001, "seed": 0,
    "checkpoint_uri": "file:///x", "checkpoint_every": 1,
}  # fmt: skip
PLACE = {
    "RANK": "0", "WORLD_SIZE": "3", "BACE_STAGE": "0", "BACE_STAGES": "3", "MASTER_ADDR": "127.0.0.1",
    "MASTER_PORT": "29500",
}  # fmt: skip


def read(codec: object) -> object:
    return read_settings({**PLACE, "BACE_PLAN": json.dumps({**PLAN, "codec": codec})}).plan.codec


def test_a_codec_of_any_rank_up_to_the_width_on_any_boundaries_is_read() -> None:
    codec = read({"rank": 32, "boundaries": [0, 1]})

    assert codec is not None
    assert read(None) is None


@pytest.mark.parametrize("stage_ranks", [[0, 0, 1], [1, 0, 2]])
def test_stages_elsewhere_than_in_a_line_have_no_codec(stage_ranks: list[int]) -> None:
    order = {"stage_ranks": stage_ranks, "actions": ["0F0"]}
    plan = {**PLAN, "order": order, "codec": {"rank": 4, "boundaries": [0]}}

    with pytest.raises(WorkerEndError, match="stage s must be on rank s"):
        read_settings({**PLACE, "BACE_PLAN": json.dumps(plan)})


@pytest.mark.parametrize(
    ("codec", "expected"),
    [
        ({"rank": 33, "boundaries": [0]}, "codec.rank is 33: it must not be above the model's hidden 32"),
        ({"rank": 0, "boundaries": [0]}, "codec.rank"),
        ({"rank": 4, "boundaries": []}, "codec.boundaries"),
        (
            {"rank": 4, "boundaries": [2]},
            "codec.boundaries is [2]: it must hold stages with another behind them",
        ),
        ({"rank": 4, "boundaries": [1, 0]}, "each once and ascending"),
        ({"rank": 4, "boundaries": [0, 0]}, "each once and ascending"),
    ],
)
def test_what_cannot_be_is_named(codec: object, expected: str) -> None:
    with pytest.raises(WorkerEndError) as caught:
        read(codec)

    assert caught.value.cause is Cause.INVALID_PLAN
    assert expected in caught.value.detail
