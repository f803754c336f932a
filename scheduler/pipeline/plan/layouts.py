"""Which rank each stage stands on, for the placements that published schedules use."""

from __future__ import annotations

from dataclasses import dataclass

from scheduler.errors import InvalidValueError


@dataclass(frozen=True, slots=True)
class Layout:
    """For each chain of stages the rank of each, in pipeline order. Stages are numbered through the chains."""

    chains: tuple[tuple[int, ...], ...]

    @property
    def stages(self) -> int:
        """Of all chains."""
        return sum(map(len, self.chains))

    @property
    def ranks(self) -> int:
        """K."""
        return 1 + max(max(chain) for chain in self.chains)


def line(ranks: int) -> Layout:
    """One stage a rank."""
    return loop(ranks, 1)


def loop(ranks: int, chunks: int) -> Layout:
    """Round and round: stage s on rank s mod K (Narayanan et al., arXiv 2104.04473)."""
    return Layout((_positive(ranks, chunks) * chunks,))


def wave(ranks: int, waves: int) -> Layout:
    """There and back `waves` times, 2 stages a wave and rank; both stages at a turn stand on one rank (Hanayo)."""
    there = _positive(ranks, waves)
    return Layout(((*there, *reversed(there)) * waves,))


def vee(ranks: int) -> Layout:
    """There and back once: rank r has stages r and 2K − 1 − r (Qi et al., arXiv 2405.15362)."""
    return wave(ranks, 1)


def both_ways(ranks: int) -> Layout:
    """Two replicas of the model, one from rank 0 to K − 1 and one from K − 1 to 0 (Chimera)."""
    there = _positive(ranks, 1)
    return Layout((there, there[::-1]))


def _positive(ranks: int, times: int) -> tuple[int, ...]:
    if ranks < 1 or times < 1:
        raise InvalidValueError("layout", (ranks, times), "at least one rank and one stage on it")
    return tuple(range(ranks))
