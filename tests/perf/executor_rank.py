"""One rank of a pipeline that is timed, as a script: STUDY is `throughput` or `jitter`; RESULT is a file.

`throughput` takes turns between torch's Schedule1F1B, torch's runtime and our executor, on the same model; LATENCY_S is
one way, of every message. NAMESPACES are those of a test bed, one a rank (KEEPER:REGION). `jitter` runs a fixed order
and hints whose computations are sleeps.
"""

from __future__ import annotations

import json
import math
import os
import random
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.pipelining import Schedule1F1B, schedules

from agents.protocol import WorkerOrder
from agents.worker.busy import BusyMeter
from agents.worker.codec.stage import message_example
from agents.worker.data import load_corpus
from agents.worker.executor.assembly import on_ours, on_torch
from agents.worker.executor.from_wire import rank_plan
from agents.worker.executor.messages import Messages, Tensors
from agents.worker.executor.pipeline import PipelineExecutor
from agents.worker.executor.rank_plan import Action, Op
from agents.worker.executor.rules.choice import RuleChoice, weight_rule
from agents.worker.executor.stage_work import StageWork
from agents.worker.gang import Gang, join
from agents.worker.model import cross_entropy
from agents.worker.schedule import pipeline_stage
from agents.worker.settings import Settings, read_settings
from agents.worker.trained_stage import TrainedStage
from service.cli.testbed.namespaces import Namespace
from tests.delayed_messages import DelayedGroup, Postman
from tests.given_steps import one_step

Step = Callable[[], object]
SIGMA = 0.5
FORWARD_S = 0.04


def timed_s(gang: Gang, step: Step, times: int) -> tuple[float, float]:
    """Seconds an iteration of all ranks together, and how long this rank's processor works for it."""
    gang.barrier()
    begin_s, begin_cpu_s = time.perf_counter(), time.process_time()
    for _ in range(times):
        step()
    cpu_s = time.process_time() - begin_cpu_s
    gang.barrier()
    return (time.perf_counter() - begin_s) / times, cpu_s / times


def throughput(settings: Settings, gang: Gang, latency_s: float) -> dict[str, list[tuple[float, float]]]:
    """Of every way to run the plan, the seconds an iteration in each of its turns."""
    plan, place = settings.plan, settings.rank_plan
    corpus = load_corpus(plan.corpus, plan.model.seq_len)
    sequences = plan.micro_batch * plan.micro_batches
    inputs, targets = corpus.batch(plan.seed, 1, 0, sequences, plan.model.seq_len)
    given = (inputs if place.has_first else None, targets if place.has_last else None)
    wide = [min(cap + 2, plan.micro_batches) for cap in plan.window]
    wider = replace(settings, rank_plan=replace(place, binding="hint", caps=tuple(wide)))
    ours = gang
    if latency_s:
        postman = Postman(lambda: latency_s)
        ours = replace(gang, pipeline=DelayedGroup(gang.pipeline, postman))  # type: ignore[arg-type]
        delay_torch(postman)
    ways: dict[str, Step] = {
        "torch Schedule1F1B": schedule_1f1b(settings, gang, *given),
        "torch's runtime": on_torch_step(settings, gang, *given),
        "ours, strict": own_step(settings, ours, *given),
        "ours, hint, cap + 2": own_step(wider, ours, *given),
    }
    for step in ways.values():
        step()
    found: dict[str, list[tuple[float, float]]] = {name: [] for name in ways}
    for _ in range(int(os.environ["TURNS"])):
        for name, step in ways.items():
            found[name].append(timed_s(gang, step, 2))
    return found


def delay_torch(postman: Postman) -> None:
    """Let the sends of torch's schedules go through the postman as well."""

    def batch(ops: list[dist.P2POp], desc: str | None = None) -> list[object]:
        works: list[object] = []
        for each in ops:
            peer = {"group_dst" if each.op is dist.isend else "group_src": each.group_peer}

            def begin(each: dist.P2POp = each, peer: dict[str, int] = peer) -> object:
                return each.op(each.tensor, group=each.group, tag=each.tag, **peer)

            works.append(postman.post(begin) if each.op is dist.isend else begin())
        return works

    schedules._batch_p2p = batch


def stages_of(settings: Settings, gang: Gang) -> list[TrainedStage]:
    return [TrainedStage.of(settings.plan, index, gang.device) for index in settings.rank_plan.stages]


def own_step(settings: Settings, gang: Gang, inputs: Tensor | None, targets: Tensor | None) -> Step:
    executor = on_ours(settings, gang, stages_of(settings, gang), BusyMeter(gang.device), None)
    return lambda: one_step(executor, inputs, targets)


def on_torch_step(settings: Settings, gang: Gang, inputs: Tensor | None, targets: Tensor | None) -> Step:
    executor = on_torch(settings, gang, stages_of(settings, gang), BusyMeter(gang.device), None)
    return lambda: one_step(executor, inputs, targets)


def schedule_1f1b(settings: Settings, gang: Gang, inputs: Tensor | None, targets: Tensor | None) -> Step:
    plan = settings.plan
    (stage,) = stages_of(settings, gang)
    tokens = torch.zeros(plan.micro_batch, plan.model.seq_len, dtype=torch.int64)
    takes = (tokens,) if stage.index == 0 else message_example(plan, stage.index - 1, gang.device)
    gives = message_example(plan, stage.index, gang.device)
    count = len(plan.layers_per_stage)
    where = (takes, gives, gang.pipeline, BusyMeter(gang.device))
    schedule = Schedule1F1B(
        pipeline_stage(stage.module, stage.index, count, *where), plan.micro_batches, cross_entropy
    )

    def step() -> None:
        losses: list[Tensor] | None = None if targets is None else []
        args = () if inputs is None else (inputs,)
        schedule.step(*args, target=targets, losses=losses, return_outputs=False)
        stage.optimizer.step()
        stage.optimizer.zero_grad()

    return step


class SleepingWork(StageWork):
    """A stage whose computations take log-normal time: a mean forward FORWARD_S, I and W as much each."""

    def __init__(self, stage: int, module: nn.Module, *how: object) -> None:
        super().__init__(module, *how)  # type: ignore[arg-type]
        self._stage, self.seed = stage, 0

    def _sleep(self, op: Op, micro_batch: int) -> None:
        draw = random.Random(f"{self.seed}/{Action(self._stage, op, micro_batch)}")
        time.sleep(FORWARD_S * math.exp(draw.normalvariate(-SIGMA * SIGMA / 2, SIGMA)))

    def forward(self, micro_batch: int, inputs: Tensors, target: Tensor | None) -> Tensors:
        self._sleep("F", micro_batch)
        return super().forward(micro_batch, inputs, target)

    def input_gradient(self, micro_batch: int, gradients: Tensors | None) -> Tensors:
        self._sleep("I", micro_batch)
        return super().input_gradient(micro_batch, gradients)

    def weight_gradient(self, micro_batch: int) -> None:
        self._sleep("W", micro_batch)
        super().weight_gradient(micro_batch)


def jitter(settings: Settings, gang: Gang, latency_s: float) -> dict[str, list[tuple[float, float]]]:
    """Seconds an iteration for each seed, of the fixed order and of hints, whole and split."""
    orders = {name: WorkerOrder(**order) for name, order in json.loads(os.environ["ORDERS"]).items()}
    if latency_s:
        delayed = DelayedGroup(gang.pipeline, Postman(lambda: latency_s))
        gang = replace(gang, pipeline=delayed)  # type: ignore[arg-type]
    more = 2 * settings.place.stages
    wide = [cap + more for cap in settings.plan.window]
    ways = {
        "fixed 1F1B": own_sleeping(settings, gang, orders["1f1b"], "strict", settings.plan.window),
        "hint, same cap": own_sleeping(settings, gang, orders["1f1b"], "hint", settings.plan.window),
        "hint, cap + 2P": own_sleeping(settings, gang, orders["1f1b"], "hint", wide),
        "hint, W as filler, cap + 2P": own_sleeping(settings, gang, orders["zb-h1"], "hint", wide),
    }
    found: dict[str, list[tuple[float, float]]] = {name: [] for name in ways}
    for seed in range(int(os.environ["TURNS"])):
        for name, (works, step) in ways.items():
            for work in works:
                work.seed = seed
            found[name].append(timed_s(gang, step, 1))
    return found


def own_sleeping(
    settings: Settings, gang: Gang, order: WorkerOrder, binding: str, window: list[int]
) -> tuple[list[SleepingWork], Step]:
    plan = settings.plan.model_copy(update={"order": order, "binding": binding, "window": window})
    place = rank_plan(plan, settings.place.stage, settings.place.stages)
    works = {}
    for stage in stages_of(settings, gang):
        rule = weight_rule(
            RuleChoice("flush"),
            [layer for _, layer in stage.module.named_layers()],
            stage.optimizer,
            gang.average,
            micro_batches=plan.micro_batches,
            in_flight=place.caps[stage.index],
        )
        loss = cross_entropy if place.has_last else None
        meter = BusyMeter(gang.device)
        works[stage.index] = SleepingWork(stage.index, stage.module, loss, rule, meter)
    given = {
        index: message_example(plan, index, gang.device)
        for stage in place.stages
        for index in (stage - 1, stage)
        if 0 <= index < place.last_stage
    }
    executor = PipelineExecutor(place, works, Messages(gang.pipeline, place, given), None, meter)
    tokens = torch.zeros(plan.micro_batch * plan.micro_batches, plan.model.seq_len, dtype=torch.int64)
    inputs, targets = tokens if place.has_first else None, tokens if place.has_last else None
    return list(works.values()), lambda: one_step(executor, inputs, targets)


def main() -> None:
    torch.set_num_threads(1)
    if names := os.environ.get("NAMESPACES", "").split():
        keeper, region = names[int(os.environ["RANK"])].split(":")
        Namespace(int(keeper), region).enter()
        del os.environ["GLOO_SOCKET_IFNAME"]
    settings = read_settings(os.environ)
    gang = join(settings.place, 120.0, 120.0)
    study = {"throughput": throughput, "jitter": jitter}[os.environ["STUDY"]]
    found = study(settings, gang, float(os.environ["LATENCY_S"]))
    Path(os.environ["RESULT"]).write_text(json.dumps(found))
    gang.barrier()
    os._exit(0)


main()
