"""The pass that inserts messages into an order of computations, and who waits for whom.

A send stands right after what it sends. A receive only posts: it stands before the first computation that needs it,
and all receives from a rank stand in the order in which that rank sends. So two ranks always name their messages in
the same order, as a transport that matches them one by one (NCCL, or gloo without tags) needs.
"""

from __future__ import annotations

from collections import defaultdict

from scheduler.pipeline.plan.ir import Actions, Op, Order, Pipeline, StageAction

SENDS = frozenset((Op.SEND_FORWARD, Op.SEND_BACKWARD))
RECEIVES = frozenset((Op.RECEIVE_FORWARD, Op.RECEIVE_BACKWARD))


class Wiring:
    """Where the results of a pipeline's stages go; looked up for every action, so worked out once."""

    def __init__(self, pipeline: Pipeline) -> None:
        self.rank = tuple(stage.rank for stage in pipeline.stages)
        self.following, self.preceding = pipeline.following, pipeline.preceding

    def sends(self, action: StageAction) -> StageAction | None:
        """The message that a computation gives rise to; none where its result stays on the rank."""
        stage, op, micro_batch = action
        if op is Op.FORWARD:
            target, message = self.following[stage], Op.SEND_FORWARD
        elif op.passes_gradient_back:
            target, message = self.preceding[stage], Op.SEND_BACKWARD
        else:
            return None
        if target is None or self.rank[target] == self.rank[stage]:
            return None
        return StageAction(stage, message, micro_batch)

    def receives(self, send: StageAction) -> StageAction | None:
        """The other end of a send; none of anything else, and of a send to nobody."""
        stage, op, micro_batch = send
        if op is Op.SEND_FORWARD:
            target, message = self.following[stage], Op.RECEIVE_FORWARD
        elif op is Op.SEND_BACKWARD:
            target, message = self.preceding[stage], Op.RECEIVE_BACKWARD
        else:
            return None
        return None if target is None else StageAction(target, message, micro_batch)

    def source(self, action: StageAction) -> int | None:
        """The stage whose result a computation or a receive takes; none at the ends of a chain, and of W."""
        if action.op is Op.FORWARD or action.op is Op.RECEIVE_FORWARD:
            return self.preceding[action.stage]
        if action.op.passes_gradient_back or action.op is Op.RECEIVE_BACKWARD:
            return self.following[action.stage]
        return None

    def awaits(self, action: StageAction) -> StageAction | None:
        """The receive without which a computation cannot start; none where its input comes from its own rank."""
        source = self.source(action)
        if source is None or self.rank[source] == self.rank[action.stage]:
            return None
        message = Op.RECEIVE_FORWARD if action.op is Op.FORWARD else Op.RECEIVE_BACKWARD
        return StageAction(action.stage, message, action.micro_batch)


def with_messages(pipeline: Pipeline, order: Order) -> Order:
    """The order with a send and a receive for everything that passes from one rank to another."""
    wiring = Wiring(pipeline)
    outgoing = [_with_sends(wiring, actions) for actions in order]
    lines: dict[tuple[int, int], list[StageAction]] = defaultdict(list)
    for rank, actions in enumerate(outgoing):
        for action in actions:
            if (receive := wiring.receives(action)) is not None:
                lines[rank, wiring.rank[receive.stage]].append(receive)
    return tuple(_with_receives(wiring, rank, actions, lines) for rank, actions in enumerate(outgoing))


def computations(order: Order) -> Order:
    """The order without its messages."""
    return tuple(tuple(action for action in actions if action.op.computes) for actions in order)


def _with_sends(wiring: Wiring, actions: Actions) -> list[StageAction]:
    made = []
    for action in actions:
        made.append(action)
        if (send := wiring.sends(action)) is not None:
            made.append(send)
    return made


def _with_receives(
    wiring: Wiring,
    rank: int,
    actions: list[StageAction],
    lines: dict[tuple[int, int], list[StageAction]],
) -> Actions:
    """Each receive before its use, after all that its sender sends before it."""
    source_of = {receive: line for (_, target), line in lines.items() if target == rank for receive in line}
    posted: set[StageAction] = set()
    given: dict[int, int] = defaultdict(int)  # of each line (by identity) how many are posted
    made = []
    for action in actions:
        needed = wiring.awaits(action)
        if needed is not None and needed not in posted and needed in source_of:
            line = source_of[needed]
            while needed not in posted:
                posted.add(line[given[id(line)]])
                made.append(line[given[id(line)]])
                given[id(line)] += 1
        made.append(action)
    return tuple(made)
