"""A worker that is told something impossible says which field, its value, and what would be right."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from agents.worker.causes import EXIT_CODES, Cause, WorkerEndError
from agents.worker.checkpoint.local_store import LocalStore
from agents.worker.settings import read_settings
from scheduler.pipeline.plan import layouts
from scheduler.pipeline.plan.generate import hanayo
from tests.plans import together
from tests.wire_plans import wire_plan

MODEL = {
    "layers": 4, "hidden": 32, "heads": 4, "kv_heads": 2, "head_dim": 8, "ffn": 48, "vocab": 256, "seq_len": 16,
}  # fmt: skip
PLAN: dict[str, Any] = {
    "model": MODEL, "steps": 10, "micro_batch": 2, "micro_batches": 4, "dtype": "fp32", "recompute": "none",
    "layers_per_stage": [2, 2], "window": [2, 1], "learning_rate": 0.001, "seed": 0,
    "checkpoint_uri": "file:///ckpt/a%20job", "checkpoint_every": 5,
}  # fmt: skip
PLACE = {
    "RANK": "3", "WORLD_SIZE": "4", "MASTER_ADDR": "10.0.0.1", "MASTER_PORT": "29500", "BACE_STAGE": "1",
    "BACE_STAGES": "2", "BACE_DATA_RANK": "1", "BACE_DATA_SIZE": "2", "BACE_TENSOR_SIZE": "1",
    "BACE_ALLOCATION_ID": "a7",
}  # fmt: skip


def environment(plan: dict[str, Any] | None = None, **place: str) -> dict[str, str]:
    return {**PLACE, "BACE_PLAN": json.dumps({**PLAN, **(plan or {})}), **place}


def test_place_and_plan_are_read_whole() -> None:
    settings = read_settings(environment())

    assert (settings.place.rank, settings.place.stage, settings.place.data_rank) == (3, 1, 1)
    assert settings.place.is_last
    assert not settings.place.leads
    assert settings.checkpoints == LocalStore(Path("/ckpt/a job"))
    assert (settings.rendezvous_timeout_s, settings.peer_timeout_s) == (120.0, 600.0)


@pytest.mark.parametrize(
    ("environ", "told"),
    [
        (environment(BACE_TENSOR_SIZE="2"), "BACE_TENSOR_SIZE is 2"),
        (environment(RANK="2"), "RANK is 2 of 4"),
        (environment(RANK="-1"), "RANK is '-1'"),
        (environment(WORLD_SIZE="3"), "WORLD_SIZE is 3"),
        (environment(MASTER_ADDR=""), "MASTER_ADDR is not set"),
        (environment(BACE_DEVICE="tpu"), "BACE_DEVICE is 'tpu'"),
        (environment(BACE_RENDEZVOUS_TIMEOUT="soon"), "BACE_RENDEZVOUS_TIMEOUT is 'soon'"),
        (environment({"layers_per_stage": [4]}), "layers_per_stage has 1"),
        (environment({"layers_per_stage": [3, 2]}), "layers_per_stage is [3, 2]"),
        (environment({"layers_per_stage": [4, 0]}), "layers_per_stage is [4, 0]"),
        (environment({"window": [1, 2]}), "window is [1, 2]"),
        (environment({"window": [2]}), "window 1 entries, but the pipeline has 2 stages"),
        (environment({"order": {"stage_ranks": [0, 1], "actions": ["0F0"]}}), "order.actions: 0F0 on rank 1"),
        (environment({"order": {"stage_ranks": [0, 1], "actions": ["1X0"]}}), "BACE_PLAN: order.actions.0"),
        (environment({"binding": "loose"}), "BACE_PLAN: binding"),
        (environment({"weight_rule": "none"}), "BACE_PLAN: weight_rule"),
        (environment({"model": {**MODEL, "vocab": 100}}), "model.vocab is 100"),
        (environment({"model": {**MODEL, "kv_heads": 3}}), "model.heads is 4"),
        (environment({"model": {**MODEL, "head_dim": 7}}), "model.head_dim is 7"),
        (environment({"checkpoint_uri": "gopher://bucket/x"}), "checkpoint_uri is 'gopher://bucket/x'"),
        (environment({"steps": 0}), "BACE_PLAN: steps"),
        (environment({"stepz": 1}), "BACE_PLAN: stepz"),
        ({**PLACE, "BACE_PLAN": "{"}, "BACE_PLAN: document"),
        (PLACE, "BACE_PLAN is not set"),
    ],
)
def test_what_is_impossible_is_named(environ: dict[str, str], told: str) -> None:
    with pytest.raises(WorkerEndError) as caught:
        read_settings(environ)

    assert caught.value.cause is Cause.INVALID_PLAN
    assert told in caught.value.detail


def of_two_stages_a_rank(**changes: Any) -> dict[str, Any]:
    plan = wire_plan(
        together(layouts.vee(2), hanayo(2, 1, 4)),
        1,
        **{"binding": "hint", "weight_rule": "current", **changes},
    )
    return plan.model_dump(mode="json", exclude_defaults=True)


def test_replicas_that_would_update_stages_of_a_rank_in_orders_of_their_own_are_refused() -> None:
    with pytest.raises(WorkerEndError) as caught:
        read_settings(environment(of_two_stages_a_rank()))

    assert caught.value.cause is Cause.INVALID_PLAN
    assert caught.value.detail.startswith(
        "binding is hint with weight_rule current, BACE_DATA_SIZE 2 and order.stage_ranks [0, 1, 1, 0]"
    )
    assert "use binding strict, one stage a rank, weight_rule flush, or one replica" in caught.value.detail


@pytest.mark.parametrize(
    ("changes", "place"),
    [
        ({"binding": "strict"}, {}),
        ({"weight_rule": "flush"}, {}),
        ({}, {"BACE_DATA_SIZE": "1", "BACE_DATA_RANK": "0", "WORLD_SIZE": "2", "RANK": "1"}),
    ],
    ids=["strict", "flush", "one-replica"],
)
def test_each_other_way_that_the_refusal_names_is_taken(
    changes: dict[str, Any], place: dict[str, str]
) -> None:
    assert read_settings(environment(of_two_stages_a_rank(**changes), **place)).rank_plan.stages == (1, 2)


def test_a_plan_says_what_its_rank_computes() -> None:
    plan = read_settings(environment()).rank_plan

    assert (plan.rank, plan.has_first, plan.has_last, plan.for_torch) == (1, False, True, True)
    assert " ".join(map(str, plan.actions)) == "1F0 1B0 1F1 1B1 1F2 1B2 1F3 1B3"
    assert not read_settings(environment({"binding": "hint"})).rank_plan.for_torch


def test_every_cause_has_an_exit_code_and_only_good_ends_are_zero() -> None:
    assert set(EXIT_CODES) == set(Cause)
    assert {cause for cause, code in EXIT_CODES.items() if code == 0} == {Cause.FINISHED, Cause.STOPPED}
    bad = [code for code in EXIT_CODES.values() if code]
    assert len(bad) == len(set(bad))
