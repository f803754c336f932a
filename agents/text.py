"""Text from workers, made fit to travel: bounded, and free of what databases and JSON cannot hold."""

from __future__ import annotations

LINE_CHARACTERS = 2000
TEXT_CHARACTERS = 4096
CUT = "…[cut]"


def line_of(raw: bytes) -> str:
    """One line of output as a terminal would leave it: after a carriage return only the last stretch stands."""
    text = raw.decode("utf-8", errors="replace").rstrip("\r\n")
    return fit(text.rpartition("\r")[2], LINE_CHARACTERS)


def fit(text: str, characters: int = TEXT_CHARACTERS) -> str:
    """At most so many characters, with a mark where it was cut; no NUL, no half of a surrogate pair."""
    clean = text.replace("\0", "�").encode("utf-8", errors="replace").decode("utf-8")
    return clean if len(clean) <= characters else clean[: characters - len(CUT)] + CUT
