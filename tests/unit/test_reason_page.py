"""docs/protocol.md tells every reason code that a user may meet."""

from __future__ import annotations

from pathlib import Path

from scheduler.reasons import ReasonCode

PAGE = Path(__file__).parents[2] / "docs" / "protocol.md"


def test_every_reason_is_on_the_page() -> None:
    page = PAGE.read_text(encoding="utf-8")
    assert [code.value for code in ReasonCode if f"`{code.value}`" not in page] == []
