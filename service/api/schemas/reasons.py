"""Why a job waits, failed, or never can run."""

from __future__ import annotations

from service.api.schemas.base import Answer, example

REASON = {
    "code": "LinkBandwidthExhausted",
    "detail": "eu-west→eu-north has 31 Gbps left, a cut needs 40 Gbps",
    "region": None,
    "link": ["eu-west", "eu-north"],
    "needed": 40e9,
    "available": 31e9,
}


class Reason(Answer):
    """One cause. `needed` and `available` are in the unit that the code implies (GPUs, bit/s, bytes)."""

    model_config = example(REASON)

    code: str
    detail: str
    region: str | None = None
    link: tuple[str, str] | None = None
    needed: float | None = None
    available: float | None = None
    stage: int | None = None
    """Of a failure: the stage where it showed."""
    last_lines: tuple[str, ...] = ()
    """Of a failure: the last lines of that stage's log."""
