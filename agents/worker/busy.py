"""How much of the time a process computes: the rest of it waits for its neighbours."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

import torch

from agents.worker.progress import BUSY_EVERY_S, Report


class BusyMeter:
    """Adds up the time spent in `computing()` and reports it as a fraction of the time that passed."""

    def __init__(self, device: torch.device) -> None:
        self._on_gpu = device.type == "cuda"
        self._computed_s = 0.0
        self._events: list[tuple[torch.cuda.Event, torch.cuda.Event]] = []
        self._since_s = time.time()
        self._ended_s = time.perf_counter()

    @contextmanager
    def computing(self) -> Iterator[None]:
        """The body computes. On a GPU it only queues its kernels, so the time is taken on the GPU's clock."""
        if self._on_gpu:
            begin, end = _timestamp(), _timestamp()
            begin.record()
            yield
            end.record()
            self._events.append((begin, end))
        else:
            begin_s = time.perf_counter()
            yield
            self._ended_s = time.perf_counter()
            self._computed_s += self._ended_s - begin_s

    def count_steps(self, optimizer: torch.optim.Optimizer) -> None:
        """Count every step of `optimizer` as computing, whoever asks for it."""
        step = ExitStack()
        optimizer.register_step_pre_hook(lambda *_: step.enter_context(self.computing()))
        optimizer.register_step_post_hook(lambda *_: step.close())

    def start(self) -> None:
        """Forget what was before: the time counts from now."""
        self._computed_s, self._since_s = 0.0, time.time()
        self._events.clear()

    def report_to(self, report: Report, at_once: bool = False) -> None:
        """Report the time since the last report, if that is long ago; to be called between two steps."""
        now_s = time.time()
        passed_s = now_s - self._since_s
        if passed_s < BUSY_EVERY_S and not (at_once and passed_s > 0):
            return
        report.busy(self._since_s, now_s, min(1.0, self.computed_s() / passed_s))
        self.start()

    def computed_s(self) -> float:
        """Seconds of computing since `start` or the last report; waits for what a GPU still has to do."""
        if self._events:
            torch.cuda.synchronize()
            self._computed_s += sum(begin.elapsed_time(end) for begin, end in self._events) / 1e3
            self._events.clear()
        return self._computed_s

    def since_computing_s(self) -> float | None:
        """Seconds since the last computing ended; None on a GPU, where that is not when the host went on."""
        return None if self._on_gpu else time.perf_counter() - self._ended_s


def _timestamp() -> torch.cuda.Event:
    return torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]
