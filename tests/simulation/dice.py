"""Random numbers by name: one stream a purpose, so that what one draws does not disturb what the others draw."""

from __future__ import annotations

import random


class Dice:
    """Streams of one seed."""

    def __init__(self, seed: int) -> None:
        self._seed = seed
        self._streams: dict[str, random.Random] = {}

    def of(self, name: str) -> random.Random:
        """The stream of that name; the same object at every call."""
        if name not in self._streams:
            self._streams[name] = random.Random(f"{self._seed}/{name}")
        return self._streams[name]
