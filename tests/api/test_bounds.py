"""Whatever a caller or an agent may send has a bound: every string, list, mapping and number of every request.

Found by a walk through the schemas, so that a new field cannot be forgotten. Bodies as a whole, nesting and whole
numbers are bounded before anything is parsed (`test_hostile_inputs`).
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import pytest
from fastapi import FastAPI

from agents.protocol import Heartbeat, HeartbeatReply, JoinReply, JoinRequest, WorkerPlan
from scheduler.spec.job import JobDocument

Schema = dict[str, Any]
MOST = 10_000_000
"""No bound is so large that it is none."""
PARSED_ELSEWHERE = {"/v1/jobs", "/v1/plans", "/v1/schedules"}
"""Bodies that are a JobDocument, which is walked by itself."""
AS_THEY_ARE = {f"Heartbeat/reports[]/{name}: a number without bounds" for name in ("loss", "grad_norm")}
"""A double takes eight bytes; a loss or a norm that is not a number, or infinite, is told as it is."""
HEARTBEAT = "post /agent/v1/heartbeat application/json"


def unbounded(schema: Schema, root: Schema, where: str) -> Iterator[str]:
    """Every place below a schema that could be made arbitrarily large, with what is missing there."""
    seen: set[str] = set()
    pending = [(where, schema)]
    while pending:
        path, part = pending.pop()
        if "$ref" in part:
            name = part["$ref"]
            if name not in seen:
                seen.add(name)
                pending.append((path, _target(root, name)))
            continue
        for choice in ("anyOf", "oneOf", "allOf"):
            pending += [(path, each) for each in part.get(choice, ())]
        if "enum" in part or "const" in part:
            continue
        kinds = part.get("type", [])
        if isinstance(kinds, list):
            pending += [(path, {**part, "type": kind}) for kind in kinds]
            continue
        kind = kinds
        if kind == "string" and not _bounded_text(part):
            yield f"{path}: a string without maxLength or a bounded pattern"
        if kind == "array":
            if part.get("maxItems", MOST) >= MOST and "prefixItems" not in part:
                yield f"{path}: a list without maxItems"
            pending += [(f"{path}[]", each) for each in part.get("prefixItems", [part.get("items", {})])]
        if kind in ("number", "integer") and not _bounded_number(part):
            yield f"{path}: a number without bounds"
        if kind == "object":
            yield from _unbounded_mapping(path, part, pending)


def _unbounded_mapping(path: str, part: Schema, pending: list[tuple[str, Schema]]) -> Iterator[str]:
    pending += [(f"{path}/{name}", each) for name, each in part.get("properties", {}).items()]
    more = part.get("additionalProperties", True)
    if more is False:
        return
    if "properties" in part and more is True:
        yield f"{path}: fields that nobody knows are let in"
        return
    if part.get("maxProperties", MOST) >= MOST:
        yield f"{path}: a mapping without maxProperties"
    if not (_bounded_text(part.get("propertyNames", {})) or part.get("patternProperties")):
        yield f"{path}: a mapping whose keys have no bound"
    pending += [(f"{path}/*", each) for each in part.get("patternProperties", {}).values()]
    if isinstance(more, dict):
        pending.append((f"{path}/*", more))


def _bounded_text(part: Schema) -> bool:
    if "enum" in part or part.get("maxLength", MOST) < MOST or part.get("format") in ("date-time", "date"):
        return True
    pattern = part.get("pattern")
    # Anchored, and nothing in it repeats without an end.
    return bool(pattern) and pattern.startswith("^") and pattern.endswith("$") and not _endless(pattern)


def _endless(pattern: str) -> bool:
    without_classes = re.sub(r"\[(\\.|[^\]])*\]", "x", re.sub(r"\\.", "x", pattern))
    return bool(re.search(r"[*+]|\{\d+,\}", without_classes))


def _bounded_number(part: Schema) -> bool:
    low = "minimum" in part or "exclusiveMinimum" in part
    high = "maximum" in part or "exclusiveMaximum" in part
    return low and high


def _target(root: Schema, name: str) -> Schema:
    found: Any = root
    for step in name.removeprefix("#/").split("/"):
        found = found[step]
    assert isinstance(found, dict)
    return found


def test_every_parameter_and_body_of_the_api_is_bounded(app: FastAPI) -> None:
    description = app.openapi()
    found: list[str] = []
    walked = 0
    for path, methods in description["paths"].items():
        for method, operation in methods.items():
            for parameter in operation.get("parameters", ()):
                where = f"{method} {path} {parameter['in']}:{parameter['name']}"
                found += unbounded(parameter["schema"], description, where)
                walked += 1
            body = operation.get("requestBody", {}).get("content", {})
            for media_type, content in body.items():
                schema = content.get("schema", {})
                if path in PARSED_ELSEWHERE:
                    continue
                found += unbounded(schema, description, f"{method} {path} {media_type}")
                walked += 1
    assert walked > 60
    assert (
        set(found)
        - {each.replace("Heartbeat", "post /agent/v1/heartbeat application/json") for each in AS_THEY_ARE}
        == set()
    )


@pytest.mark.parametrize(
    "model",
    [JobDocument, JoinRequest, Heartbeat, JoinReply, HeartbeatReply, WorkerPlan],
    ids=lambda m: m.__name__,
)
def test_every_field_of_a_job_and_of_the_agents_wire_is_bounded(model: Any) -> None:
    schema = model.model_json_schema()
    assert set(unbounded(schema, schema, model.__name__)) - AS_THEY_ARE == set()


@pytest.mark.parametrize(
    ("schema", "missing"),
    [
        ({"type": "string"}, "a string"),
        ({"type": "string", "pattern": "^[a-z]+$"}, "a string"),
        ({"type": "string", "pattern": "[a-z]{1,3}"}, "a string"),
        ({"type": "array", "items": {"type": "integer", "minimum": 0, "maximum": 1}}, "a list"),
        ({"type": "array", "maxItems": 3, "items": {"type": "string"}}, "a string"),
        ({"type": "number", "minimum": 0}, "a number"),
        ({"type": "object"}, "a mapping"),
        ({"type": "object", "properties": {}}, "nobody knows"),
        ({"anyOf": [{"type": "null"}, {"type": "string"}]}, "a string"),
    ],
)
def test_the_walk_finds_what_has_no_bound(schema: Schema, missing: str) -> None:
    assert any(missing in each for each in unbounded(schema, schema, "x"))
