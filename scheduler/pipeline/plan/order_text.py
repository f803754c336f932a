"""An order as a placement keeps it: a letter for each computation, a text for each rank.

F, B, I and W are those of the rank's first stage, f, b, i and w of its second. Forwards take the micro-batches as they
are numbered, so do backwards, whole or not, and a W is that of the oldest I that has none yet; where it is another one,
its number follows the letter. What repeats stands once, with how often: `FF[FB]62BB` is a rank of 1F1B.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from scheduler.errors import InvalidValueError
from scheduler.pipeline.plan.ir import Actions, Op, Order, StageAction
from scheduler.pipeline.plan.layouts import Layout

OrderText = tuple[str, ...]
"""For each rank its computations, in the order in which it runs them."""

_OPS = {str(op): op for op in (Op.FORWARD, Op.BACKWARD, Op.INPUT_GRADIENT, Op.WEIGHT_GRADIENT)}
_COMPUTATION = re.compile(r"([FBIWfbiw])([0-9]{0,5})")
_REPEATED = re.compile(r"([FBIWfbiw]{1,24}?)\1{2,}(?![0-9])")
_REPEATS = re.compile(r"\[([FBIWfbiw]+)\]([0-9]{1,5})")
_MOST_STAGES = 2


def written(order: Order, layout: Layout) -> OrderText:
    """The text of an order without messages. Raises InvalidValueError for more than one chain or two stages a rank."""
    stages = _stages_of_ranks(layout)
    return tuple(_written(actions, mine) for actions, mine in zip(order, stages, strict=True))


def read(text: Sequence[str], layout: Layout) -> Order:
    """The order that was written. Raises InvalidValueError for a text that is none, or of another layout."""
    stages = _stages_of_ranks(layout)
    if len(text) != len(stages):
        raise InvalidValueError("placement.order", len(text), f"a text for each of {len(stages)} ranks")
    return tuple(_read(letters, mine) for letters, mine in zip(text, stages, strict=True))


def _stages_of_ranks(layout: Layout) -> list[list[int]]:
    if len(layout.chains) != 1:
        raise InvalidValueError("layout", len(layout.chains), "one chain of stages")
    stages: list[list[int]] = [[] for _ in range(layout.ranks)]
    for stage, rank in enumerate(layout.chains[0]):
        stages[rank].append(stage)
    if max(map(len, stages)) > _MOST_STAGES:
        raise InvalidValueError("layout", layout.chains[0], f"at most {_MOST_STAGES} stages a rank")
    return stages


def _written(actions: Actions, mine: Sequence[int]) -> str:
    turns = {stage: _Turns() for stage in mine}
    told = []
    for stage, op, micro_batch in actions:
        letter = str(op) if stage == mine[0] else str(op).lower()
        told.append(letter if micro_batch == turns[stage].next(op) else f"{letter}{micro_batch}")
        turns[stage].take(op, micro_batch)
    return _REPEATED.sub(_once, "".join(told))


def _once(found: re.Match[str]) -> str:
    """What repeats, with how often, where that is shorter."""
    once = f"[{found[1]}]{len(found[0]) // len(found[1])}"
    return min(found[0], once, key=len)


def _read(text: str, mine: Sequence[int]) -> Actions:
    text = _REPEATS.sub(lambda found: found[1] * int(found[2]), text)
    turns = {stage: _Turns() for stage in mine}
    actions, at = [], 0
    while at < len(text):
        found = _COMPUTATION.match(text, at)
        place = int(found is not None and found[1].islower())
        if found is None or place >= len(mine):
            raise InvalidValueError(
                "placement.order", text[at : at + 8], f"F, B, I and W of {len(mine)} stages"
            )
        stage, op = mine[place], _OPS[found[1].upper()]
        micro_batch = int(found[2]) if found[2] else turns[stage].next(op)
        turns[stage].take(op, micro_batch)
        actions.append(StageAction(stage, op, micro_batch))
        at = found.end()
    return tuple(actions)


class _Turns:
    """Which micro-batch of a stage is the next of each kind, if none is named."""

    def __init__(self) -> None:
        self._forward = self._backward = 0
        self._pending: dict[int, None] = {}

    def next(self, op: Op) -> int:
        match op:
            case Op.FORWARD:
                return self._forward
            case Op.WEIGHT_GRADIENT:
                return next(iter(self._pending), 0)
            case _:
                return self._backward

    def take(self, op: Op, micro_batch: int) -> None:
        match op:
            case Op.FORWARD:
                self._forward = micro_batch + 1
            case Op.WEIGHT_GRADIENT:
                self._pending.pop(micro_batch, None)
            case _:
                self._backward = micro_batch + 1
                if op is Op.INPUT_GRADIENT:
                    self._pending[micro_batch] = None
