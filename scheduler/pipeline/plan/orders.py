"""Orders with whole backwards: GPipe, 1F1B and its windows, interleaved 1F1B, looped breadth-first, Chimera.

Each function gives the computations of every rank for M micro-batches; `layouts` has the placement that it is for.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from scheduler.errors import InvalidValueError
from scheduler.pipeline.plan.ir import Actions, Op, Order, StageAction
from scheduler.pipeline.schedules import ActionKind, action_table, gpipe_window, strict_window

F, B = Op.FORWARD, Op.BACKWARD


def gpipe(ranks: int, micro_batches: int) -> Order:
    """All forwards, then all backwards (Huang et al., arXiv 1811.06965). Layout: `line`."""
    return windowed(gpipe_window(ranks, micro_batches), micro_batches)


def one_f_one_b(ranks: int, micro_batches: int) -> Order:
    """Strict 1F1B (PipeDream-flush, arXiv 2006.09503). Layout: `line`."""
    return windowed(strict_window(ranks, micro_batches), micro_batches)


def windowed(window: Sequence[int], micro_batches: int) -> Order:
    """1F1B with these caps in flight: `schedules.slack_window`, or one that was chosen. Layout: `line`."""
    ops = {ActionKind.FORWARD: F, ActionKind.BACKWARD: B}
    return tuple(
        tuple(StageAction(stage, ops[kind], micro_batch) for kind, micro_batch in actions)
        for stage, actions in enumerate(action_table(window, micro_batches))
    )


def interleaved(ranks: int, chunks: int, micro_batches: int) -> Order:
    """Interleaved 1F1B (Narayanan et al., arXiv 2104.04473, section 2.2). Layout: `loop`.

    Micro-batches go in groups of K through all chunks of a rank; rank r runs 2(K − r − 1) + (v − 1)K forwards
    before it takes a backward and a forward in turn. Raises InvalidValueError unless K divides M.
    """
    if micro_batches < 1 or micro_batches % ranks:
        raise InvalidValueError("micro_batches", micro_batches, f"a multiple of {ranks} ranks")

    def turn(rank: int, number: int, op: Op) -> StageAction:
        group, within = divmod(number, ranks * chunks)
        chunk, lane = divmod(within, ranks)
        stage = (chunk if op is F else chunks - 1 - chunk) * ranks + rank
        return StageAction(stage, op, group * ranks + lane)

    total = micro_batches * chunks
    order = []
    for rank in range(ranks):
        warm_up = min(total, 2 * (ranks - rank - 1) + (chunks - 1) * ranks)
        actions = [turn(rank, number, F) for number in range(warm_up)]
        for number in range(total):
            actions.extend(turn(rank, ahead, F) for ahead in range(warm_up + number, total)[:1])
            actions.append(turn(rank, number, B))
        order.append(tuple(actions))
    return tuple(order)


def looped_breadth_first(ranks: int, chunks: int, micro_batches: int) -> Order:
    """Every chunk for all micro-batches, then all back, the last first (Lamy-Poirier, 2211.05953). Layout: `loop`."""
    order = []
    for rank in range(ranks):
        stages = range(rank, ranks * chunks, ranks)
        forwards = [StageAction(stage, F, each) for stage in stages for each in range(micro_batches)]
        order.append((*forwards, *(StageAction(stage, B, each) for stage, _, each in reversed(forwards))))
    return tuple(order)


def chimera(ranks: int, micro_batches: int) -> Order:
    """Two pipelines in opposite directions, merged: `chimera_slots` in their order. Layout: `both_ways`."""
    return tuple(map(by_slot, chimera_slots(ranks, micro_batches)))


def chimera_slots(ranks: int, micro_batches: int) -> list[list[tuple[int, StageAction]]]:
    """Two pipelines in opposite directions over two replicas (Li and Hoefler, arXiv 2107.06925): (slot, action).

    In slots of one F or one B: micro-batch j of a direction enters at slot 2j and turns at its last stage, so stage
    i runs F in slot i + 2j and B in slot 2K − 1 − i + 2j. As K is even the two directions never ask for the same
    slot. A unit of K micro-batches, half of them each way, is followed by the next 2K slots later, whose forwards
    fall into its idle slots. What its replicas must then reduce between ranks r and K − 1 − r is not in the plan.
    Raises InvalidValueError unless K is even and divides M.
    """
    if ranks < 2 or ranks % 2:
        raise InvalidValueError("ranks", ranks, "an even number")
    if micro_batches < 1 or micro_batches % ranks:
        raise InvalidValueError("micro_batches", micro_batches, f"a multiple of {ranks} ranks")
    slots: list[list[tuple[int, StageAction]]] = [[] for _ in range(ranks)]
    for micro_batch in range(micro_batches):
        unit, within = divmod(micro_batch, ranks)
        upwards, number = divmod(within, ranks // 2)
        for stage in range(ranks):
            rank = ranks - 1 - stage if upwards else stage
            enters = 2 * ranks * unit + 2 * number
            replica = stage + (ranks if upwards else 0)
            slots[rank].append((enters + stage, StageAction(replica, F, micro_batch)))
            slots[rank].append((enters + 2 * ranks - 1 - stage, StageAction(replica, B, micro_batch)))
    return slots


def by_slot(slots: Iterable[tuple[int, StageAction]]) -> Actions:
    """Actions in the order of the slots that they stand in."""
    return tuple(action for _, action in sorted(slots))
