"""The report channel: one JSON object a line, appended to the file that `BACE_REPORT` names."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Mapping
from dataclasses import dataclass

from agents.worker.causes import Cause

BUSY_EVERY_S = 5.0


@dataclass(frozen=True, slots=True)
class Late:
    """How late the weights of a step were, over all stages of a pipeline."""

    drift: int
    """The most updates of a stage between the forward and the backward of a micro-batch, in one step."""
    bound: int
    """The most that there can be: ⌈(cap − 1) / a⌉ of the stage where that is largest."""
    rolled_back: int
    """Updates that stages took back since the workers began."""


class Report:
    """Appends lines. Each is one write to a file opened for appending, so that lines of threads never mix."""

    def __init__(self, path: str | None) -> None:
        """Report to the file `path`; nowhere when it is None (a worker started by hand: its log says the same)."""
        flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT
        self._file = os.open(path if path else os.devnull, flags, 0o600)

    def ready(self) -> None:
        """The gang is complete and connected."""
        self._line({"kind": "ready"})

    def step(
        self,
        step: int,
        loss: float,
        step_time_s: float,
        tokens: int,
        *,
        grad_norm: float | None,
        compute_s: float,
        send_s: float | None,
        late: Late | None = None,
    ) -> None:
        """A training step is over: mean loss over all its `tokens`, and the time it took.

        `grad_norm` is over all stages, before clipping. Of the time this process computed `compute_s`, and spent
        `send_s` at the end until what it had sent was gone; the rest it waited for others.
        `late` is of rules that update within a step.
        """
        parts = {"grad_norm": grad_norm, "compute_s": compute_s, "send_s": send_s}
        if late is not None:
            parts |= {"drift": late.drift, "drift_bound": late.bound, "rolled_back": late.rolled_back}
        self._line(
            {
                "kind": "step",
                "step": step,
                "loss": loss,
                "step_time_s": step_time_s,
                "tokens": tokens,
                **{name: value for name, value in parts.items() if value is not None},
                "at_s": time.time(),
            }
        )

    def checkpoint(self, step: int, uri: str) -> None:
        """The checkpoint at `uri` is complete: training can go on after `step`."""
        self._line({"kind": "checkpoint", "step": step, "uri": uri})

    def checkpoint_damaged(self, step: int, why: str) -> None:
        """The checkpoint of `step` is not what was written; training goes on from one before."""
        self._line({"kind": "checkpoint-damaged", "step": step, "detail": why[:4096]})

    def busy(self, from_s: float, to_s: float, busy_fraction: float) -> None:
        """Share of the time between `from_s` and `to_s` (Unix time) in which this process computed."""
        self._line({"kind": "busy", "from_s": from_s, "to_s": to_s, "busy_fraction": busy_fraction})

    def end(self, cause: Cause, detail: str = "") -> None:
        """The last line of a process."""
        self._line({"kind": "end", "cause": cause.value, "detail": detail[:4096]})

    def _line(self, fields: Mapping[str, object]) -> None:
        os.write(self._file, (json.dumps(fields) + "\n").encode())
