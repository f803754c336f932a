"""How long training stands still for a checkpoint: copied and written behind its back, against written in its way."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

import pytest

TIMES = 5


@dataclass
class _Alone:
    """A gang of one."""

    store: object

    def barrier(self) -> None:
        return


def _seconds(work: Callable[[], object]) -> float:
    begin_s = time.perf_counter()
    work()
    return time.perf_counter() - begin_s


@pytest.mark.perf
@pytest.mark.parametrize(("layers", "hidden"), [(2, 384), (4, 768)])
def test_training_stands_still_for_the_copy_alone(tmp_path: Path, layers: int, hidden: int) -> None:
    import torch
    from torch.distributed import PrefixStore, TCPStore

    from agents.protocol import WorkerModel, WorkerPlan
    from agents.worker.checkpoint.folder import CheckpointFolder
    from agents.worker.checkpoint.writer import CheckpointWriter
    from agents.worker.progress import Report
    from agents.worker.settings import read_settings
    from agents.worker.trained_stage import TrainedStage

    torch.set_num_threads(1)
    model = WorkerModel(
        layers=layers, hidden=hidden, heads=6, kv_heads=6, head_dim=hidden // 6, ffn=8 * hidden // 3, vocab=256,
        seq_len=8,
    )  # fmt: skip
    plan = WorkerPlan(
        model=model, steps=100, micro_batch=1, micro_batches=1, dtype="fp32", recompute="none",
        layers_per_stage=[layers], window=[1], learning_rate=0.01, seed=0, checkpoint_uri=tmp_path.as_uri(),
        checkpoint_every=1,
    )  # fmt: skip
    place = {
        "RANK": 0,
        "WORLD_SIZE": 1,
        "BACE_STAGE": 0,
        "BACE_STAGES": 1,
        "MASTER_ADDR": "x",
        "MASTER_PORT": 1,
    }
    settings = read_settings(
        {"BACE_PLAN": plan.model_dump_json()} | {name: str(value) for name, value in place.items()}
    )
    stage = TrainedStage.of(plan, 0, torch.device("cpu"))
    stage.module(torch.zeros(1, 8, dtype=torch.int64)).sum().backward()
    stage.optimizer.step()
    folder = CheckpointFolder(settings.checkpoints, "alone")
    alone: Any = _Alone(PrefixStore("alone", TCPStore("127.0.0.1", 0, is_master=True)))
    writer = CheckpointWriter(settings, alone, folder, "digest", Report(None))
    in_its_way, behind = [], []
    for number in range(TIMES):
        step = 2 * number + 1
        in_its_way.append(
            _seconds(
                lambda step=step: folder.publish(
                    plan, step, "digest", folder.write(step, stage.checkpoint_tensors())
                )
            )
        )
        behind.append(_seconds(lambda step=step: writer.save(step + 1, stage.checkpoint_tensors())))
        writer.finish()
    size = sum(each.nbytes for file in stage.checkpoint_tensors().values() for each in file.values())
    first_s, *later_s = behind
    print(
        f"\n{size / 1e6:.0f} MB: in its way {median(in_its_way):.3f} s; behind {median(later_s):.3f} s "
        f"(the first, which allocates the copy, {first_s:.3f} s)"
    )
    assert median(later_s) < median(in_its_way)
