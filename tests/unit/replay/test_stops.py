"""Jobs that are stopped, moved and started again: what it takes, what is held meanwhile, what policies see of it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from itertools import pairwise

import pytest

from scheduler import policies
from scheduler.evaluate import evaluate
from scheduler.network import Residual
from scheduler.placement import Cut, Segment, Transfer
from scheduler.plan import Decision, Hold, Move, Plan, Preempt, Start
from scheduler.policies import PolicyConfig
from scheduler.reasons import Reason, ReasonCode
from scheduler.replay.engine import replay
from scheduler.replay.records import AllocationRow, LinkUse, ReplayResult
from scheduler.replay.workload import jobs_of
from scheduler.restart import granted_transfers, restart_s, state_of, stop_s
from scheduler.snapshot import Snapshot, StateSpan
from scheduler.spec.scenario import Scenario
from tests import replay_worlds

job = partial(replay_worlds.job, preset="gpt-3-1.3b")  # fits on one GPU
Make = Callable[..., Scenario]
Act = Callable[[Snapshot], list[Decision]]
NOT_NOW = (Reason(ReasonCode.BEHIND_IN_QUEUE, "not now"),)


@dataclass
class Scripted:
    """Plays acts in their order, one for each decision; holds everybody of whom an act says nothing."""

    acts: list[Act]
    name: str = "scripted"
    replans: bool = True
    seen: list[Snapshot] = field(default_factory=list)

    def decide(self, snapshot: Snapshot, **_: object) -> Plan:
        self.seen.append(snapshot)
        act = self.acts[len(self.seen) - 1] if len(self.seen) <= len(self.acts) else start_all
        decisions = act(snapshot)
        told = {each.job_id for each in decisions}
        held = [each.spec.job_id for each in snapshot.waiting if each.spec.job_id not in told]
        holds = (Hold(job_id, index, NOT_NOW) for index, job_id in enumerate(held, start=1))
        return Plan(snapshot.version, (*decisions, *holds))


def nothing(snapshot: Snapshot) -> list[Decision]:
    return []


def start_all(snapshot: Snapshot) -> list[Decision]:
    """Starts whoever fits into the larger region, on four GPUs if the job allows."""
    free = Residual.after_stops(snapshot).free_gpus(("dear", "G"))
    decisions: list[Decision] = []
    for each in snapshot.waiting:
        most = each.stages or min(4, each.spec.parallelism.stages_max or 4)
        if most <= free:
            free -= most
            decisions += start(each.spec.job_id, ("dear", most))(snapshot)
    return decisions


def segments_of(*stages: tuple[str, int]) -> tuple[tuple[Segment, ...], tuple[Cut, ...]]:
    segments = tuple(Segment(region, "G", count, 1) for region, count in stages)
    cuts = tuple(Cut(a.region, b.region, 40e9, 0.002) for a, b in pairwise(segments))
    return segments, cuts


def start(job_id: str, *stages: tuple[str, int]) -> Act:
    def act(snapshot: Snapshot) -> list[Decision]:
        waits = next(each for each in snapshot.waiting if each.spec.job_id == job_id)
        made = evaluate(waits.spec, snapshot.cluster, *segments_of(*stages))
        transfers = granted_transfers(waits.spec, waits.state, made.placement, Residual.after_stops(snapshot))
        assert transfers is not None
        return [Start(job_id, made.placement, made.iteration_s, "scripted", transfers)]

    return act


def move(job_id: str, *stages: tuple[str, int]) -> Act:
    def act(snapshot: Snapshot) -> list[Decision]:
        runs = next(each for each in snapshot.running if each.spec.job_id == job_id)
        made = evaluate(runs.spec, snapshot.cluster, *segments_of(*stages))
        residual = Residual.after_stops(snapshot)
        residual.give_back(runs.allocation.placement, runs.transfers)
        state = runs.state
        if runs.ready_s is None or snapshot.now_s >= runs.ready_s:
            state = state_of(runs.spec, runs.allocation.placement)
        transfers = granted_transfers(runs.spec, state, made.placement, residual)
        assert transfers is not None
        return [Move(job_id, made.placement, made.iteration_s, "scripted", transfers)]

    return act


def preempt(job_id: str) -> Act:
    return lambda snapshot: [Preempt(job_id, "scripted")]


def both(*acts: Act) -> Act:
    return lambda snapshot: [decision for act in acts for decision in act(snapshot)]


Play = Callable[..., tuple[ReplayResult, list[Snapshot], Scenario]]


@pytest.fixture
def play(make_scenario: Make, monkeypatch: pytest.MonkeyPatch) -> Play:
    """Replays jobs under a script."""

    def run(jobs: str, *acts: Act) -> tuple[ReplayResult, list[Snapshot], Scenario]:
        policy = Scripted(list(acts))
        monkeypatch.setattr(policies, "POLICIES", {**policies.POLICIES, policy.name: policy})
        scenario = make_scenario(jobs, [100.0] * 24 * 8)
        result = replay(scenario, jobs_of(scenario), PolicyConfig(name=policy.name))
        return result, policy.seen, scenario

    return run


LONG = job("a", steps=2000, stages="1..8", elasticity="resize")
TICK = job("t", "600s", steps=1, stages=1)  # an event at which the policy is asked


def rows_of(result: ReplayResult, job_id: str) -> list[AllocationRow]:
    return [row for row in result.allocations if row.job_id == job_id]


def test_a_preempted_job_writes_its_state_waits_and_goes_on_where_it_left_off(play: Play) -> None:
    result, seen, scenario = play(
        LONG + TICK, start("a", ("dear", 4)), both(preempt("a"), start("t", ("cheap", 1))), start_all
    )
    spec = jobs_of(scenario)[0].spec
    first, second = rows_of(result, "a")
    placement = seen[1].running[0].allocation.placement
    writing_s = stop_s(spec, scenario.cluster, placement)
    assert first.stop_s == pytest.approx(writing_s)
    assert first.end_s == 600 + writing_s
    assert first.steps == int(600 / first.iteration_s)
    waits = next(each for snap in seen[2:] for each in snap.waiting if each.spec.job_id == "a")
    assert (waits.generation, waits.remaining_steps) == (2, 2000 - first.steps)
    assert waits.state == (StateSpan("dear", 24),)
    assert waits.waits_since_s == pytest.approx(scenario.start_s + first.end_s)
    assert waits.spent_usd == pytest.approx(4 * (600 + writing_s) / 3600 * 2)  # its pool is rented
    assert second.restart_s == pytest.approx(restart_s(spec, scenario.cluster, placement), rel=1e-12)
    assert second.steps == 2000 - first.steps
    assert second.end_s == second.start_s + second.restart_s + second.steps * second.iteration_s
    row = next(row for row in result.jobs if row.job_id == "a")
    assert (row.generations, row.preemptions, row.migrations, row.steps) == (2, 1, 0, 2000)
    assert row.jct_s == row.finish_s == second.end_s


def test_a_restart_and_a_stop_are_held_billed_and_idle(play: Play) -> None:
    result, _, _ = play(
        LONG + TICK, start("a", ("dear", 4)), both(preempt("a"), start("t", ("cheap", 1))), start_all
    )
    for row in rows_of(result, "a"):
        training = row.steps * row.iteration_s / (row.end_s - row.start_s)
        assert row.power_w < 100 + 300 * training
        assert row.power_w > 100
    account = next(row for row in result.jobs if row.job_id == "a")
    held_h = sum(row.end_s - row.start_s for row in rows_of(result, "a")) / 3600
    assert account.rent_usd == pytest.approx(4 * held_h * 2)


def test_a_stopping_job_is_seen_to_hold_what_it_has_and_its_part_of_a_step_is_lost(play: Play) -> None:
    soon = job("s", "601s", steps=1, stages=1)
    result, seen, _ = play(
        LONG + TICK + soon,
        start("a", ("dear", 8)),
        both(preempt("a"), start("t", ("cheap", 1))),
        start("s", ("cheap", 1)),
    )
    stopping = next(each for each in seen[2].running if each.spec.job_id == "a")
    assert stopping.stopping
    first = rows_of(result, "a")[0]
    assert stopping.remaining_steps == 2000 - first.steps
    assert Residual.of(seen[2]).free_gpus(("dear", "G")) == 0
    assert Residual.after_stops(seen[2]).free_gpus(("dear", "G")) == 8
    assert 0 < 600 - first.steps * first.iteration_s < first.iteration_s


def test_a_start_that_needs_what_a_stopping_job_holds_is_promised_and_begins_when_it_is_left(
    play: Play,
) -> None:
    soon = job("s", "601s", steps=1, stages=1)
    new = job("n", "600s", steps=10, stages=8)
    result, seen, _ = play(
        LONG + new + soon, start("a", ("dear", 8)), both(preempt("a"), start("n", ("dear", 8))), nothing
    )
    (promise,) = seen[2].promised
    assert (promise.spec.job_id, promise.generation) == ("n", 1)
    assert [each.spec.job_id for each in seen[2].waiting] == ["s"]
    assert Residual.after_stops(seen[2]).free_gpus(("dear", "G")) == 0
    (begun,) = rows_of(result, "n")
    assert begun.start_s == rows_of(result, "a")[0].end_s
    assert (begun.restart_s, begun.stop_s) == (0.0, 0.0)


def test_a_moved_job_grows_in_place_when_its_own_gpus_are_free_again(play: Play) -> None:
    result, seen, scenario = play(
        LONG + TICK, start("a", ("dear", 4)), both(move("a", ("dear", 8)), start("t", ("cheap", 1)))
    )
    first, second = rows_of(result, "a")
    assert (first.gpus, second.gpus) == (4, 8)
    assert second.start_s == first.end_s
    spec, placement = jobs_of(scenario)[0].spec, seen[-1].running[0].allocation.placement
    assert second.restart_s == pytest.approx(restart_s(spec, scenario.cluster, placement), rel=1e-12)
    row = next(row for row in result.jobs if row.job_id == "a")
    assert (row.generations, row.preemptions, row.migrations) == (2, 0, 0)
    assert row.chain == "dear:8"


def test_state_travels_before_a_job_goes_on_in_another_region_and_is_paid(play: Play) -> None:
    late = job("l", "640s", steps=1, stages=1)
    result, _, scenario = play(
        LONG + TICK + late,
        start("a", ("dear", 4)),
        both(move("a", ("dear", 2), ("cheap", 2)), start("t", ("cheap", 1))),
        start("l", ("dear", 1)),
    )
    spec = jobs_of(scenario)[0].spec
    (travels,) = [row for row in result.links if row.use is LinkUse.STATE]
    assert (travels.src, travels.dst) == ("dear", "cheap")
    second = [row for row in rows_of(result, "a") if row.generation == 2]
    whole = spec.model.layers
    share = travels.bytes * whole / (whole // 2)
    assert share == pytest.approx(18 * 1_315_575_808, rel=1e-3)
    assert travels.start_s == second[0].start_s
    assert travels.end_s == pytest.approx(travels.start_s + 60 + travels.bytes * 8 / travels.reserved_bps)
    assert second[0].restart_s > 60 + travels.bytes * 8 / travels.reserved_bps
    row = next(row for row in result.jobs if row.job_id == "a")
    sent = sum(each.bytes / 1e9 * each.usd_per_gb for each in result.links)
    assert row.egress_usd == pytest.approx(sent)
    assert row.migrations == 1


def test_transfers_hold_their_bandwidth_until_they_have_arrived(play: Play) -> None:
    ticks = "".join(job(f"t{n}", f"{600 + 5 * n}s", steps=1, stages=1) for n in range(30))
    acts = [start("a", ("dear", 4)), both(move("a", ("cheap", 4)), start("t0", ("dear", 1)))]
    result, seen, scenario = play(LONG + ticks, *acts, *[nothing] * 29, start_all)
    (travels,) = [row for row in result.links if row.use is LinkUse.STATE]
    at = [snap.now_s - scenario.start_s for snap in seen]
    while_held = [s for s, now in zip(seen, at, strict=True) if travels.start_s <= now < travels.end_s]
    after = [s for s, now in zip(seen, at, strict=True) if now >= travels.end_s]
    assert while_held
    for snap in while_held:
        assert Residual.of(snap).link_bps(("dear", "cheap")) == 0
    assert Residual.of(after[0]).link_bps(("dear", "cheap")) == 100e9


def test_a_job_stopped_before_its_first_step_has_nothing_to_write_and_its_state_lies_where_it_lay(
    play: Play,
) -> None:
    soon = job("s", "708s", steps=1, stages=1)
    result, seen, _ = play(
        LONG + TICK + soon,
        start("a", ("dear", 4)),
        both(move("a", ("cheap", 3)), start("t", ("cheap", 1))),
        nothing,  # when a has left
        both(preempt("a"), start("s", ("dear", 1))),
        start_all,
    )
    generations = {row.generation: row for row in rows_of(result, "a")}
    cut = next(row for row in generations.values() if row.steps == 0)
    assert cut.stop_s == 0
    assert cut.end_s - cut.start_s == cut.restart_s
    waits = [each for snap in seen for each in snap.waiting if each.generation == cut.generation + 1]
    assert waits[0].state == (StateSpan("dear", 24),)
    (sent,) = [row for row in result.links if row.use is LinkUse.STATE and row.end_s == cut.end_s]
    assert sent.bytes == pytest.approx((cut.end_s - cut.start_s - 60) * sent.reserved_bps / 8)


def test_a_job_moved_before_its_first_step_takes_its_state_from_where_it_lay(play: Play) -> None:
    soon = job("s", "700s", steps=1, stages=1)
    result, _, _ = play(
        LONG + TICK + soon,
        start("a", ("dear", 4)),
        both(move("a", ("cheap", 3)), start("t", ("cheap", 1))),
        nothing,
        both(move("a", ("dear", 4)), start("s", ("cheap", 1))),
        start_all,
    )
    last = rows_of(result, "a")[-1]
    assert not [row for row in result.links if row.generation == last.generation]
    assert next(row for row in result.jobs if row.job_id == "a").migrations == 1


def test_steps_count_from_the_first_step_of_a_generation(play: Play) -> None:
    ticks = job("t", "600s", steps=1, stages=1) + job("u", "30m", steps=1, stages=1)
    result, seen, scenario = play(
        LONG + ticks,
        start("a", ("dear", 4)),
        both(move("a", ("dear", 8)), start("t", ("cheap", 1))),
    )
    first, second = rows_of(result, "a")
    late = next(snap for snap in seen if snap.now_s == scenario.start_s + 1800)
    runs = next(each for each in late.running if each.spec.job_id == "a")
    assert runs.ready_s == pytest.approx(scenario.start_s + second.start_s + second.restart_s)
    done = first.steps + int((1800 - second.start_s - second.restart_s) / second.iteration_s)
    assert runs.remaining_steps == 2000 - done


def test_a_job_that_may_only_be_restarted_waits_with_the_stages_it_had(play: Play) -> None:
    a = job("a", steps=2000, stages="1..8", elasticity="restart")
    _, seen, _ = play(
        a + TICK, start("a", ("dear", 4)), both(preempt("a"), start("t", ("cheap", 1))), nothing
    )
    assert {each.stages for snap in seen[2:] for each in snap.waiting} <= {4}


def test_only_a_policy_that_changes_running_jobs_is_asked_while_none_waits(
    play: Play, make_scenario: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, seen, scenario = play(LONG, start("a", ("dear", 1)))
    hours = [(snap.now_s - scenario.start_s) / 3600 for snap in seen]
    assert hours == [float(hour) for hour in range(len(hours))]  # when prices change
    assert len(hours) > 2
    rigid = job("a", steps=2000, stages="1..8", elasticity="none")
    _, seen, _ = play(rigid, start("a", ("dear", 1)))
    assert len(seen) == 1


def test_what_ended_last_is_seen_first(play: Play) -> None:
    jobs = job("a", steps=1, stages=1) + job("b", "1s", steps=40, stages=1) + job("c", "1h", stages=1)
    _, seen, _ = play(jobs)
    assert [spec.job_id for spec in seen[0].recent] == []
    assert [spec.job_id for spec in seen[-1].recent] == ["b", "a"]


def test_a_job_that_never_goes_on_fails_with_what_it_did_and_cost(play: Play) -> None:
    result, _, _ = play(
        LONG + TICK,
        start("a", ("dear", 4)),
        both(preempt("a"), start("t", ("cheap", 1))),
        *[nothing] * 1000,
    )
    row = next(row for row in result.jobs if row.job_id == "a")
    (held,) = rows_of(result, "a")
    assert (row.state, row.steps, row.finish_s, row.jct_s) == ("failed", held.steps, None, None)
    assert row.rent_usd > 0
    assert [each.job_id for each in result.rejections] == ["a"]


def test_an_earlier_promise_has_the_first_right_to_what_frees(play: Play) -> None:
    """Two leave, one after the other; what was promised first begins first, though the other would fit sooner."""
    jobs = (
        job("a", steps=5000, stages="1..8", elasticity="resize")
        + job("b", steps=5000, stages="1..8", elasticity="resize")
        + job("n", "600s", steps=10, stages=8)
        + job("m", "600s", steps=10, stages=4)
    )
    result, _, _ = play(
        jobs,
        both(start("a", ("dear", 6)), start("b", ("dear", 2))),
        both(preempt("a"), preempt("b"), start("n", ("dear", 8))),
    )
    ends = [rows_of(result, name)[0].end_s for name in ("a", "b")]
    assert ends[0] != ends[1]
    assert rows_of(result, "n")[0].start_s == max(ends)


def test_transfers_are_part_of_what_a_policy_is_judged_by(play: Play) -> None:
    def blind(snapshot: Snapshot) -> list[Decision]:
        (moved,) = move("a", ("cheap", 4))(snapshot)
        assert isinstance(moved, Move)
        return [Move("a", moved.placement, 1.0, "no state", (Transfer("dear", "cheap", 1.0, 1e9),))]

    from scheduler.replay.errors import ReplayError

    with pytest.raises(ReplayError, match="rule transfers"):
        play(LONG + TICK, start("a", ("dear", 4)), blind)
