"""What is launched: every process knows its place, and the gang's ranks are Megatron's."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from agents.protocol import WorkerCodec, WorkerPlan, WorkerRateSchedule, read_plan
from agents.worker.executor.from_wire import rank_plan
from scheduler.cluster import Cluster, GpuType, Region
from scheduler.evaluate import evaluate, in_its_order
from scheduler.job import ASKED_SCHEDULES, Schedule
from scheduler.packing import StageSlots
from scheduler.placement import Cut, Placement, Segment
from scheduler.spec.job import parse_job
from scheduler.spec.ordered import MOST_ORDERED_MICRO_BATCHES
from service.launch import Gang, choose_port, default_checkpoint_uri, stage_processes, worker_plan
from tests.control_world import job_document

TENSOR, DATA = 2, 2


def _gang(**changes: object) -> Gang:
    """Two stages of 2 × 2 GPUs: one in a node of `west`, one over two nodes of `east`."""
    document = job_document(
        parallelism={"stages": 2, "tensor": TENSOR, "data": DATA},
        run={"command": ["python", "train.py", "$(x)"], "env": {"SEED": "7"}, "secrets": {"KEY": "env:KEY"}},
        stop={"signal": "USR1", "grace": "90s"},
        **changes,
    )
    return Gang(
        job_id="job-1",
        allocation_id="alloc-1",
        generation=3,
        document=parse_job(document),
        placement=Placement(
            segments=(Segment("west", "g", 1, 4), Segment("east", "g", 1, 4)),
            cuts=(Cut("west", "east", 1e9, 0.01),),
            schedule=Schedule.ONE_F_ONE_B,
            window=(2, 1),
        ),
        slots=(
            StageSlots(0, tuple(("w1", gpu) for gpu in (0, 1, 2, 3))),
            StageSlots(1, (("e1", 4), ("e1", 5), ("e2", 0), ("e2", 1))),
        ),
        master_address="10.0.0.1",
        master_port=29500,
        resume_step=20,
        checkpoint_uri="file:///c/nlp/job-1",
    )


def test_rank_is_stage_times_data_plus_data_rank_times_tensor_plus_tensor_rank() -> None:
    processes = stage_processes(_gang())
    assert [process.rank for process in processes] == list(range(8))
    for process in processes:
        env = process.env
        stage, data_rank, tensor_rank = (
            int(env[name]) for name in ("BACE_STAGE", "BACE_DATA_RANK", "BACE_TENSOR_RANK")
        )
        assert process.rank == (stage * DATA + data_rank) * TENSOR + tensor_rank
        assert (env["RANK"], process.stage) == (str(process.rank), stage)
        assert process.key == f"alloc-1/{process.rank}"
    assert [(p.env["LOCAL_RANK"], p.env["LOCAL_WORLD_SIZE"]) for p in processes] == [
        *((str(rank), "4") for rank in range(4)),
        ("0", "2"),
        ("1", "2"),
        ("0", "2"),
        ("1", "2"),
    ]
    assert [p.env["BACE_REGION"] for p in processes] == ["west"] * 4 + ["east"] * 4
    assert [(p.node_id, p.gpu_indices) for p in processes[4:]] == [
        ("e1", [4]),
        ("e1", [5]),
        ("e2", [0]),
        ("e2", [1]),
    ]


def test_a_users_command_gets_the_same_environment_and_no_plan() -> None:
    process = stage_processes(_gang())[5]
    assert process.argv == ["python", "train.py", "$(x)"], "argv as it was given: there is no shell"
    assert process.secrets == {"KEY": "env:KEY"}
    assert (process.stop.signal, process.stop.grace_s) == ("USR1", 90.0)
    expected = {
        "SEED": "7",
        "WORLD_SIZE": "8",
        "MASTER_ADDR": "10.0.0.1",
        "MASTER_PORT": "29500",
        "BACE_JOB_ID": "job-1",
        "BACE_JOB_NAME": "tiny",
        "BACE_GENERATION": "3",
        "BACE_STAGES": "2",
        "BACE_TENSOR_SIZE": "2",
        "BACE_DATA_SIZE": "2",
        "BACE_REGIONS": "west,east",
        "BACE_WINDOW": "2,1",
        "BACE_SCHEDULE": "1f1b",
        "BACE_STEPS": "4",
        "BACE_RESUME_STEP": "20",
        "BACE_CHECKPOINT_URI": "file:///c/nlp/job-1",
        "BACE_CHECKPOINT_EVERY": "100",
        "BACE_CHECKPOINT_KEEP": "2",
    }
    assert expected.items() <= process.env.items()
    assert "BACE_PLAN" not in process.env


def test_a_users_variables_cannot_take_the_place_of_ours() -> None:
    """The parser refuses the names; where one came through, ours would win."""
    gang = _gang()
    env = {**(gang.document.run.env or {}), "RANK": "99"}
    sneaky = gang.document.model_copy(update={"run": gang.document.run.model_copy(update={"env": env})})
    assert stage_processes(replace(gang, document=sneaky))[1].env["RANK"] == "1"


def test_the_builtin_worker_gets_its_whole_plan() -> None:
    gang = _gang()
    document = parse_job(job_document(parallelism={"stages": 2}))
    slots = (StageSlots(0, (("w1", 0),)), StageSlots(1, (("e1", 4),)))
    processes = stage_processes(replace(gang, document=document, slots=slots))
    assert processes[0].argv == ["{python}", "-m", "agents.worker"]
    plan = WorkerPlan.model_validate(json.loads(processes[1].env["BACE_PLAN"]))
    assert plan.layers_per_stage == [3, 3]
    assert plan.window == [2, 1]
    assert (plan.steps, plan.resume_step, plan.dtype) == (4, 20, "fp32")
    assert plan.checkpoint_uri == "file:///c/nlp/job-1"


def test_a_codec_is_for_the_boundaries_that_cross_regions() -> None:
    document = parse_job(job_document(parallelism={"stages": 4, "codec": {"mapl": {"rank": 8}}}))
    chain = (Segment("west", "g", 2, 1), Segment("east", "g", 1, 1), Segment("north", "g", 1, 1))
    cuts = (Cut("west", "east", 1e9, 0.01), Cut("east", "north", 1e9, 0.01))
    crossing = Placement(chain, cuts, Schedule.ONE_F_ONE_B, (4, 3, 2, 1))
    inside = Placement((Segment("west", "g", 4, 1),), (), Schedule.ONE_F_ONE_B, (4, 3, 2, 1))
    coded, uncoded = (
        worker_plan(replace(_gang(), document=document, placement=placement), 0)
        for placement in (crossing, inside)
    )
    assert coded.codec == WorkerCodec(rank=8, boundaries=[1, 2])
    assert uncoded.codec is None


def test_each_stage_of_split_backwards_gets_its_own_order_with_its_messages() -> None:
    document = parse_job(
        job_document(parallelism={"stages": 2}, training={"steps": 4, "micro_batches": 3, "schedule": "auto"})
    )
    placement = replace(_gang().placement, schedule=Schedule.ZB_H1, lag=(0, 1))
    slots = (StageSlots(0, (("w1", 0),)), StageSlots(1, (("e1", 4),)))
    first, last = (
        WorkerPlan.model_validate(json.loads(process.env["BACE_PLAN"]))
        for process in stage_processes(replace(_gang(), document=document, placement=placement, slots=slots))
    )
    assert first.order is not None
    assert last.order is not None
    assert first.window == last.window == [2, 2], "in flight until the gradients of weights are done"
    assert first.order.stage_ranks == last.order.stage_ranks == [0, 1]
    sent = "0F0 0SEND_F0 0F1 0SEND_F1 0RECV_B0 0I0 0W0 0F2 0SEND_F2 0RECV_B1 0I1 0W1 0RECV_B2 0I2 0W2"
    assert " ".join(first.order.actions) == sent
    computed = [each for each in last.order.actions if "_" not in each]
    assert computed == ["1F0", "1I0", "1F1", "1I1", "1W0", "1F2", "1I2", "1W1", "1W2"]


def _ordered(schedule: str, micro_batches: int, layers: int = 8) -> list[WorkerPlan]:
    """What the two workers of a placement with this schedule are told."""
    model = {**job_document()["model"], "layers": layers}
    training = {"steps": 4, "micro_batches": micro_batches, "schedule": schedule, "dtype": "fp32"}
    document = parse_job(job_document(model=model, parallelism={"stages": 2}, training=training))
    spec = document.to_spec("job-1", "default", 0.0)
    gpu = GpuType("g", 1e9, 1e12, 100.0, 50.0)
    cluster = Cluster({"g": gpu}, {name: Region(name) for name in ("west", "east")}, {}, {})
    segments = (Segment("west", "g", 1, 1), Segment("east", "g", 1, 1))
    scored = evaluate(spec, cluster, segments, (Cut("west", "east", 1e9, 0.01),))
    placement = in_its_order(spec, cluster, scored.placement).placement
    slots = (StageSlots(0, (("w1", 0),)), StageSlots(1, (("e1", 4),)))
    gang = replace(_gang(), document=document, placement=placement, slots=slots)
    return [read_plan(process.env["BACE_PLAN"]) for process in stage_processes(gang)]


@pytest.mark.parametrize(
    ("schedule", "ranks"),
    [
        ("zb-v", [0, 1, 1, 0]),
        ("interleaved", [0, 1, 0, 1]),
        ("looped-bfs", [0, 1, 0, 1]),
        ("generated", [0, 1]),
    ],
)
def test_each_worker_is_told_its_order_and_where_all_parts_stand(schedule: str, ranks: list[int]) -> None:
    plans = _ordered(schedule, micro_batches=4)
    for rank, plan in enumerate(plans):
        assert plan.layers_per_stage == [8 // len(ranks)] * len(ranks)
        assert plan.order is not None
        assert plan.order.stage_ranks == ranks
        made = rank_plan(plan, rank, 2)  # refuses what cannot be executed
        assert made.for_torch
        assert made.stages == tuple(stage for stage, on in enumerate(ranks) if on == rank)


@pytest.mark.parametrize("schedule", [each for each in ASKED_SCHEDULES if each.is_ordered])
def test_the_longest_order_fits_into_the_environment(schedule: Schedule) -> None:
    first, last = _ordered(schedule, micro_batches=MOST_ORDERED_MICRO_BATCHES)
    assert first.order is not None
    assert last.order is not None
    assert len(first.order.actions) >= 4 * MOST_ORDERED_MICRO_BATCHES


def test_split_backwards_of_as_many_micro_batches_fit_too() -> None:
    training = {"steps": 4, "micro_batches": MOST_ORDERED_MICRO_BATCHES, "schedule": "auto"}
    document = parse_job(job_document(parallelism={"stages": 2}, training=training))
    placement = replace(_gang().placement, schedule=Schedule.ZB_H1, lag=(0, 1))
    slots = (StageSlots(0, (("w1", 0),)), StageSlots(1, (("e1", 4),)))
    for process in stage_processes(replace(_gang(), document=document, placement=placement, slots=slots)):
        assert read_plan(process.env["BACE_PLAN"]).order is not None


@pytest.mark.parametrize(
    ("taken", "last", "expected"),
    [
        (frozenset(), None, 10),
        (frozenset(), 10, 11),
        (frozenset(), 12, 10),
        (frozenset({11}), 10, 12),
        (frozenset({11, 12}), 10, 10),
        (frozenset({10, 11, 12}), 10, None),
        (frozenset(), 99, 10),
    ],
)
def test_the_next_free_port_goes_round(taken: frozenset[int], last: int | None, expected: int | None) -> None:
    assert choose_port(10, 12, taken, last) == expected


def test_checkpoints_of_different_jobs_have_different_folders() -> None:
    assert default_checkpoint_uri("file:///c/", "nlp", "job-1") == "file:///c/nlp/job-1"


def test_a_plain_job_tells_a_worker_of_the_first_version_nothing_that_it_does_not_know() -> None:
    gang = replace(_gang(), document=parse_job(job_document(run={"builtin": "gpt"})))
    told = json.loads(stage_processes(gang)[0].env["BACE_PLAN"])
    assert set(told) <= {
        "model", "steps", "micro_batch", "micro_batches", "dtype", "recompute", "layers_per_stage", "window",
        "learning_rate", "seed", "corpus", "checkpoint_uri", "checkpoint_every", "resume_step",
    }  # fmt: skip


def test_the_built_in_worker_is_told_how_to_learn() -> None:
    run = {
        "builtin": "gpt",
        "optimizer": "muon",
        "rate_schedule": {"warmup_steps": 3, "decay": "linear", "final": 0.5},
        "ready_first": True,
        "updates": {"rule": "2bw", "every": 2, "error_feedback": 1.0},
    }
    gang = replace(_gang(), document=parse_job(job_document(run=run)))
    plan = worker_plan(gang, 0)
    assert (plan.optimizer, plan.binding) == ("muon", "hint")
    assert plan.rate_schedule == WorkerRateSchedule(warmup_steps=3, decay="linear", final=0.5)
    assert (plan.weight_rule, plan.update_every, plan.error_feedback) == ("double-buffered", 2, 1.0)


@pytest.mark.parametrize(
    ("rule", "told"),
    [("paci", "current"), ("2bw", "double-buffered"), ("prediction", "predicted"), ("stashing", "stashed")],
)
def test_every_rule_of_updates_has_its_name_at_the_worker(rule: str, told: str) -> None:
    run = {"builtin": "gpt", "updates": {"rule": rule, "every": 2}}
    gang = replace(_gang(), document=parse_job(job_document(run=run)))
    assert worker_plan(gang, 0).weight_rule == told
