"""What the reconciler promises: each key at most once, nothing that is not wanted, no GPU twice."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agents.causes import LEASE_EXPIRED, NOT_DESIRED
from agents.protocol import StageProcess
from agents.reconcile import Action, Refuse, Start, Stop, reconcile
from tests.unit.agents.builders import stage

NODES = {"node-a": 2, "node-b": 1}


@dataclass(frozen=True)
class Known:
    node_id: str = "node-a"
    gpu_indices: tuple[int, ...] = (0,)
    ended: bool = False
    stop_cause: str | None = None


def decide(
    *desired: StageProcess, known: dict[str, Known] | None = None, lease: bool = True
) -> tuple[Action, ...]:
    return reconcile(desired, known or {}, frozenset(), NODES, lease)


def test_a_new_key_is_started_and_a_known_one_is_not() -> None:
    process = stage()
    assert decide(process, process) == (Start(process),)
    assert decide(process, known={process.key: Known()}) == ()
    assert decide(process, known={process.key: Known(ended=True)}) == ()


def test_a_forgotten_key_never_comes_back() -> None:
    process = stage()
    assert reconcile([process], {}, {process.key}, NODES, True) == ()


def test_what_is_not_desired_is_stopped_once() -> None:
    assert decide(known={"a/0": Known()}) == (Stop("a/0", NOT_DESIRED),)
    assert decide(known={"a/0": Known(stop_cause=NOT_DESIRED)}) == ()
    assert decide(known={"a/0": Known(ended=True)}) == ()


def test_without_a_lease_everything_stops_and_nothing_starts() -> None:
    actions = decide(stage("a/0"), stage("b/0", gpu_indices=[1]), known={"a/0": Known()}, lease=False)
    assert actions == (Stop("a/0", LEASE_EXPIRED),)


def test_a_process_waits_until_its_gpus_are_free() -> None:
    successor = stage("new/0", gpu_indices=[0, 1])
    held = Known(gpu_indices=(1,))
    assert decide(successor, known={"old/0": held}) == (Stop("old/0", NOT_DESIRED),)
    assert decide(successor, known={"old/0": replace(held, stop_cause=NOT_DESIRED)}) == ()
    assert decide(successor, known={"old/0": replace(held, ended=True)}) == (Start(successor),)
    assert decide(stage("x/0", node_id="node-b"), known={"old/0": held})[-1] == Start(
        stage("x/0", node_id="node-b")
    )


def test_of_two_new_ones_for_one_gpu_only_one_is_started() -> None:
    starts = [action for action in decide(stage("a/0"), stage("b/0")) if isinstance(action, Start)]
    assert len(starts) == 1


@pytest.mark.parametrize(
    "changes",
    [
        {"node_id": "elsewhere"},
        {"gpu_indices": [2]},
        {"gpu_indices": [0, 0]},
        {"key": "a/../b"},
        {"key": "a//b"},
        {"key": "no-rank"},
        {"key": "a/"},
    ],
)
def test_what_cannot_be_meant_is_refused_with_what_would_be_right(changes: dict[str, object]) -> None:
    (action,) = decide(stage(**{"key": "a/0", **changes}))
    assert isinstance(action, Refuse)
    assert next(iter(changes)) in action.detail


KEYS = [f"{allocation}/{rank}" for allocation in "abcd" for rank in (0, 1)]
DESIRED = st.lists(
    st.builds(
        lambda key, node, gpu: stage(key, node_id=node, gpu_indices=[gpu]),
        st.sampled_from(KEYS),
        st.sampled_from(["node-a", "node-b"]),
        st.integers(0, 1),
    ),
    max_size=6,
)


@dataclass
class World:
    """An agent without processes: what has been started, what runs, what has been forgotten."""

    known: dict[str, Known] = field(default_factory=dict)
    tombstones: set[str] = field(default_factory=set)
    starts: list[str] = field(default_factory=list)

    def obey(self, actions: tuple[Action, ...]) -> None:
        for action in actions:
            match action:
                case Start(process):
                    self.starts.append(process.key)
                    self.known[process.key] = Known(process.node_id, tuple(process.gpu_indices))
                case Refuse(process, _):
                    self.known[process.key] = Known(process.node_id, (), ended=True)
                case Stop(key, cause):
                    assert self.known[key].stop_cause is None, "stopped twice"
                    self.known[key] = replace(self.known[key], stop_cause=cause)

    def live_slots(self) -> list[tuple[str, int]]:
        live = [process for process in self.known.values() if not process.ended]
        return [(process.node_id, index) for process in live for index in process.gpu_indices]


STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("reply"), DESIRED, st.booleans()),
        st.tuples(st.just("old reply"), st.integers(0, 20), st.booleans()),
        st.tuples(st.just("end"), st.sampled_from(KEYS), st.booleans()),
        st.tuples(st.just("forget"), st.sampled_from(KEYS), st.booleans()),
    ),
    max_size=25,
)


@given(STEPS)
@settings(deadline=None, max_examples=150)
def test_whatever_is_repeated_reordered_or_late_no_key_starts_twice_and_no_gpu_is_shared(
    steps: list[tuple[str, object, bool]],
) -> None:
    world = World()
    replies: list[list[StageProcess]] = [[]]
    for kind, value, lease in steps:
        if kind in ("reply", "old reply"):
            if isinstance(value, list):
                replies.append(value)
            desired = value if isinstance(value, list) else replies[int(str(value)) % len(replies)]
            world.obey(reconcile(desired, world.known, world.tombstones, NODES, lease))
            wanted = {process.key for process in desired} if lease else set()
            unwanted = [k for k, p in world.known.items() if not p.ended and k not in wanted]
            assert all(world.known[key].stop_cause is not None for key in unwanted)
        elif value in world.known:
            key = str(value)
            if kind == "end":
                world.known[key] = replace(world.known[key], ended=True)
            elif world.known[key].ended:
                del world.known[key]
                world.tombstones.add(key)
        assert len(world.starts) == len(set(world.starts))
        assert len(world.live_slots()) == len(set(world.live_slots()))
