"""Reads YAML text into plain values and remembers on which line each of them stands.

A small, safe part of YAML 1.2: mappings with text keys, lists and the core schema's scalars (so `no`, `1:30` and
dates stay text). Tags, anchors and aliases are refused, keys must be unique, and size, nesting and the number of
values are bounded before anything is built.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Any

import yaml

from scheduler.spec.issues import FieldIssue, SpecError, pointer_of

MAX_BYTES = 1024 * 1024
MAX_DEPTH = 32
MAX_VALUES = 50_000

_INT = re.compile(r"[-+]?[0-9]{1,40}")
_HEX = re.compile(r"0x[0-9a-fA-F]{1,32}")
_FLOAT = re.compile(r"[-+]?(\.[0-9]{1,40}|[0-9]{1,40}(\.[0-9]{0,40})?)([eE][-+]?[0-9]{1,4})?")
_SPECIAL = {".inf": "inf", "+.inf": "inf", "-.inf": "-inf", ".nan": "nan"}


@dataclass(frozen=True, slots=True)
class YamlText:
    """A parsed text: `value`, and for each JSON pointer the line (from 1) of its key or item."""

    value: Any
    lines: dict[str, int]


def read_yaml(text: str | bytes, source: str) -> YamlText:
    """Parses one YAML (or JSON) document. Raises SpecError that names the line."""
    size = len(text.encode("utf-8", "surrogatepass") if isinstance(text, str) else text)
    if size > MAX_BYTES:
        raise SpecError([FieldIssue("", f"{size} bytes", f"a text of at most {MAX_BYTES} bytes")], source)
    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    builder = _Builder(source)
    try:
        for event in yaml.parse(text, Loader=loader):
            builder.take(event)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        line = mark.line + 1 if mark else None
        raise SpecError([FieldIssue("", error.problem or "syntax", "valid YAML", line)], source) from error
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise SpecError(
            [FieldIssue("", str(error).splitlines()[0], "valid YAML in UTF-8")], source
        ) from error
    return YamlText(builder.root, builder.lines)


@dataclass(slots=True)
class _Open:
    """A mapping or list whose end has not come yet."""

    value: dict[str, Any] | list[Any]
    path: tuple[str | int, ...]
    key: str | None = None


@dataclass(slots=True)
class _Builder:
    source: str
    root: Any = None
    lines: dict[str, int] = field(default_factory=dict)
    stack: list[_Open] = field(default_factory=list)
    documents: int = 0
    values: int = 0

    def take(self, event: Any) -> None:
        if isinstance(event, yaml.DocumentStartEvent):
            self.documents += 1
            if self.documents > 1:
                self._refuse(event, "---", "one document in the file")
        elif isinstance(event, yaml.AliasEvent):
            self._refuse(event, f"*{event.anchor}", "the value itself: aliases are not read")
        elif isinstance(event, yaml.MappingEndEvent | yaml.SequenceEndEvent):
            self.stack.pop()
        elif isinstance(event, yaml.NodeEvent):
            self._node(event)

    def _node(self, event: Any) -> None:
        self.values += 1
        if event.anchor is not None:
            self._refuse(event, f"&{event.anchor}", "no anchor: the value itself where it is needed")
        if event.tag is not None and event.tag != "!":
            self._refuse(event, event.tag, "a plain value without a tag")
        if self.values > MAX_VALUES:
            self._refuse(event, self.values, f"at most {MAX_VALUES} values")
        parent = self.stack[-1] if self.stack else None
        if parent is not None and isinstance(parent.value, dict) and parent.key is None:
            self._key(event, parent, parent.value)
            return
        self._value(event, parent)

    def _key(self, event: Any, parent: _Open, mapping: dict[str, Any]) -> None:
        if not isinstance(event, yaml.ScalarEvent):
            self._refuse(event, "a list or mapping", "a text as key")
        if event.value in mapping:
            self._refuse(event, event.value, "every key once", (*parent.path, event.value))
        parent.key = event.value
        self.lines[pointer_of((*parent.path, event.value))] = event.start_mark.line + 1

    def _value(self, event: Any, parent: _Open | None) -> None:
        path: tuple[str | int, ...] = ()
        if parent is not None:
            path = (*parent.path, parent.key if isinstance(parent.value, dict) else len(parent.value))  # type: ignore[arg-type]
        value: Any
        if isinstance(event, yaml.ScalarEvent):
            value = _scalar(event)
        else:
            value = {} if isinstance(event, yaml.MappingStartEvent) else []
        if parent is None:
            self.root = value
        elif isinstance(parent.value, dict):
            assert parent.key is not None  # noqa: S101 - _node has read the key
            parent.value[parent.key] = value
            parent.key = None
        else:
            parent.value.append(value)
        self.lines.setdefault(pointer_of(path), event.start_mark.line + 1)
        if not isinstance(event, yaml.ScalarEvent):
            self.stack.append(_Open(value, path))
            if len(self.stack) > MAX_DEPTH:
                self._refuse(event, f"{len(self.stack)} levels", f"at most {MAX_DEPTH} levels of nesting", ())

    def _refuse(
        self, event: Any, value: object, expected: str, path: tuple[str | int, ...] | None = None
    ) -> None:
        where = self.stack[-1].path if path is None and self.stack else path or ()
        issue = FieldIssue(pointer_of(where), value, expected, event.start_mark.line + 1)
        raise SpecError([issue], self.source)


def _scalar(event: Any) -> str | int | float | bool | None:
    text: str = event.value
    if not event.implicit[0]:
        return text  # quoted
    if text in ("", "~", "null", "Null", "NULL"):
        return None
    if text in ("true", "True", "TRUE", "false", "False", "FALSE"):
        return text[0] in "tT"
    if _INT.fullmatch(text):
        return int(text)
    if _HEX.fullmatch(text):
        return int(text, 16)
    if _FLOAT.fullmatch(text):
        return float(text)
    special = _SPECIAL.get(text.lower())
    return text if special is None else float(special)
