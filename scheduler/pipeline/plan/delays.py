"""How late the weights of a gradient are where every backward updates its stage at once: PipeDream, and any order.

Ilin and Richtárik (arXiv 2606.03498) count the delay in block updates: how many updates of any stage lie between the
moment a stage's weights are read, at its forward, and the update that the gradient is for. Within a pipeline without
flush it grows with the square of its length.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from scheduler.errors import InvalidValueError
from scheduler.pipeline.plan.ir import Actions, Op, Order, StageAction

STEADY = (0.5, 0.85)
"""The part of all updates that counts: neither the filling of the pipeline nor its emptying."""


@dataclass(frozen=True, slots=True)
class BlockDelays:
    """The largest and the mean delay of a block that an update reads, in block updates."""

    most: int
    mean: float


def longest_delay(stages: int) -> int:
    """PipeDream's largest delay in its steady state, ⌊S² − S/2⌋ block updates."""
    return (2 * stages * stages - stages) // 2


def pipedream(stages: int, micro_batches: int) -> Order:
    """PipeDream's 1F1B without a flush, as its stages would take their work. Layout: `line`.

    In slots of one F or one B, every stage looks at what was there when the slot began, and takes a backward if there
    is one, a forward otherwise. (To take the two in turn, as PipeDream says, comes to the same.) The first stage holds
    at most S micro-batches. Raises InvalidValueError for less than one stage or micro-batch.
    """
    if stages < 1 or micro_batches < 1:
        raise InvalidValueError("stages, micro_batches", (stages, micro_batches), "1 or more of each")
    state = [_Stage(number, stages) for number in range(stages)]
    while any(stage.backwards < micro_batches for stage in state):
        done = [(stage.forwards, stage.backwards) for stage in state]
        for stage in state:
            fed = micro_batches if stage.number == 0 else done[stage.number - 1][0]
            back = stage.forwards if stage.number == stages - 1 else done[stage.number + 1][1]
            stage.take_turn(min(fed, micro_batches), back)
    return tuple(tuple(stage.actions) for stage in state)


class _Stage:
    """A stage while the order is made: forwards and backwards done, in the order of micro-batches."""

    def __init__(self, number: int, stages: int) -> None:
        self.number = number
        self.forwards = self.backwards = 0
        self.actions: list[StageAction] = []
        self._most_in_flight = stages if number == 0 else None

    def take_turn(self, fed: int, back: int) -> None:
        """One slot, when the stage before has done `fed` forwards and the stage behind `back` backwards."""
        full = self.forwards - self.backwards == self._most_in_flight
        if self.backwards < back:
            self.actions.append(StageAction(self.number, Op.BACKWARD, self.backwards))
            self.backwards += 1
        elif self.forwards < fed and not full:
            self.actions.append(StageAction(self.number, Op.FORWARD, self.forwards))
            self.forwards += 1


def block_delays(order: Order) -> BlockDelays:
    """The delays of an order on a line, if every action takes a slot and every backward updates its stage.

    Raises InvalidValueError where ranks wait for each other, or nothing lies within `STEADY`.
    """
    stages = len(order)
    read: dict[tuple[int, int], int] = {}
    delays: list[tuple[int, ...]] = []
    for stage, op, micro_batch in in_slots(order):
        if op is Op.FORWARD:
            read[stage, micro_batch] = len(delays)
        else:
            delays.append(tuple(len(delays) - read[block, micro_batch] for block in range(stages)))
    first, end = (int(part * len(delays)) for part in STEADY)
    counted = [delay for update in delays[first:end] for delay in update]
    if not counted:
        raise InvalidValueError("order", f"{len(delays)} backwards", "so many that a steady state is reached")
    return BlockDelays(max(counted), sum(counted) / len(counted))


def in_slots(order: Order) -> Iterator[StageAction]:
    """The actions of a line as they run if each takes one slot: slot by slot, in a slot from the first stage on."""
    position = [0] * len(order)
    done: set[StageAction] = set()
    while any(at < len(actions) for at, actions in zip(position, order, strict=True)):
        ran = [
            actions[at]
            for at, actions in zip(position, order, strict=True)
            if at < len(actions) and _can_run(actions[at], done, len(order))
        ]
        if not ran:
            raise InvalidValueError(
                "order", _stuck(order, position), "an order in which no ranks wait forever"
            )
        yield from ran
        done.update(ran)
        for action in ran:
            position[action.stage] += 1


def _can_run(action: StageAction, done: set[StageAction], stages: int) -> bool:
    stage, op, micro_batch = action
    if op is Op.FORWARD:
        return stage == 0 or StageAction(stage - 1, op, micro_batch) in done
    if op is not Op.BACKWARD:
        raise InvalidValueError("order", str(action), "forwards and whole backwards")
    if StageAction(stage, Op.FORWARD, micro_batch) not in done:
        return False
    return stage == stages - 1 or StageAction(stage + 1, op, micro_batch) in done


def _stuck(order: tuple[Actions, ...], position: list[int]) -> str:
    waiting = (actions[at] for actions, at in zip(order, position, strict=True) if at < len(actions))
    return ", ".join(map(str, waiting))
