"""The description is complete: every schema has an example, and the examples are what they describe."""

from __future__ import annotations

import pytest
from fastapi import FastAPI
from pydantic import BaseModel

from service.api.schemas import (
    access,
    accounts,
    audit,
    base,
    cluster,
    events,
    health,
    jobs,
    placements,
    plans,
    prices,
    problems,
    projects,
    reasons,
    schedules,
)

MODULES = (
    access,
    accounts,
    audit,
    cluster,
    events,
    health,
    jobs,
    placements,
    plans,
    prices,
    problems,
    projects,
    reasons,
    schedules,
)
MODELS = [
    model
    for module in MODULES
    for model in vars(module).values()
    if isinstance(model, type)
    and issubclass(model, base.Answer | base.Body)
    and model not in (base.Answer, base.Body)
    and model.__module__ == module.__name__
    and model is not prices.Subject
]


@pytest.mark.parametrize("model", MODELS, ids=lambda model: model.__name__)
def test_every_schema_has_an_example_that_it_accepts(model: type[BaseModel]) -> None:
    [example] = model.model_json_schema()["examples"]
    told = model.model_validate(example)
    assert told.model_dump(mode="json", exclude_unset=True).keys() == example.keys()


def test_every_operation_says_what_it_does_and_how_it_refuses(app: FastAPI) -> None:
    for path, operations in app.openapi()["paths"].items():
        for method, operation in operations.items():
            what = f"{method} {path}"
            assert operation["description"], what
            if path.startswith(("/v1/", "/agent/")):
                assert {"401", "403", "422"} <= operation["responses"].keys(), what
                assert "application/problem+json" in operation["responses"]["422"]["content"], what
