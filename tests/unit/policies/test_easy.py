"""EASY backfill: the head has a reservation, and nobody delays it."""

from dataclasses import replace

from scheduler.check import check_plan
from scheduler.plan import Hold, Start
from scheduler.policies import PolicyConfig, decide
from scheduler.reasons import ReasonCode
from tests.worlds import cluster, job, runs, snapshot

EASY = PolicyConfig("easy")


def rigid(name: str, stages: int, steps: int, submit_s: float):
    """A job of so many GPUs, that takes about 12 s × steps on eight of them and 32 s × steps on one."""
    return job(name, stages=(stages, stages), steps=steps, submit_s=submit_s)


def busy(world, *held):
    """Jobs that run: (waiting job, steps left)."""
    early = [waiting for waiting, _ in held]
    placed = {each.job_id: each for each in decide(snapshot(world, *early), EASY).starts}
    assert len(placed) == len(held)
    return [runs(waiting, placed[waiting.spec.job_id].placement, steps=steps) for waiting, steps in held]


def started(snap, config=EASY):
    plan = decide(snap, config)
    assert check_plan(snap, plan) == ()
    return {each.job_id for each in plan.starts}


WORLD = cluster({"a": 8})
LONG = (rigid("r", 6, 100, 0.0), 100)
HEAD = rigid("head", 8, 10, 1.0)


def test_a_job_that_ends_before_the_head_can_start_is_backfilled():
    assert started(snapshot(WORLD, HEAD, rigid("short", 2, 10, 2.0), running=busy(WORLD, LONG))) == {"short"}


def test_a_job_that_would_delay_the_head_waits_and_is_told_for_whom():
    snap = snapshot(WORLD, HEAD, rigid("long", 2, 1000, 2.0), running=busy(WORLD, LONG))
    head, long = decide(snap, EASY).decisions
    assert isinstance(head, Hold)
    assert isinstance(long, Hold)
    assert (head.position, long.position) == (1, 2)
    assert long.reasons[0].code is ReasonCode.BEHIND_IN_QUEUE
    assert "head" in long.reasons[0].detail


def test_fifo_without_a_reservation_would_have_started_it():
    snap = snapshot(WORLD, HEAD, rigid("long", 2, 1000, 2.0), running=busy(WORLD, LONG))
    assert started(snap, PolicyConfig("fifo")) == {"long"}


def test_what_the_head_leaves_over_may_be_taken_for_as_long_as_one_likes_but_only_once():
    head = rigid("head", 7, 10, 1.0)
    behind = [rigid("one", 1, 1000, 2.0), rigid("two", 1, 1000, 3.0)]
    assert started(snapshot(WORLD, head, *behind, running=busy(WORLD, LONG))) == {"one"}


def test_a_job_that_may_run_on_fewer_stages_takes_what_the_head_leaves_over():
    head, flexible = rigid("head", 7, 10, 1.0), job("flexible", steps=1000, submit_s=2.0)
    snap = snapshot(WORLD, head, flexible, running=busy(WORLD, LONG))
    (start,) = decide(snap, EASY).starts
    assert (start.job_id, start.placement.stages) == ("flexible", 1)


def test_the_reservation_is_where_room_comes_first_and_other_regions_are_free_to_all():
    world = cluster({"a": 8, "b": 8})
    running = busy(world, (rigid("r", 6, 100, 0.0), 100), (rigid("s", 6, 300, 0.5), 300))
    where = running[0].allocation.placement.regions[0]
    other = ({"a", "b"} - {where}).pop()
    snap = snapshot(world, HEAD, rigid("long", 2, 1000, 2.0), running=running)
    (start,) = decide(snap, EASY).starts
    assert start.placement.regions == (other,)


def test_all_that_end_at_one_moment_leave_together():
    running = busy(WORLD, (rigid("r", 4, 50, 0.0), 50), (rigid("s", 4, 50, 0.5), 50))
    snap = snapshot(cluster({"a": 9}), HEAD, rigid("long", 1, 1000, 2.0), running=running)
    assert started(snap) == {"long"}


def test_only_the_head_has_a_reservation():
    second = rigid("second", 5, 10, 2.0)
    snap = snapshot(WORLD, HEAD, second, rigid("short", 2, 10, 3.0), running=busy(WORLD, LONG))
    assert started(snap) == {"short"}


def test_a_job_that_has_outrun_its_estimate_is_taken_to_end_soon():
    late = (rigid("r", 6, 100, 0.0), 1)
    snap = snapshot(WORLD, HEAD, rigid("short", 2, 10, 2.0), running=busy(WORLD, late))
    assert started(snap) == set()


def test_strict_order_backfills_nobody():
    snap = snapshot(WORLD, HEAD, rigid("short", 2, 1, 2.0), running=busy(WORLD, LONG))
    decisions = decide(snap, replace(EASY, strict=True)).decisions
    assert not any(isinstance(each, Start) for each in decisions)
    assert decisions[1].reasons[0].code is ReasonCode.BLOCKED_BY_HEAD
