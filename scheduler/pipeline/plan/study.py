"""What schedules come to on many random pipelines: the tables of docs/pipelines.md.

    python -m scheduler.pipeline.plan.study auto --pipelines 1000

The pipelines have K 2–32 stages of 0.7–1.3 s forward, backward 1.5–2.5 times that, half of it W; 0–4 cuts, latency
0.01–20 s and transfer 0.01–5 s, log-uniform; M/K from 1 to 8.
"""

from __future__ import annotations

import argparse
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from statistics import fmean

import numpy as np

from scheduler.job import Schedule
from scheduler.pipeline.plan.auto import Fastest, SplitChain, fastest, fastest_window, lagged_makespan_s
from scheduler.pipeline.schedules import fits, slack_window, strict_window
from scheduler.pipeline.timeline import Chain, simulate

SEED = 1
MEMORIES: dict[str, Callable[[int, np.random.Generator], tuple[int, ...]]] = {
    "K": lambda stages, _: (stages,) * stages,
    "K − s … 2K": lambda stages, rng: tuple(
        int(rng.integers(stages - s, 2 * stages + 1)) for s in range(stages)
    ),
    "2K": lambda stages, _: (2 * stages,) * stages,
}
"""How many micro-batches each stage can hold: what the first stage of strict 1F1B needs; from its own need to twice
the first's; twice the first's."""


@dataclass(frozen=True, slots=True)
class Drawn:
    """A random pipeline with what it can hold, and how long published schedules take on it, seconds."""

    split: SplitChain
    micro_batches: int

    @property
    def strict_s(self) -> float:
        """Of strict 1F1B."""
        return self._window_s(strict_window(self.split.chain.stages, self.micro_batches))

    def published_s(self) -> Iterator[float]:
        """Of strict 1F1B, and of slack 1F1B and ZB-H1 where the memory holds them."""
        yield self.strict_s
        chain = self.split.chain
        slack = slack_window(chain.delay_s, chain.pace_s, self.micro_batches)
        if fits(slack, self.split.limits):
            yield self._window_s(slack)
        strict = strict_window(chain.stages, self.micro_batches)
        lag = tuple(strict[0] - cap for cap in strict)
        if fits((strict[0],) * chain.stages, self.split.limits):
            yield lagged_makespan_s(self.split, strict, lag, self.micro_batches)

    def _window_s(self, window: tuple[int, ...]) -> float:
        return simulate(self.split.chain, window, self.micro_batches).makespan_s


def draw(count: int, seed: int, memory: str, most_stages: int = 32) -> Iterator[Drawn]:
    """So many of the family above; `memory` is a key of `MEMORIES`."""
    rng = np.random.default_rng(seed)
    for _ in range(count):
        stages = int(rng.integers(2, most_stages + 1))
        forward = rng.uniform(0.7, 1.3, stages)
        backward = forward * rng.uniform(1.5, 2.5, stages)
        latency, transfer = np.zeros(stages - 1), np.zeros(stages - 1)
        cuts = rng.choice(stages - 1, min(stages - 1, int(rng.integers(0, 5))), replace=False)
        latency[cuts] = np.exp(rng.uniform(np.log(0.01), np.log(20), cuts.size))
        transfer[cuts] = np.exp(rng.uniform(np.log(0.01), np.log(5), cuts.size))
        micro_batches = int(rng.integers(stages, 8 * stages + 1))
        chain = Chain(*(tuple(each.tolist()) for each in (forward, backward, latency, transfer)))
        weight_s = tuple((backward / 2).tolist())
        yield Drawn(SplitChain(chain, weight_s, MEMORIES[memory](stages, rng)), micro_batches)


@dataclass(frozen=True, slots=True)
class Outcome:
    """`auto` over strict 1F1B, mean and worst; its worst over the best that is published and fits; what it came to."""

    mean: float
    worst: float
    worst_over_published: float
    came_to: Counter[Schedule]

    @classmethod
    def of(cls, drawn: Sequence[Drawn], choose: Callable[[SplitChain, int], Fastest]) -> Outcome:
        """Of a way to choose."""
        found = [choose(each.split, each.micro_batches) for each in drawn]
        times = [(one.makespan_s, each) for one, each in zip(found, drawn, strict=True)]
        over_strict = [time_s / each.strict_s for time_s, each in times]
        over_published = max(time_s / min(each.published_s()) for time_s, each in times)
        return cls(
            fmean(over_strict), max(over_strict), over_published, Counter(one.schedule for one in found)
        )


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(prog="python -m scheduler.pipeline.plan.study")
    parser.add_argument("what", choices=["auto"])
    parser.add_argument("--pipelines", type=int, default=1000, help="of each memory")
    asked = parser.parse_args()
    print(
        "| room for | candidates | over strict 1F1B: mean | worst | over the best published: worst | came to |"
    )
    print("|---|---|---|---|---|---|")
    for memory in MEMORIES:
        drawn = list(draw(asked.pipelines, SEED, memory))
        for name, choose in (("windows and lags", fastest_window), ("all", fastest)):
            made = Outcome.of(drawn, choose)
            came_to = ", ".join(f"{each.value} {count}" for each, count in made.came_to.most_common())
            print(
                f"| {memory} | {name} | {made.mean:.3f} | {made.worst:.3f} | {made.worst_over_published:.3f} "
                f"| {came_to} |",
                flush=True,
            )


if __name__ == "__main__":
    main()
