"""ETag and If-Match: a row's version in quotes."""

from __future__ import annotations

import re
from typing import Annotated

from fastapi import Header

from service.errors import FieldError, InvalidInputError

_TAG = re.compile(r'(?:W/)?"([0-9]{1,12})"')


async def wanted_version(if_match: Annotated[str | None, Header(max_length=64)] = None) -> int | None:
    """The version that a change expects; None: whatever it is. Raises InvalidInputError for no ETag of ours."""
    if if_match is None or if_match == "*":
        return None
    match = _TAG.fullmatch(if_match)
    if match is None:
        expected = 'the ETag of an answer before, such as "3"'
        raise InvalidInputError(
            f"If-Match: expected {expected}",
            errors=(FieldError("/if-match", f"expected {expected}", value=if_match, where="header"),),
        )
    return int(match[1])


def etag(version: int) -> str:
    return f'"{version}"'
