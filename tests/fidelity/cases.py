"""What the study runs: pipelines over regions, each with a schedule and links."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

HIDDEN = 256
ELEMENT_BYTES = 4
TWO_A_RANK = ("zb-v", "v-half", "dualpipev", "interleaved")


@dataclass(frozen=True, slots=True)
class Case:
    """One pipeline. `cut`: how many of its ranks stand in each region, in pipeline order."""

    cut: tuple[int, ...]
    schedule: str
    """A window (`1f1b`, `slack-1f1b`, `gpipe`, or the caps of any other: `4,3,3,1`), or an order (`zb-h1`, one of
    `TWO_A_RANK`, or `generated` for the links of the case)."""
    latency_ms: float
    """One way, of every link."""
    mbps: float
    tokens: int = 64
    """Of a micro-batch; a message is tokens × HIDDEN × 4 bytes."""
    micro_batches: int = 12
    forward_ms: tuple[float, ...] = field(default=(20.0,))
    backward_ms: tuple[float, ...] = field(default=(40.0,))
    """Of each rank, or one for all of them; half of a backward is the gradient of the input."""
    every: int | None = None
    """Micro-batches an update of PACI, whose steps run one into the other; None: synchronous."""

    @property
    def ranks(self) -> int:
        return sum(self.cut)

    @property
    def stages(self) -> int:
        """Of `TWO_A_RANK` every rank has two."""
        return self.ranks * (2 if self.schedule in TWO_A_RANK else 1)

    @property
    def regions(self) -> tuple[str, ...]:
        return tuple(f"region-{number}" for number in range(len(self.cut)))

    @property
    def region_of(self) -> tuple[str, ...]:
        """The region of each rank."""
        return tuple(
            region for region, count in zip(self.regions, self.cut, strict=True) for _ in range(count)
        )

    @property
    def message_bytes(self) -> int:
        return self.tokens * HIDDEN * ELEMENT_BYTES

    @property
    def forward_s(self) -> tuple[float, ...]:
        return _of_each(self.forward_ms, self.ranks)

    @property
    def backward_s(self) -> tuple[float, ...]:
        return _of_each(self.backward_ms, self.ranks)


def _of_each(milliseconds: Sequence[float], ranks: int) -> tuple[float, ...]:
    given = tuple(milliseconds) * (ranks if len(milliseconds) == 1 else 1)
    return tuple(each / 1e3 for each in given)


ALONE = Case((1,), "1f1b", 0, 200)
STRICT = Case((1, 1, 1, 1), "1f1b", 60, 200)
SLACK = Case((1, 1, 1, 1), "slack-1f1b", 60, 200)
"""How much faster slack 1F1B is than strict 1F1B is told of these two."""

CASES = (
    # Without a slow link.
    Case((2, 2), "1f1b", 0, 200),
    # One slow link, then one between every two stages.
    Case((2, 2), "1f1b", 20, 200),
    Case((2, 2), "slack-1f1b", 20, 200),
    Case((2, 2), "gpipe", 60, 200),
    STRICT,
    SLACK,
    # Bandwidth: a message takes 26 ms of a link, then 52, nearly as long as a micro-batch of a stage.
    Case((2, 2), "1f1b", 10, 20),
    Case((2, 2), "slack-1f1b", 30, 20, tokens=128),
    # Three regions, two cuts.
    Case((1, 1, 1), "slack-1f1b", 40, 100, tokens=128),
    Case((2, 3, 1), "7,6,5,4,2,1", 25, 100),
    # Unequal stages.
    Case((1, 3), "slack-1f1b", 30, 50, forward_ms=(12, 25, 18, 20), backward_ms=(30, 45, 40, 35)),
    # Two stages, and many.
    Case((1, 1), "slack-1f1b", 50, 50, tokens=128),
    Case((4, 4), "1f1b", 15, 100),
    Case((3, 3, 2), "slack-1f1b", 30, 100),
    # Split backwards.
    Case((2, 2), "zb-h1", 10, 100),
    Case((2, 2), "generated", 40, 50),
    Case((2, 2, 2), "generated", 20, 50),
    # Two stages a rank.
    Case((2, 2), "zb-v", 5, 100),
    Case((2, 2), "v-half", 5, 100),
    Case((2, 2), "dualpipev", 5, 100),
    Case((2, 2), "interleaved", 5, 100),
    # PACI, whose pipeline stays full from step to step.
    Case((1, 1, 1, 1), "1f1b", 20, 200, every=4),
    Case((1, 1, 1, 1), "1f1b", 60, 200, every=4),
    Case((1, 1, 1, 1), "slack-1f1b", 20, 200, every=4),
    Case((1, 1, 1, 1), "slack-1f1b", 60, 200, every=4),
)
