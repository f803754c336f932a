"""Everything that happens, folded into one hash; what was rare; and what must never have been."""

from __future__ import annotations

import asyncio
import hashlib
from collections import Counter, deque
from dataclasses import dataclass, field

LAST_LINES = 60


@dataclass(frozen=True, slots=True)
class Violation:
    """A rule that was broken, and when."""

    rule: str
    detail: str
    at_s: float


@dataclass(slots=True)
class Trace:
    """One run's history."""

    loop: asyncio.AbstractEventLoop
    events: int = 0
    faults: Counter[str] = field(default_factory=Counter)
    reached: Counter[str] = field(default_factory=Counter)
    violations: list[Violation] = field(default_factory=list)
    broken: asyncio.Event = field(default_factory=asyncio.Event)
    last: deque[str] = field(default_factory=lambda: deque(maxlen=LAST_LINES))
    lines: list[str] | None = None
    """The whole history, where somebody wants to read it."""
    _hash: hashlib._Hash = field(default_factory=hashlib.sha256)

    def add(self, what: str) -> None:
        """Something happened."""
        self.events += 1
        line = f"{self.loop.time():.6f} {what}\n"
        self._hash.update(line.encode())
        self.last.append(line)
        if self.lines is not None:
            self.lines.append(line)

    def fault(self, kind: str, detail: str = "") -> None:
        """Something was made to go wrong."""
        self.faults[kind] += 1
        self.add(f"fault {kind} {detail}")

    def sometimes(self, branch: str) -> None:
        """A rare branch was reached."""
        self.reached[branch] += 1

    def violation(self, rule: str, detail: str) -> None:
        """What must never be. The run ends."""
        self.add(f"VIOLATION {rule}: {detail}")
        self.violations.append(Violation(rule, detail, self.loop.time()))
        self.broken.set()

    def digest(self) -> str:
        """SHA-256 of the whole history."""
        return self._hash.hexdigest()
