"""What a worker tells of itself: its report lines, what torch's errors mean, and what a device sustains."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch

from agents.protocol import WorkerModel
from agents.worker.busy import BusyMeter
from agents.worker.causes import Cause
from agents.worker.executor.rules.drift import DriftError
from agents.worker.executor.rules.rollback import NotFiniteError
from agents.worker.failures import known_end
from agents.worker.model import Block
from agents.worker.probe import LAYERS, SHAPES, layer_flops, measure
from agents.worker.progress import Report


def wrapped(cause: BaseException) -> RuntimeError:
    error = RuntimeError("[Stage 1] failed to run forward")
    error.__cause__ = cause
    return error


@pytest.mark.parametrize(
    ("error", "cause"),
    [
        (RuntimeError("[…/gloo/transport/tcp/pair.cc:534] Connection closed by peer [127.0.0.1]:1"), Cause.PEER_LOST),
        (RuntimeError("Application timeout caused pair closure"), Cause.PEER_LOST),
        (RuntimeError("[…/gloo/…/unbound_buffer.cc:78] Timed out waiting 2000ms for recv"), Cause.PEER_LOST),
        (torch.distributed.DistNetworkError("recvValue failed"), Cause.PEER_LOST),
        (wrapped(torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2 GiB")), Cause.OUT_OF_MEMORY),
        (RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried to allocate 9 bytes"),
         Cause.OUT_OF_MEMORY),
        (MemoryError(), Cause.OUT_OF_MEMORY),
        (DriftError("2 updates between the forward and the backward of micro-batch 3"), Cause.DRIFTED),
        (NotFiniteError("gradients are not finite for the 13th update in a row"), Cause.DIVERGED),
        (ZeroDivisionError("division by zero"), None),
        (RuntimeError("mat1 and mat2 shapes cannot be multiplied"), None),
    ],
)  # fmt: skip
def test_errors_have_the_cause_they_stand_for(error: BaseException, cause: Cause | None) -> None:
    end = known_end(error)

    assert (end.cause if end else None) == cause


def test_report_lines_are_appended_one_object_each(tmp_path: Path) -> None:
    path = tmp_path / "report.jsonl"
    path.write_text('{"kind": "ready"}\n')
    report = Report(str(path))
    report.step(3, float("nan"), 0.5, 2048, grad_norm=1.5, compute_s=0.3, send_s=None)
    report.checkpoint(3, "file:///c/step-00000003")
    report.end(Cause.STOPPED, "x" * 10_000)

    lines = [json.loads(line) for line in path.read_text().splitlines()]
    assert [line["kind"] for line in lines] == ["ready", "step", "checkpoint", "end"]
    assert {key: value for key, value in lines[1].items() if key not in ("loss", "at_s")} == {
        "kind": "step", "step": 3, "step_time_s": 0.5, "tokens": 2048, "grad_norm": 1.5, "compute_s": 0.3,
    }  # fmt: skip
    assert lines[3]["cause"] == "stopped"
    assert len(lines[3]["detail"]) == 4096, "as long as the wire takes"


def test_the_busy_fraction_is_computing_over_time_passed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    now_s = 1000.0
    monkeypatch.setattr("agents.worker.busy.time.time", lambda: now_s)
    monkeypatch.setattr("agents.worker.busy.time.perf_counter", lambda: now_s)
    path = tmp_path / "report.jsonl"
    meter, report = BusyMeter(torch.device("cpu")), Report(str(path))
    with meter.computing():
        now_s += 1.5
    now_s += 1.5
    meter.report_to(report)
    assert path.read_text() == "", "not yet: reports are some seconds apart"
    now_s += 3.0
    meter.report_to(report)

    assert json.loads(path.read_text()) == {
        "kind": "busy", "from_s": 1000.0, "to_s": 1006.0, "busy_fraction": 0.25,
    }  # fmt: skip


def test_a_step_of_an_optimizer_counts_as_computing_whoever_asks_for_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    now_s = 1000.0
    monkeypatch.setattr("agents.worker.busy.time.time", lambda: now_s)
    monkeypatch.setattr("agents.worker.busy.time.perf_counter", lambda: now_s)

    class Slow(torch.optim.SGD):
        def step(self, closure: object = None) -> None:
            nonlocal now_s
            now_s += 2.0

    path = tmp_path / "report.jsonl"
    meter, report = BusyMeter(torch.device("cpu")), Report(str(path))
    optimizer = Slow([torch.nn.Parameter(torch.ones(1))])
    meter.count_steps(optimizer)
    for _ in range(2):
        optimizer.step()
        now_s += 3.0
    meter.report_to(report)

    assert json.loads(path.read_text())["busy_fraction"] == 0.4


def test_flops_are_counted_as_the_planner_counts_them() -> None:
    model = WorkerModel(layers=2, hidden=8, heads=2, kv_heads=2, head_dim=4, ffn=12, vocab=256, seq_len=10)
    layers = torch.nn.Sequential(*(Block(model, "none", torch.float32) for _ in range(LAYERS)))
    matrices_and_norms = LAYERS * (4 * 8 * 8 + 3 * 8 * 12 + 2 * 8)

    assert layer_flops(model, layers) == 10 * (6 * matrices_and_norms + 12 * LAYERS * 8 * 10)


def test_the_probe_tells_what_it_measured() -> None:
    sustained = measure("cpu", 0.1)
    shape = SHAPES["cpu"]
    layers = torch.nn.Sequential(*(Block(shape.model, "none", shape.stream_dtype) for _ in range(LAYERS)))
    took_s = sustained.forward_s + sustained.backward_s

    assert sustained.sustained_flops * took_s == pytest.approx(
        layer_flops(shape.model, layers) * shape.micro_batch
    )
    assert 0 < sustained.forward_s < sustained.backward_s
    assert 1e8 < sustained.sustained_flops < 1e13
