"""Token buckets: how often something may happen, and how long to wait where it has happened too often.

In memory, for one replica: with N replicas a caller may do N times as much. Bounded: of too many buckets the ones that
were used longest ago are forgotten, which is to forgive them.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass, field


@dataclass(slots=True)
class TokenBuckets:
    """A bucket for each key: `burst` at once, then `rate_per_s`. A rate of 0 limits nothing."""

    rate_per_s: float
    burst: float
    most_keys: int
    _buckets: OrderedDict[str, tuple[float, float]] = field(default_factory=OrderedDict)
    """Key → (level, when it was so)."""

    def wait_s(self, key: str, now_s: float, cost: float = 1.0) -> float:
        """Seconds until so much may be taken; 0: now. Takes nothing."""
        if self.rate_per_s <= 0:
            return 0.0
        lacks = min(cost, self.burst) - self._level(key, now_s)
        return max(0.0, lacks / self.rate_per_s)

    def take(self, key: str, now_s: float, cost: float = 1.0) -> float:
        """Takes so much if it is there. Else takes nothing, and answers the seconds to wait."""
        wait_s = self.wait_s(key, now_s, cost)
        if wait_s == 0.0 and self.rate_per_s > 0:
            self._buckets[key] = (self._level(key, now_s) - min(cost, self.burst), now_s)
            self._buckets.move_to_end(key)
            while len(self._buckets) > self.most_keys:
                self._buckets.popitem(last=False)
        return wait_s

    def __len__(self) -> int:
        return len(self._buckets)

    def _level(self, key: str, now_s: float) -> float:
        level, at_s = self._buckets.get(key, (self.burst, now_s))
        return min(self.burst, level + max(0.0, now_s - at_s) * self.rate_per_s)
