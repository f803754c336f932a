"""Bodies are read strictly: JSON alone, no NaN, no duplicate keys, no deep nesting, nothing a database cannot hold."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Coroutine
from typing import Any

from fastapi import Request, Response
from fastapi.routing import APIRoute

from service import limits
from service.api.access import authorise
from service.errors import FieldError, InvalidInputError

Handler = Callable[[Request], Coroutine[Any, Any, Response]]
Way = tuple[Any, str | int] | None
"""To a value: the way to what holds it, and its key there; None for the document itself."""
_DIGITS = len(str(limits.MAX_JSON_INTEGER))


class _TooLong(str):
    """A whole number of more digits than are read: it is refused where it stands."""

    __slots__ = ()


class StrictRoute(APIRoute):
    """A route whose JSON body is checked before anything of it is believed."""

    def get_route_handler(self) -> Handler:
        handle = super().get_route_handler()

        async def handle_strictly(request: Request) -> Response:
            await authorise(request)  # nothing of a stranger's body is looked at
            strict = StrictRequest(request.scope, request.receive)
            if self.body_field is not None:
                await strict.json()
            return await handle(strict)

        return handle_strictly


class StrictRequest(Request):
    """A request whose body is read by `loads`, once."""

    _document: Any
    _parsed = False

    async def json(self) -> Any:
        if not self._parsed:
            media_type = self.headers.get("content-type", "").partition(";")[0].strip().lower()
            if media_type != "application/json":
                raise _refused("", "a body in JSON, with Content-Type: application/json", media_type or None)
            self._document = loads(await self.body())
            self._parsed = True
        return self._document


def loads(body: bytes) -> Any:
    """JSON text (UTF-8) as a value. Raises InvalidInputError that names the field."""
    if not body:
        raise _refused("", "a body in JSON: it is empty", None)
    try:
        document = json.loads(
            body.decode("utf-8"),
            object_pairs_hook=_unique_keys,
            parse_constant=_no_constant,
            parse_int=_integer,
        )
    except UnicodeDecodeError as error:
        raise _refused("", f"UTF-8: byte {error.start} is not", None) from None
    except json.JSONDecodeError as error:
        where = f"line {error.lineno}, column {error.colno}"
        raise _refused("", f"JSON: {error.msg} at {where}", None) from None
    except RecursionError:
        raise _too_deep("") from None
    _check(document)
    return document


def _unique_keys(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    document = dict(pairs)
    if len(document) != len(pairs):
        seen: set[str] = set()
        for key, _ in pairs:
            if key in seen:
                raise _refused(f"/{_escaped(key)}", "every key once", key)
            seen.add(key)
    return document


def _no_constant(name: str) -> Any:
    raise _refused("", f"finite numbers: {name} is no JSON", name)


def _integer(text: str) -> int | _TooLong:
    return _TooLong(text) if len(text.lstrip("-")) > _DIGITS else int(text)


def _check(document: Any) -> None:
    """Depth, and what passes as JSON but not as a value of ours; without recursion."""
    pending: list[tuple[Any, int, Way]] = [(document, 1, None)]
    while pending:
        value, depth, way = pending.pop()
        if isinstance(value, dict | list):
            if depth > limits.MAX_JSON_DEPTH:
                raise _too_deep(_pointer(way))
            entries = value.items() if isinstance(value, dict) else enumerate(value)
            for key, entry in entries:
                if isinstance(key, str):
                    _check_text(key, (way, key))
                pending.append((entry, depth + 1, (way, key)))
        elif isinstance(value, _TooLong) or (isinstance(value, int) and abs(value) > limits.MAX_JSON_INTEGER):
            raise _refused(_pointer(way), f"a whole number of at most {limits.MAX_JSON_INTEGER}", value)
        elif isinstance(value, str):
            _check_text(value, way)
        elif isinstance(value, float) and not math.isfinite(value):
            raise _refused(_pointer(way), "a finite number", value)


def _check_text(text: str, way: Way) -> None:
    if "\x00" in text:
        raise _refused(_pointer(way), "text without NUL characters", text)
    if not text.isascii() and any("\ud800" <= character <= "\udfff" for character in text):
        raise _refused(_pointer(way), "text without lone surrogates", text)


def _pointer(way: Way) -> str:
    """The JSON pointer of a value; few are ever asked for."""
    keys: list[str] = []
    while way is not None:
        way, key = way
        keys.append(_escaped(str(key)))
    return "".join(f"/{key}" for key in reversed(keys))


def _escaped(key: str) -> str:
    printable = key[: limits.MAX_VALUE_SHOWN].encode("utf-8", "backslashreplace").decode()
    return printable.replace("~", "~0").replace("/", "~1")


def _too_deep(pointer: str) -> InvalidInputError:
    return _refused(pointer, f"at most {limits.MAX_JSON_DEPTH} levels of nesting", None)


def _refused(pointer: str, expected: str, value: Any) -> InvalidInputError:
    field = pointer.strip("/").replace("/", ".") or "body"
    return InvalidInputError(
        f"{field}: expected {expected}", errors=(FieldError(pointer, f"expected {expected}", value=value),)
    )
