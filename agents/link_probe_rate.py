"""From bytes that arrived to a bandwidth: what the link carried once it was full."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field

SAMPLE_S = 0.005
LEAST_LEFT_OUT = 1 / 3
"""Of the time of the streams, at their beginning: slow start, and what a shaper lets through at once."""
LEAST_WINDOW_S = 0.25
"""A rate over a shorter time tells only what the link carries at least."""
LEAST_TIME_S = 0.02
"""Over a shorter time there is no rate at all."""


class Received(BaseModel):
    """What the listener tells of the streams."""

    model_config = ConfigDict(frozen=True, extra="forbid")
    received_bytes: Annotated[int, Field(ge=0, le=2**53)]
    bandwidth_bps: Annotated[float, Field(gt=0, le=1e15)] | None
    is_floor: bool


class Arrivals:
    """Bytes over time, all streams together."""

    def __init__(self, clock_s: Callable[[], float]) -> None:
        self._clock_s = clock_s
        self._times_s: list[float] = []
        self._bytes: list[int] = []
        """What had arrived by then."""
        self._is_whole = True
        self.total_bytes = 0

    def add(self, count: int) -> None:
        """So many bytes have just arrived."""
        self.total_bytes += count
        now_s = self._clock_s()
        if self._is_whole and (not self._times_s or now_s - self._times_s[-1] >= SAMPLE_S):
            self._times_s.append(now_s)
            self._bytes.append(self.total_bytes)

    def one_has_ended(self) -> None:
        """A stream is over. What comes after the first end is no longer what all of them carried."""
        self._is_whole = False

    def told(self, left_out_s: float) -> dict[str, object]:
        """`Received`, as plain values: the rate after the first `left_out_s`, and after the first third at least."""
        bandwidth_bps, is_floor = self._rate(left_out_s)
        return Received(
            received_bytes=self.total_bytes, bandwidth_bps=bandwidth_bps, is_floor=is_floor
        ).model_dump()

    def _rate(self, left_out_s: float) -> tuple[float | None, bool]:
        took_s = self._times_s[-1] - self._times_s[0] if self._times_s else 0.0
        if took_s < LEAST_TIME_S:
            return None, True
        left_out_s = max(left_out_s, LEAST_LEFT_OUT * took_s)
        is_floor = took_s - left_out_s < LEAST_WINDOW_S
        if is_floor:
            left_out_s = LEAST_LEFT_OUT * took_s
        first = min(bisect_left(self._times_s, self._times_s[0] + left_out_s), len(self._times_s) - 2)
        arrived = self._bytes[-1] - self._bytes[first]
        window_s = self._times_s[-1] - self._times_s[first]
        return (8.0 * arrived / window_s if arrived else None), is_floor
