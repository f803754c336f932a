"""`python -m agents`: the same as `bace-agent`."""

from __future__ import annotations

from agents.cli import main

if __name__ == "__main__":
    main()
