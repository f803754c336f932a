"""The examples that come with bacepipe, wherever it is installed."""

from __future__ import annotations

from pathlib import Path

from service.cli.exits import CommandError, Exit

_PLACES = (
    Path(__file__).parents[1] / "examples",  # in an installed package
    Path(__file__).parents[2] / "deploy" / "examples",  # in a clone
)


def example(relative: str) -> Path:
    """The path of an example file. Raises CommandError where the installation lacks it."""
    for place in _PLACES:
        if (place / relative).is_file():
            return place / relative
    raise CommandError(f"The example {relative} is not part of this installation.", Exit.FAILED)
