"""Turns what pydantic finds into issues: JSON pointer, value, and what would be right."""

from __future__ import annotations

import difflib
import typing
from typing import Any

from pydantic import BaseModel, ValidationError

from scheduler.spec.issues import FieldIssue, pointer_of

_SECRET_FIELDS = frozenset({"secrets"})


def issues_of(error: ValidationError, model: type[BaseModel]) -> list[FieldIssue]:
    """Every issue of a failed validation of `model`, in the order of its fields, each place once."""
    issues: dict[str, FieldIssue] = {}
    for found in error.errors(include_url=False):
        # pydantic marks an error of a key (not of its value) by a last part `[key]`
        path = tuple(part for part in found["loc"] if part != "[key]")
        pointer = pointer_of(path)
        value = None if found["type"] == "missing" else found["input"]
        if _SECRET_FIELDS.intersection(path):
            value = "***"  # whatever stands there may be a secret that was put in the place of its reference
        issues.setdefault(pointer, FieldIssue(pointer, value, _expected(found, path, model)))
    return list(issues.values())


def _expected(found: Any, path: tuple[str | int, ...], model: type[BaseModel]) -> str:
    kind, context = found["type"], found.get("ctx", {})
    if kind == "expected":
        return str(context["expected"])
    if kind == "missing":
        return "a value: the field is required"
    if kind == "extra_forbidden":
        return _known_fields(str(path[-1]), path, model)
    if kind in ("model_type", "dict_type", "model_attributes_type"):
        return "a mapping"
    if kind == "string_pattern_mismatch":
        return f"text that matches {context['pattern']}"
    if kind in ("too_short", "too_long"):
        bound = (
            f"at least {context['min_length']}" if kind == "too_short" else f"at most {context['max_length']}"
        )
        return f"{bound} entries, not {context['actual_length']}"
    message: str = found["msg"]
    for start in ("Input should be ", "Value should be ", "Value error, "):
        message = message.removeprefix(start)
    return message[:1].lower() + message[1:]


def _known_fields(name: str, path: tuple[str | int, ...], model: type[BaseModel]) -> str:
    parent = _model_at(model, path[:-1])
    known = sorted(parent.model_fields) if parent else []
    near = difflib.get_close_matches(name, known, n=1)
    hint = f"; did you mean {near[0]}?" if near else ""
    return f"one of the fields {', '.join(known)}{hint}"


def _model_at(model: type[BaseModel], path: tuple[str | int, ...]) -> type[BaseModel] | None:
    current: type[BaseModel] | None = model
    for part in path:
        if isinstance(part, int):
            continue  # an item of a list: `_first_model` has looked through the list already
        field = current.model_fields.get(part) if current is not None else None
        current = _first_model(field.annotation) if field is not None else None
    return current


def _first_model(annotation: Any) -> type[BaseModel] | None:
    """The model inside `X | None`, `list[X]`, `dict[str, X]` or `Annotated[X, …]`."""
    if isinstance(annotation, type):
        return annotation if issubclass(annotation, BaseModel) else None
    for argument in reversed(typing.get_args(annotation)):
        found = _first_model(argument)
        if found is not None:
            return found
    return None
