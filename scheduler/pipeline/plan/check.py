"""What must hold of every plan: it is complete, its messages meet, nobody waits forever, and the memory holds it."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence

from scheduler.errors import InvalidValueError
from scheduler.pipeline.plan.communication import RECEIVES, SENDS, Wiring
from scheduler.pipeline.plan.ir import Op, Order, Pipeline, Plan, StageAction
from scheduler.pipeline.plan.memory import require_memory


class CyclicPlanError(InvalidValueError):
    """Ranks that wait for each other forever. `cycle` names for each the action it stands at and what that needs."""

    code = "cyclic_plan"

    def __init__(self, cycle: Sequence[tuple[int, StageAction, StageAction]]) -> None:
        said = ", ".join(f"rank {rank} at {action} for {need}" for rank, action, need in cycle)
        super().__init__("plan.actions", said, "an order in which no ranks wait for each other")
        self.cycle = tuple(cycle)


def check(plan: Plan) -> None:
    """Raise what is wrong with a plan: InvalidValueError, CyclicPlanError or OutOfMemoryError."""
    require_complete(plan.pipeline, plan.actions)
    _require_matching_messages(plan)
    _require_progress(plan)
    require_memory(plan)


def require_complete(pipeline: Pipeline, order: Order) -> None:
    """Every stage of a chain runs F once and its backward once, for the same micro-batches, on its own rank."""
    if len(order) != len(pipeline.workers):
        raise InvalidValueError("plan.actions", len(order), f"those of {len(pipeline.workers)} ranks")
    runs: Counter[StageAction] = Counter()
    for rank, actions in enumerate(order):
        for action in actions:
            if not 0 <= action.stage < len(pipeline.stages) or pipeline.stages[action.stage].rank != rank:
                raise InvalidValueError("plan.actions", f"{action} on rank {rank}", "the stages of that rank")
            runs[action] += 1
            if runs[action] > 1:
                raise InvalidValueError("plan.actions", f"{action} twice", "every action once")
    chains: dict[int, set[int]] = {}
    following = pipeline.following
    for first in (stage for stage, before in enumerate(pipeline.preceding) if before is None):
        entering = {action.micro_batch for action in runs if action[:2] == (first, Op.FORWARD)}
        stage: int | None = first
        while stage is not None:
            chains[stage] = entering
            stage = following[stage]
    done: dict[tuple[int, Op], set[int]] = defaultdict(set)
    for stage, op, micro_batch in runs:
        done[stage, op].add(micro_batch)
    for stage, entering in chains.items():
        whole, halves = done[stage, Op.BACKWARD], done[stage, Op.INPUT_GRADIENT]
        for name, ran in (
            (Op.FORWARD, done[stage, Op.FORWARD]),
            (Op.BACKWARD, whole | halves),
            (Op.WEIGHT_GRADIENT, whole | done[stage, Op.WEIGHT_GRADIENT]),
        ):
            if ran != entering or whole & (halves | done[stage, Op.WEIGHT_GRADIENT]):
                raise InvalidValueError(
                    "plan.actions",
                    f"stage {stage}: {name} of micro-batches {sorted(ran)}",
                    f"F, and either B or I and W, once for each of {sorted(entering)}",
                )


def _require_matching_messages(plan: Plan) -> None:
    """Every result that leaves its rank is sent and received once, and in the same order at both ends."""
    wiring = Wiring(plan.pipeline)
    expected: set[StageAction] = set()
    found: set[StageAction] = set()
    sent: dict[tuple[int, int], list[StageAction]] = defaultdict(list)
    received: dict[tuple[int, int], list[StageAction]] = defaultdict(list)
    for rank, actions in enumerate(plan.actions):
        for action in actions:
            if action.op.computes:
                expected.update(each for each in (wiring.sends(action), wiring.awaits(action)) if each)
                continue
            found.add(action)
            if (receive := wiring.receives(action)) is not None:
                sent[rank, wiring.rank[receive.stage]].append(receive)
            elif (source := wiring.source(action)) is not None:
                received[wiring.rank[source], rank].append(action)
    for missing in sorted(expected - found):
        raise InvalidValueError(
            "plan.actions", f"no {missing}", "a send and a receive for all that leaves a rank"
        )
    for needless in sorted(found - expected):
        raise InvalidValueError("plan.actions", str(needless), "messages of what leaves a rank, and no other")
    for (source, target), messages in sent.items():
        for index, (out, into) in enumerate(zip(messages, received[source, target], strict=True)):
            if out != into:
                raise InvalidValueError(
                    "plan.actions",
                    f"message {index} from rank {source} is for {out}, but rank {target} posts {into}",
                    "receives in the order in which they are sent",
                )


def _require_progress(plan: Plan) -> None:
    """Run every rank as far as it gets, times aside; who is stuck then waits in a cycle, or for nothing at all."""
    needs = _Needs(plan)
    done: set[StageAction] = set()
    position = [0] * len(plan.actions)
    waiting: dict[StageAction, int] = {}
    runnable = list(range(len(plan.actions)))
    while runnable:
        rank = runnable.pop()
        actions = plan.actions[rank]
        while position[rank] < len(actions):
            action = actions[position[rank]]
            missing = needs.first_missing(action, done)
            if missing is not None:
                waiting[missing] = rank
                break
            done.add(action)
            position[rank] += 1
            if action in waiting:
                runnable.append(waiting.pop(action))
    if waiting:
        raise CyclicPlanError(_cycle(plan, waiting, position))


class _Needs:
    """What must have run before an action: on its own rank or, through a message, on another."""

    def __init__(self, plan: Plan) -> None:
        self._wiring = Wiring(plan.pipeline)
        self._sender: dict[StageAction, StageAction] = {}
        self._computes: dict[tuple[int, bool, int], StageAction] = {}  # by stage, backward, micro-batch
        for action in (action for actions in plan.actions for action in actions):
            if (receive := self._wiring.receives(action)) is not None:
                self._sender[receive] = action
            if action.op is Op.FORWARD or action.op.passes_gradient_back:
                self._computes[action.stage, action.op is not Op.FORWARD, action.micro_batch] = action

    def first_missing(self, action: StageAction, done: set[StageAction]) -> StageAction | None:
        """A need that has not run."""
        return next((need for need in self._of(action) if need not in done), None)

    def _of(self, action: StageAction) -> list[StageAction]:
        stage, op, micro_batch = action
        if op in RECEIVES:
            return []
        if op in SENDS:
            return [self._computes[stage, op is Op.SEND_BACKWARD, micro_batch]]
        if op is Op.WEIGHT_GRADIENT:
            return [StageAction(stage, Op.INPUT_GRADIENT, micro_batch)]
        needs = [] if op is Op.FORWARD else [StageAction(stage, Op.FORWARD, micro_batch)]
        receive = self._wiring.awaits(action)
        if receive is not None:
            return [*needs, receive, self._sender[receive]]
        source = self._wiring.source(action)
        return (
            needs if source is None else [*needs, self._computes[source, op is not Op.FORWARD, micro_batch]]
        )


def _cycle(
    plan: Plan, waiting: dict[StageAction, int], position: Sequence[int]
) -> list[tuple[int, StageAction, StageAction]]:
    """From a stuck rank to the one that runs what it waits for, until one comes again."""
    need_of = {rank: need for need, rank in waiting.items()}
    wiring = Wiring(plan.pipeline)
    path: list[int] = []
    rank = min(need_of)
    while rank not in path:
        path.append(rank)
        rank = wiring.rank[need_of[rank].stage]
    return [(each, plan.actions[each][position[each]], need_of[each]) for each in path[path.index(rank) :]]
