"""One rank of a pipeline on a given executor, as a script: writes down what it computed, and what came of it.

Takes a worker's environment, and: EXECUTOR (torch | ours), RESULT (a file), MESSAGE_DELAY_S (the most that a message
is held back, drawn for each).
"""

from __future__ import annotations

import json
import os
import random
from dataclasses import replace
from pathlib import Path

import torch

from agents.worker.busy import BusyMeter
from agents.worker.data import load_corpus
from agents.worker.executor.assembly import on_ours, on_torch
from agents.worker.gang import join
from agents.worker.settings import read_settings
from agents.worker.trained_stage import TrainedStage
from tests.delayed_messages import DelayedGroup, Postman
from tests.given_steps import one_step


def main() -> None:
    torch.set_num_threads(1)
    settings = read_settings(os.environ)
    plan, rank_plan, place = settings.plan, settings.rank_plan, settings.place
    gang = join(place, 60.0, 60.0)
    stages = [TrainedStage.of(plan, index, gang.device) for index in rank_plan.stages]
    gradients: list[dict[str, list[float]]] = []

    def keep(stage: TrainedStage) -> None:
        gradients.append(
            {
                f"{stage.index}.{name}": parameter.grad.flatten().tolist()
                for name, parameter in stage.module.named_parameters()
                if parameter.grad is not None
            }
        )

    for stage in stages:
        stage.optimizer.register_step_pre_hook(lambda *_, stage=stage: keep(stage))
    most_s = float(os.environ["MESSAGE_DELAY_S"])
    if most_s:
        rng = random.Random(place.rank)
        delayed = DelayedGroup(gang.pipeline, Postman(lambda: rng.uniform(0, most_s)))
        gang = replace(gang, pipeline=delayed)  # type: ignore[arg-type]
    make = {"torch": on_torch, "ours": on_ours}[os.environ["EXECUTOR"]]
    executor = make(settings, gang, stages, BusyMeter(gang.device), None)
    corpus = load_corpus(plan.corpus, plan.model.seq_len)
    losses, traces = [], []
    for step in range(1, plan.steps + 1):
        sequences = plan.micro_batch * plan.micro_batches
        inputs, targets = corpus.batch(plan.seed, step, 0, sequences, plan.model.seq_len)
        given = one_step(
            executor, inputs if rank_plan.has_first else None, targets if rank_plan.has_last else None
        )
        losses.append([loss.item() for loss in given])
        traces.append([str(action) for action in executor.trace])
    gang.barrier()
    found = {"losses": losses, "traces": traces, "gradients": gradients}
    Path(os.environ["RESULT"]).write_text(json.dumps(found))
    os._exit(0)  # as a worker does: without waiting for gloo's threads


main()
