"""Orders with split backwards: ZB-H1 and its kin on a line; ZB-V, DualPipeV and V-Half on a V.

On the V, rank r has stage r, here "down", and stage 2K − 1 − r, "up".
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

from scheduler.errors import InvalidValueError
from scheduler.pipeline.plan.ir import Actions, Op, Order, StageAction
from scheduler.pipeline.plan.orders import by_slot
from scheduler.pipeline.schedules import require_window, strict_window

F, B, I, W = Op.FORWARD, Op.BACKWARD, Op.INPUT_GRADIENT, Op.WEIGHT_GRADIENT  # noqa: E741


def zb_h1(ranks: int, micro_batches: int) -> Order:
    """The memory of 1F1B, a third of its bubble (Qi et al., arXiv 2401.10241). Layout: `line`.

    Rank r runs K − r forwards, then I of micro-batch i, W of i − r, and a forward, in turn.
    """
    window = strict_window(ranks, micro_batches)
    return lagged(window, tuple(min(ranks, micro_batches) - cap for cap in window), micro_batches)


def lagged(window: Sequence[int], lag: Sequence[int], micro_batches: int) -> Order:
    """A window in which W of micro-batch i comes after I of i + lag. Holds window + lag in flight. Layout: `line`."""
    require_window(window, len(window), micro_batches)
    order = []
    for stage, (cap, behind) in enumerate(zip(window, lag, strict=True)):
        actions = [StageAction(stage, F, each) for each in range(min(cap, micro_batches))]
        for each in range(micro_batches + behind):
            if each < micro_batches:
                actions.append(StageAction(stage, I, each))
            if 0 <= each - behind < micro_batches:
                actions.append(StageAction(stage, W, each - behind))
            if each + cap < micro_batches:
                actions.append(StageAction(stage, F, each + cap))
        order.append(tuple(actions))
    return tuple(order)


class _Vee:
    """The actions of one rank on the V, as they are written down. Each kind takes its micro-batches in order."""

    def __init__(self, ranks: int, rank: int) -> None:
        self.down, self.up = rank, 2 * ranks - 1 - rank
        self.actions: list[StageAction] = []
        self._begun: dict[tuple[int, Op], int] = {}
        self._pending: deque[StageAction] = deque()

    def forward(self, stage: int) -> None:
        self._next(stage, F)

    def backward(self, stage: int) -> None:
        self._next(stage, B)

    def input_gradient(self, stage: int) -> None:
        self._pending.append(self._next(stage, I)._replace(op=W))

    def weight_gradient(self) -> None:
        """Of the micro-batch that has waited longest for it."""
        self.actions.append(self._pending.popleft())

    def weight_gradients_of(self, stage: int, count: int) -> None:
        """Of one stage, the `count` micro-batches that have waited longest."""
        ours = [each for each in self._pending if each.stage == stage][:count]
        for each in ours:
            self._pending.remove(each)
        self.actions.extend(ours)

    def ran(self, stage: int, op: Op) -> int:
        """How many micro-batches: a whole backward counts as the gradient of the input."""
        return self._begun.get((stage, I if op is B else op), 0)

    def _next(self, stage: int, op: Op) -> StageAction:
        key = (stage, I if op is B else op)
        action = StageAction(stage, op, self._begun.get(key, 0))
        self._begun[key] = action.micro_batch + 1
        self.actions.append(action)
        return action


def zb_v(ranks: int, micro_batches: int) -> Order:
    """No bubble at the memory of 1F1B where F = I = W (Qi et al., arXiv 2401.10241 and 2405.15362). Layout: `vee`.

    Raises InvalidValueError for fewer than 2K micro-batches.
    """
    _require_two_rounds(ranks, micro_batches)
    return tuple(_zb_v_rank(ranks, rank, micro_batches) for rank in range(ranks))


def _zb_v_rank(ranks: int, rank: int, micro_batches: int) -> Actions:
    made = _Vee(ranks, rank)
    down, up = made.down, made.up

    def back(stage: int) -> None:
        made.input_gradient(stage)
        made.weight_gradients_of(stage, 1)

    for _ in range(2 * (ranks - rank) - 1):
        made.forward(down)
    for _ in range(rank):
        made.forward(up)
        made.forward(down)
    for _ in range(ranks - rank):
        made.forward(up)
        back(up)
    while made.ran(up, F) < micro_batches:
        if made.ran(down, F) < micro_batches:
            made.forward(down)
        back(down)
        made.forward(up)
        back(up)
    # What drains: input gradients first, for the ranks that wait for them.
    for _ in range(rank):
        made.input_gradient(down)
        made.input_gradient(up)
    for _ in range(ranks - rank):
        made.input_gradient(down)
        made.weight_gradients_of(down, 1)
    made.weight_gradients_of(up, micro_batches)
    made.weight_gradients_of(down, micro_batches)
    return tuple(made.actions)


def dual_pipe_v(ranks: int, micro_batches: int) -> Order:
    """DualPipe cut in half and folded (DeepSeek's DualPipeV), a forward and a backward of it in turn. Layout: `vee`.

    Its own execution runs such a pair at the same time, for what overlaps inside them; here they follow each other.
    Raises InvalidValueError for fewer than 2K micro-batches.
    """
    _require_two_rounds(ranks, micro_batches)
    return tuple(_dual_pipe_v_rank(ranks, rank, micro_batches) for rank in range(ranks))


def _dual_pipe_v_rank(ranks: int, rank: int, micro_batches: int) -> Actions:
    made = _Vee(ranks, rank)
    down, up, after = made.down, made.up, ranks - rank - 1
    for _ in range(2 * after):
        made.forward(down)
    for _ in range(rank + 1):
        made.forward(down)
        made.forward(up)
    for _ in range(after):
        made.input_gradient(up)
        made.weight_gradient()
        made.forward(up)
    for _ in range(micro_batches - 2 * ranks + rank + 1):
        made.forward(down)
        made.backward(up)
        made.forward(up)
        made.backward(down)
    for _ in range(after):
        made.backward(up)
        made.forward(up)
        made.backward(down)
    turns = [stage for _ in range(rank + 1) for stage in (up, down)]
    for stage in turns[: rank + 1]:
        made.backward(stage)
    for stage in turns[rank + 1 :]:
        made.input_gradient(stage)
    for _ in range(after):
        made.weight_gradient()
        made.input_gradient(down)
    for _ in range(rank + 1):
        made.weight_gradient()
    return tuple(made.actions)


def v_half(ranks: int, micro_batches: int) -> Order:
    """Half the memory of 1F1B, half its bubble (Qi et al., arXiv 2405.15362). Layout: `vee`.

    A building block is repeated every 6 slots of F, I and W. From rank to rank its down forward and its up gradient
    take 2 slots, its up forward and down gradient 1: the time from F to W, summed over both stages, is then about
    6K slots on every rank, 1F1B's half. The slots where it turns are the first at which no two of its actions fall
    together modulo 6 on any rank; the W take the two places that are left.
    """
    if ranks < 1 or micro_batches < 1:
        raise InvalidValueError("micro_batches", micro_batches, "at least one, on at least one rank")
    slots: list[list[tuple[int, StageAction]]] = [[] for _ in range(ranks)]
    for rank, block in enumerate(_building_block(ranks)):
        for slot, stage, op in block:
            slots[rank].extend(
                (slot + 6 * each, StageAction(stage, op, each)) for each in range(micro_batches)
            )
    return tuple(map(by_slot, slots))


def _building_block(ranks: int) -> list[list[tuple[int, int, Op]]]:
    """(slot, stage, op) of micro-batch 0 on each rank, for V-Half."""

    def turn(earliest: int, unlike: Sequence[int], by: int) -> int:
        """The first slot from `earliest` on that is unlike each of these, modulo `by`."""
        return next(
            slot
            for slot in range(earliest, earliest + by + len(unlike))
            if all((slot - each) % by for each in unlike)
        )

    # Rank r: down forward 2r, up forward a − r, up gradient b + 2r, down gradient c − r. Those with unlike steps
    # meet on some rank iff they are alike modulo 3, those with like steps on every rank iff alike modulo 6.
    a = turn(3 * ranks - 2, (0,), 3)
    b = next(slot for slot in range(a + 1, a + 7) if slot % 6 and (slot - a) % 3)
    c = next(
        slot
        for slot in range(b + 3 * ranks - 2, b + 3 * ranks + 4)
        if slot % 3 and (slot - b) % 3 and (slot - a) % 6
    )
    blocks = []
    for rank in range(ranks):
        down, up = rank, 2 * ranks - 1 - rank
        block = [(2 * rank, down, F), (a - rank, up, F), (b + 2 * rank, up, I), (c - rank, down, I)]
        taken = [slot for slot, _, _ in block]
        for slot, stage, _ in (block[2], block[3]):
            taken.append(turn(slot + 1, taken, 6))
            block.append((taken[-1], stage, W))
        blocks.append(block)
    return blocks


def _require_two_rounds(ranks: int, micro_batches: int) -> None:
    if ranks < 1 or micro_batches < 2 * ranks:
        raise InvalidValueError("micro_batches", micro_batches, f"at least 2 × {ranks} ranks")
