"""Numbers drawn from a text: they depend on nothing but it, neither on order nor on what else is drawn."""

from __future__ import annotations

import hashlib


def uniform(text: str) -> float:
    """A number between 0 and 1, both excluded: the first eight bytes of the text's SHA-256."""
    digest = hashlib.sha256(text.encode()).digest()
    return (int.from_bytes(digest[:8], "big") + 0.5) / 2**64
