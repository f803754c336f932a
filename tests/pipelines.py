"""Random pipelines on which windows and closed forms are measured, and memories to run them in."""

from __future__ import annotations

import math
import random
from collections.abc import Iterator

from scheduler.pipeline.timeline import Chain

FAMILY = (
    "K 2–32 stages of 0.7–1.3 s forward, backward 1.5–2.5 times that; 0–4 cuts, latency 0.01–20 s and transfer "
    "0.01–5 s, log-uniform; M/K between"
)


def pipelines(
    count: int, seed: int, most_stages: int = 32, rounds: tuple[int, int] = (1, 8)
) -> Iterator[tuple[Chain, int]]:
    """(chain, micro-batches) of FAMILY: a second is a mean forward, `rounds` bounds M/K."""
    rng = random.Random(seed)
    for _ in range(count):
        stages = rng.randint(2, most_stages)
        forward = [rng.uniform(0.7, 1.3) for _ in range(stages)]
        backward = [each * rng.uniform(1.5, 2.5) for each in forward]
        latency, transfer = [0.0] * (stages - 1), [0.0] * (stages - 1)
        for cut in rng.sample(range(stages - 1), min(stages - 1, rng.randint(0, 4))):
            latency[cut] = math.exp(rng.uniform(math.log(0.01), math.log(20)))
            transfer[cut] = math.exp(rng.uniform(math.log(0.01), math.log(5)))
        micro_batches = rng.randint(rounds[0] * stages, rounds[1] * stages)
        yield Chain(tuple(forward), tuple(backward), tuple(latency), tuple(transfer)), micro_batches


def equal_chain(
    forward_s: float, backward_s: float, stages: int, cuts: dict[int, tuple[float, float]]
) -> Chain:
    """Equal stages; `cuts` maps a boundary to its (latency, transfer)."""
    delays = [cuts.get(boundary, (0.0, 0.0)) for boundary in range(stages - 1)]
    return Chain(
        (forward_s,) * stages,
        (backward_s,) * stages,
        tuple(latency for latency, _ in delays),
        tuple(transfer for _, transfer in delays),
    )


def memory_of_1f1b(stages: int) -> tuple[int, ...]:
    """Every GPU holds what the first stage of strict 1F1B needs: K in flight."""
    return (stages,) * stages


def unlike_memory(stages: int, rng: random.Random) -> tuple[int, ...]:
    """A limit for each stage: at least what strict 1F1B needs there, at most twice the first stage's."""
    return tuple(rng.randint(stages - stage, 2 * stages) for stage in range(stages))


def random_window(stages: int, micro_batches: int, rng: random.Random) -> tuple[int, ...]:
    """Any caps that do not grow, some of them above the number of micro-batches."""
    return tuple(sorted((rng.randint(1, micro_batches + 2) for _ in range(stages)), reverse=True))
