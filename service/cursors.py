"""Opaque cursors of keyset pages: the key of the last item, so that a page costs the same wherever it lies."""

from __future__ import annotations

import base64
import binascii
import json
import math

from service.errors import FieldError, InvalidInputError

MAX_CURSOR = 200
MAX_NUMBER_DIGITS = 18


def encode(time_s: float, item_id: str) -> str:
    """The key of an item as a cursor."""
    return base64.urlsafe_b64encode(json.dumps([time_s, item_id]).encode()).decode().rstrip("=")


def decode(cursor: str | None) -> tuple[float, str] | None:
    """The inverse. Raises InvalidInputError for anything that `encode` has not made."""
    if cursor is None:
        return None
    try:
        padded = cursor + "=" * (-len(cursor) % 4)
        time_s, item_id = json.loads(base64.b64decode(padded, altchars=b"-_", validate=True))
    except (binascii.Error, ValueError, TypeError):
        raise _not_ours(cursor) from None
    good = isinstance(time_s, float | int) and isinstance(item_id, str) and "\x00" not in item_id
    if not good or not math.isfinite(time_s):
        raise _not_ours(cursor)
    return float(time_s), item_id


def encode_number(number: int) -> str:
    """A row's number as a cursor."""
    return str(number)


def decode_number(cursor: str | None) -> int | None:
    """The inverse. Raises InvalidInputError for anything that `encode_number` has not made."""
    if cursor is None:
        return None
    if not (cursor.isascii() and cursor.isdigit() and len(cursor) <= MAX_NUMBER_DIGITS):
        raise _not_ours(cursor)
    return int(cursor)


def _not_ours(cursor: str) -> InvalidInputError:
    expected = "the `next` of a page before, unchanged"
    return InvalidInputError(
        f"cursor: expected {expected}",
        errors=(FieldError("/cursor", f"expected {expected}", value=cursor, where="query"),),
    )
