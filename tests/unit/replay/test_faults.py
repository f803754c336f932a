"""Nodes that fail: which, for how long, whom they hit, and what is lost and kept."""

from __future__ import annotations

import gzip
import json
import math
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pytest

from scheduler.cluster import Cluster
from scheduler.placement import Allocation, Placement, Segment
from scheduler.plan import Decision, Plan, Preempt, Start
from scheduler.policies import PolicyConfig, decide
from scheduler.replay.engine import replay
from scheduler.replay.faults import NodeFault, faults_of, read_fault_trace
from scheduler.replay.outages import Loss, Outages, hit_by
from scheduler.replay.records import ReplayResult
from scheduler.replay.running import Run
from scheduler.replay.workload import jobs_of
from scheduler.snapshot import Snapshot, StateSpan
from scheduler.spec.issues import SpecError
from scheduler.spec.scenario import Scenario, load_scenario
from tests.replay_worlds import answering, job, watched, write_scenario
from tests.worlds import cluster
from tests.worlds import job as bare_job

DAY_S = 86_400.0
SMALL = {"preset": "gpt-3-1.3b"}


def event(node: str, days: float, kind: str) -> dict[str, object]:
    return {"node_id": node, "event_time": days, "event_type": f"fault_{kind}", "fault_type": {}}


def write_trace(folder: Path, events: list[dict[str, object]], name: str = "faults.json") -> Path:
    path = folder / name
    text = json.dumps(events).encode()
    path.write_bytes(gzip.compress(text) if name.endswith(".gz") else text)
    return path


def of_pool(faults: tuple[NodeFault, ...], region: str) -> list[NodeFault]:
    return [fault for fault in faults if fault.pool[0] == region]


@pytest.mark.parametrize("name", ["faults.json", "faults.json.gz"])
def test_a_trace_tells_when_each_node_is_down_and_overlaps_are_one(tmp_path: Path, name: str) -> None:
    events = [
        event("b", 1.5, "start"),
        event("a", 1.0, "start"),
        event("a", 2.0, "start"),
        event("a", 2.5, "end"),
        event("a", 3.0, "end"),
        event("b", 1.5, "end"),
        event("c", 4.0, "start"),
    ]
    assert read_fault_trace(write_trace(tmp_path, events, name)) == {
        "a": [(DAY_S, 3 * DAY_S)],
        "b": [(1.5 * DAY_S, 1.5 * DAY_S)],
        "c": [(4 * DAY_S, math.inf)],
    }


@pytest.mark.parametrize(
    ("events", "told"),
    [
        ({}, "a list of events"),
        ([1], "a list of events"),
        ([event("a", -1.0, "start")], "0.event_time"),
        ([event("a", float("nan"), "start")], "0.event_time"),
        ([event("a", 1.0, "start"), event("a", 2.0, "pause")], "1.event_type"),
        ([event("a", 1.0, "end")], "an end after its beginning"),
        ([{**event("a", 1.0, "start"), "node_id": 7}], "0.node_id"),
    ],
)
def test_a_trace_that_is_wrong_names_the_event(tmp_path: Path, events: object, told: str) -> None:
    path = tmp_path / "faults.json"
    path.write_text(json.dumps(events))
    with pytest.raises(SpecError, match=told):
        read_fault_trace(path)


def scenario_of(folder: Path, faults: str, jobs: str = job("a")) -> Scenario:
    return load_scenario(write_scenario(folder, f"{jobs}faults: {faults}\n"))


def test_nodes_of_the_trace_become_nodes_of_the_pools_by_the_seed(tmp_path: Path) -> None:
    events = [event(f"n{index}", 1.0, kind) for kind in ("start", "end") for index in range(2)]
    write_trace(tmp_path, events)
    scenario = scenario_of(tmp_path, "{trace: faults.json, nodes: 2}")
    assert Counter((fault.pool, fault.gpus) for fault in faults_of(scenario)) == {
        (("dear", "G"), 8): 1,
        (("cheap", "G"), 4): 1,
    }
    assert faults_of(scenario) == faults_of(scenario)


def test_a_cluster_smaller_than_the_traced_one_gets_its_share(tmp_path: Path) -> None:
    events = [event(f"n{index}", 1.0, kind) for kind in ("start", "end") for index in range(200)]
    write_trace(tmp_path, events)
    hit = 0
    for seed in range(40):
        scenario = scenario_of(tmp_path, f"{{trace: faults.json, nodes: 400, seed: {seed}}}")
        hit += len(faults_of(scenario))
    assert 20 <= hit <= 60  # 40 clusters of 2 nodes; half of all nodes fail once


def test_the_first_part_of_a_trace_may_be_left_out(tmp_path: Path) -> None:
    spans = [("x", 1.0, 2.0), ("x", 5.0, 6.0), ("y", 1.0, 4.5)]
    events = [
        event(node, at, kind)
        for node, *ends in spans
        for at, kind in zip(ends, ("start", "end"), strict=True)
    ]
    write_trace(tmp_path, events)
    faults = faults_of(scenario_of(tmp_path, "{trace: faults.json, nodes: 2, skip: 4d}"))
    assert [(fault.start_s, fault.end_s) for fault in faults] == [(0.0, 0.5 * DAY_S), (DAY_S, 2 * DAY_S)]


def test_drawn_faults_have_the_means_they_are_told(tmp_path: Path) -> None:
    told = "{generator: {mean_between: 10h, mean_repair: 1h, span: 2000d}, seed: 5}"
    faults = of_pool(faults_of(scenario_of(tmp_path, told)), "dear")
    repair_s = sum(fault.end_s - fault.start_s for fault in faults) / len(faults)
    assert repair_s == pytest.approx(3600, rel=0.1)
    assert len(faults) == pytest.approx(2000 * 24 / 11, rel=0.1)
    for before, after in pairwise(faults):
        assert before.end_s <= after.start_s


@pytest.mark.parametrize(
    ("faults", "told"),
    [
        ("{}", "exactly one of trace and generator"),
        ("{trace: none.json}", "a trace of faults that is there"),
        ("{generator: {mean_between: 1h, mean_repair: 1h}, nodes: 7}", "it belongs to trace"),
        ("{generator: {mean_between: 0s, mean_repair: 1h}}", "durations above 0"),
    ],
)
def test_faults_that_cannot_be_meant_are_refused(tmp_path: Path, faults: str, told: str) -> None:
    with pytest.raises(SpecError, match=told):
        scenario_of(tmp_path, faults)


def held(job_id: str, gpus: int, start_s: float) -> Run:
    """A run that holds GPUs of one region; nothing else of it matters."""
    placement = Placement((Segment("a", "g", gpus, 1),), (), bare_job().spec.training.schedule, (1,) * gpus)
    made = Run.__new__(Run)
    made.allocation = Allocation(job_id, job_id, 1, placement, start_s)
    made.start_s = start_s
    made.job = type("Job", (), {"spec": bare_job(job_id).spec})()  # type: ignore[assignment]
    return made


def test_jobs_are_hit_in_proportion_to_what_they_hold() -> None:
    world = cluster({"a": 64})
    runs = [held("large", 32, 0.0), held("small", 4, 1.0), held("tiny", 4, 2.0)]
    hits: Counter[str] = Counter()
    draws = 8 * 50
    for index in range(draws):
        fault = NodeFault(("a", "g"), 8, 0.0, 1.0, (index + 0.5) / draws)
        (loss,) = Outages(world, [fault]).until(0.0)
        assert loss is not None
        hits.update(run.allocation.job_id for run in hit_by(loss, runs))
    assert hits["large"] == draws * 32 / 64
    assert hits["small"] == hits["tiny"] == draws * 8 / 64  # they share a node


def test_what_a_fault_leaves_always_fits_into_what_is_left() -> None:
    world = cluster({"a": 20})
    runs = [held("x", 7, 0.0), held("y", 9, 1.0), held("z", 4, 2.0)]
    for index in range(60):
        fault = NodeFault(("a", "g"), 8, 0.0, 1.0, (index + 0.5) / 60)
        outages = Outages(world, [fault])
        (loss,) = outages.until(0.0)
        assert loss is not None
        left = [run for run in runs if run not in hit_by(loss, runs)]
        assert (
            sum(run.allocation.placement.gpus for run in left) <= outages.cluster.pools["a", "g"].gpus == 12
        )


def test_the_cluster_shrinks_grows_back_and_is_the_same_object_when_it_is_the_same_again() -> None:
    world = cluster({"a": 16, "b": 8})
    spans = [(1.0, 3.0), (2.0, 5.0), (6.0, 6.0), (7.0, 9.0)]
    faults = [NodeFault(("a", "g"), 8, *span, 0.0) for span in spans]
    outages = Outages(world, faults)
    seen: dict[float, Cluster] = {}
    while (at_s := outages.next_s()) is not None:
        list(outages.until(at_s))
        seen[at_s] = outages.cluster
    gpus = {at_s: each.pools["a", "g"].gpus for at_s, each in seen.items()}
    assert gpus == {1.0: 8, 2.0: 0, 3.0: 8, 5.0: 16, 6.0: 16, 7.0: 8, 9.0: 16}
    assert seen[5.0] is seen[9.0] is world
    assert seen[1.0] is seen[3.0] is seen[7.0]
    assert (outages.begun, outages.any_down) == (4, False)


def test_a_pool_that_is_down_whole_loses_no_more() -> None:
    outages = Outages(cluster({"a": 8}), [NodeFault(("a", "g"), 8, float(n), 9.0 + n, 0.5) for n in range(2)])
    assert list(outages.until(1.0)) == [Loss(("a", "g"), 0, 8), Loss(("a", "g"), 0, 0)]
    list(outages.until(9.0))
    assert outages.cluster.pools["a", "g"].gpus == 8


Play = Callable[..., tuple[ReplayResult, list[Snapshot], Scenario]]


@pytest.fixture
def play(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Play:
    """Replays jobs while the one node of region `dear` is down between two hours."""

    def run(
        jobs: str, down_h: tuple[float, float], policy: str = "ldf", more: str = "", cool_down: str = "0s"
    ) -> tuple[ReplayResult, list[Snapshot], Scenario]:
        seen = watched(monkeypatch, "ldf")
        write_trace(
            tmp_path, [event("n", at / 24, kind) for at, kind in zip(down_h, ("start", "end"), strict=True)]
        )
        for seed in range(50):
            told = f"faults: {{trace: faults.json, nodes: 2, seed: {seed}, cool_down: {cool_down}}}\n"
            scenario = load_scenario(write_scenario(tmp_path, jobs + told + more, [100.0] * 24 * 8))
            if of_pool(faults_of(scenario), "dear"):
                break
        return replay(scenario, jobs_of(scenario), PolicyConfig(name=policy)), seen, scenario

    return run


@pytest.mark.parametrize("elasticity", ["none", "restart", "resize"])
def test_a_job_that_is_hit_loses_what_it_did_since_its_last_checkpoint(play: Play, elasticity: str) -> None:
    a = job("a", steps=4000, stages="4..8", elasticity=elasticity, **SMALL)
    result, seen, _ = play(a, (1.25, 2.0), more="restart: {checkpoint_every: 30m}\n")
    (row,) = result.jobs
    first, *rest = result.allocations
    assert first.end_s == 1.25 * 3600
    assert first.steps == int(3600 / first.iteration_s)  # the checkpoint of 1 h
    assert first.steps + first.steps_lost == int(1.25 * 3600 / first.iteration_s)
    assert sum(each.steps for each in (first, *rest)) == row.steps == 4000
    assert (row.faults, row.preemptions, row.generations) == (1, 0, 2)
    waits = next(each for snap in seen for each in snap.waiting if each.generation == 2)
    assert waits.remaining_steps == 4000 - first.steps
    assert waits.state == (StateSpan("dear", 24),)
    assert waits.stages == (None if elasticity == "resize" else 8)
    if elasticity != "resize":  # then the last generation stands where the first did
        done = first.steps + first.steps_lost
        expected = 100 + done * first.iteration_s / first.end_s * (_busy_w(result) - 100)
        assert first.power_w == pytest.approx(expected)


def _busy_w(result: ReplayResult) -> float:
    """Draw while it trains, from the last generation: the same placement, idle while it restarted."""
    row = result.allocations[-1]
    share = row.steps * row.iteration_s / (row.end_s - row.start_s)
    return (row.power_w - 100 * (1 - share)) / share


def test_before_its_first_checkpoint_a_job_loses_everything(play: Play) -> None:
    a = job("a", steps=1000, stages="8..8", elasticity="none", **SMALL)
    result, seen, _ = play(a, (0.25, 0.3))
    assert [row.steps for row in result.allocations] == [0, 1000]
    waits = next(each for snap in seen for each in snap.waiting if each.generation == 2)
    assert (waits.state, waits.remaining_steps) == ((), 1000)
    assert result.allocations[1].restart_s > 60


def test_a_job_does_not_go_back_where_it_was_hit_until_it_has_cooled_down(play: Play) -> None:
    a = job("a", steps=3000, stages="4..8", elasticity="resize", **SMALL)
    result, seen, scenario = play(a, (1.0, 1.01), cool_down="2h", policy="ldf")
    waits = next(each for snap in seen for each in snap.waiting if each.generation == 2)
    assert waits.avoid_regions == {"dear"}
    assert [row.region for row in result.allocations] == ["dear", "cheap"]
    only = job("a", steps=3000, stages="5..8", elasticity="resize", **SMALL)  # cheap has four
    result, seen, scenario = play(only, (1.0, 1.01), cool_down="2h", policy="ldf")
    assert [row.region for row in result.allocations] == ["dear", "dear"]
    assert result.allocations[1].start_s == 3 * 3600
    assert seen[-1].waiting[0].avoid_regions == frozenset()
    assert seen[-1].now_s == scenario.start_s + 3 * 3600


def test_the_pool_is_seen_without_what_is_down_and_whole_again_after(play: Play) -> None:
    jobs = job("a", stages="1..8", steps=10, **SMALL) + job("b", "1h", steps=10, stages="1..1", **SMALL)
    result, seen, scenario = play(jobs, (0.5, 2.0))
    at_h = {(snap.now_s - scenario.start_s) / 3600: snap for snap in seen}
    assert at_h[0.0].cluster.pools["dear", "G"].gpus == 8
    assert at_h[1.0].cluster.pools["dear", "G"].gpus == 0
    assert [row.region for row in result.allocations if row.job_id == "b"] == ["cheap"]
    assert result.node_faults == 1


def test_a_refusal_is_not_final_while_nodes_are_down(play: Play) -> None:
    jobs = job("large", "1h", stages="8..8", steps=10, **SMALL) + job("huge", stages="20..24", **SMALL)
    result, _, _ = play(jobs, (0.5, 2.0))
    states = {row.job_id: row.state for row in result.jobs}
    assert states == {"large": "succeeded", "huge": "rejected"}
    (row,) = result.allocations
    assert row.start_s == 2 * 3600


def test_what_was_promised_and_does_not_fit_any_more_waits_again(
    play: Play, monkeypatch: pytest.MonkeyPatch
) -> None:
    """n is promised what a leaves; while a writes its state its node fails, so that nothing is left."""
    jobs = job("a", steps=3000, stages="8..8", elasticity="restart", **SMALL)
    jobs += job("n", "1h", steps=10, stages="8..8", **SMALL)

    seen: list[Snapshot] = []

    def pushy(snapshot: Snapshot) -> Plan:
        seen.append(snapshot)
        plan = decide(snapshot, PolicyConfig(name="lcf"))
        running = [each for each in snapshot.running if not each.stopping]
        if not running or running[0].spec.job_id != "a" or not snapshot.waiting:
            return plan
        (waits,) = snapshot.waiting
        placement = running[0].allocation.placement
        decisions: list[Decision] = [Preempt("a", "why"), Start(waits.spec.job_id, placement, 1.0, "why")]
        return replace(plan, decisions=tuple(decisions))

    answering(monkeypatch, "fifo", pushy)
    result, _, scenario = play(jobs, (1 + 10 / 3600, 2.0), policy="fifo")
    assert all(row.state == "succeeded" for row in result.jobs)
    stopping = [snap for snap in seen if any(each.stopping for each in snap.running)]
    assert not stopping or stopping[0].promised
    failed = next(snap for snap in seen if snap.now_s > scenario.start_s + 3600)
    assert {each.spec.job_id for each in failed.waiting} == {"a", "n"}
    assert not failed.promised
    a = next(row for row in result.jobs if row.job_id == "a")
    assert (a.preemptions, a.faults) == (1, 1)
    first = result.allocations[0]
    assert first.stop_s == pytest.approx(10.0)
    assert first.steps == int(3600 / first.iteration_s)


def test_a_job_that_was_refused_on_the_whole_cluster_is_refused_for_good(play: Play) -> None:
    result, seen, _ = play(job("huge", stages="20..24", **SMALL), (5.0, 6.0))
    assert [row.state for row in result.jobs] == ["rejected"]
    assert len(seen) == 1
