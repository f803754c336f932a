"""`python -m agents`: what `bace agent` runs."""

from __future__ import annotations

from agents.cli import main

if __name__ == "__main__":
    main("bace agent")
