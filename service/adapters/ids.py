"""Identifiers that sort by time of creation, and secrets from the system's randomness."""

from __future__ import annotations

import secrets

from ulid import ULID


class UlidIds:
    """`ports.Ids` by ULIDs in lower case."""

    def new(self, prefix: str) -> str:
        return f"{prefix}-{str(ULID()).lower()}"

    def secret(self) -> str:
        return secrets.token_urlsafe(32)
