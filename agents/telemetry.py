"""Reads what a worker reports (BACE_REPORT): JSON lines, from the byte that was read before.

A worker's file is not to be trusted: a line that cannot be meant is counted and left out, never a reason to
stop reading. A line is read when it has its end; what is left at the end of the process is read without.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter

from agents.protocol import BusyReport, CheckpointReport, Counter, Report, Seconds, StepReport
from agents.text import fit
from agents.workdir import ProcessFolder

READ_BYTES = 512 * 1024
CAUSE_CHARACTERS = 64


class Line(BaseModel):
    """A line of a report file. Fields that we do not know are the worker's own business."""

    model_config = ConfigDict(frozen=True, extra="ignore")


class ReadyLine(Line):
    """The worker has joined its gang."""

    kind: Literal["ready"]


class StepLine(Line):
    """A training step is done."""

    kind: Literal["step"]
    step: Annotated[int, Field(ge=1, le=2**53)]
    loss: float
    step_time_s: Seconds
    tokens: Counter = 0
    grad_norm: float | None = None
    compute_s: Seconds | None = None
    send_s: Seconds | None = None
    drift: Counter | None = None
    drift_bound: Counter | None = None
    rolled_back: Counter | None = None
    at_s: Seconds | None = None


class CheckpointLine(Line):
    """A checkpoint is complete."""

    kind: Literal["checkpoint"]
    step: Counter
    uri: Annotated[str, Field(max_length=4096)]
    at_s: Seconds | None = None


class CheckpointDamagedLine(Line):
    """A checkpoint was left out: its log tells people so."""

    kind: Literal["checkpoint-damaged"]


class BusyLine(Line):
    """How busy the worker was since it last said so."""

    kind: Literal["busy"]
    from_s: Seconds
    to_s: Seconds
    busy_fraction: Annotated[float, Field(ge=0, le=1)]


class EndLine(Line):
    """Why the worker is about to end."""

    kind: Literal["end"]
    cause: str
    detail: str | None = None


_LINE: TypeAdapter[ReadyLine | StepLine | CheckpointLine | CheckpointDamagedLine | BusyLine | EndLine] = (
    TypeAdapter(
        Annotated[
            ReadyLine | StepLine | CheckpointLine | CheckpointDamagedLine | BusyLine | EndLine,
            Field(discriminator="kind"),
        ]
    )
)


@dataclass(slots=True)
class Telemetry:
    """What was new in a report file, up to byte `offset`."""

    offset: int
    reports: list[Report] = field(default_factory=list)
    ready: bool = False
    cause: str | None = None
    detail: str | None = None
    unreadable_lines: int = 0
    more: bool = False


def read_reports(
    folder: ProcessFolder, key: str, offset: int, next_seq: int, now_s: float, ended: bool
) -> Telemetry:
    """The new lines as reports, numbered from `next_seq`. `now_s` (epoch) stands in where a line has no time."""
    telemetry = Telemetry(offset)
    file = folder.open_report()
    if file is None:
        return telemetry
    with file:
        file.seek(offset)
        data = file.read(READ_BYTES)
    telemetry.more = len(data) == READ_BYTES
    if not ended or telemetry.more:
        whole = data[: data.rfind(b"\n") + 1]
        # A line longer than all that is read at once is left out, piece by piece.
        data = data if telemetry.more and not whole else whole
    telemetry.offset += len(data)
    for line in data.splitlines():
        if line.strip():
            _take(telemetry, line, key, next_seq + len(telemetry.reports), now_s)
    return telemetry


def _take(telemetry: Telemetry, line: bytes, key: str, seq: int, now_s: float) -> None:
    try:
        document = json.loads(line)
        # Texts first: a file name in an error message may hold what is no text at all.
        texts = {name: fit(value) for name, value in document.items() if isinstance(value, str)}
        parsed = _LINE.validate_python({**document, **texts})
    except (ValueError, AttributeError, RecursionError):
        telemetry.unreadable_lines += 1
        return
    match parsed:
        case ReadyLine():
            telemetry.ready = True
        case StepLine():
            telemetry.ready = True
            telemetry.reports.append(
                StepReport(
                    seq=seq,
                    key=key,
                    step=parsed.step,
                    loss=parsed.loss,
                    step_time_s=parsed.step_time_s,
                    tokens=parsed.tokens,
                    grad_norm=parsed.grad_norm,
                    compute_s=parsed.compute_s,
                    send_s=parsed.send_s,
                    drift=parsed.drift,
                    drift_bound=parsed.drift_bound,
                    rolled_back=parsed.rolled_back,
                    at_s=now_s if parsed.at_s is None else parsed.at_s,
                )
            )
        case CheckpointLine():
            at_s = now_s if parsed.at_s is None else parsed.at_s
            telemetry.reports.append(
                CheckpointReport(seq=seq, key=key, step=parsed.step, uri=parsed.uri, at_s=at_s)
            )
        case BusyLine():
            telemetry.reports.append(
                BusyReport(
                    seq=seq,
                    key=key,
                    from_s=parsed.from_s,
                    to_s=parsed.to_s,
                    busy_fraction=parsed.busy_fraction,
                )
            )
        case EndLine():
            telemetry.cause = fit(parsed.cause, CAUSE_CHARACTERS)
            telemetry.detail = parsed.detail
