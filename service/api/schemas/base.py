"""What all answers and bodies share: units last in every name, times in epoch seconds (UTC), examples in all."""

from __future__ import annotations

from dataclasses import fields
from functools import cache
from typing import Annotated, Any, Generic, TypeVar

from pydantic import BaseModel, ConfigDict, Field

T = TypeVar("T")

RegionName = Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9._-]{0,62}$", description="a region's name")]
ProjectName = Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9-]{0,62}$", description="a project's name")]
GpuTypeName = Annotated[
    str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,62}$", description="a GPU type's name")
]
Label = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9 ._-]{0,62}$", description="a name for people")]


def example(document: dict[str, Any]) -> ConfigDict:
    """The configuration of an answer that shows `document` in the OpenAPI description."""
    return ConfigDict(
        frozen=True,
        from_attributes=True,
        use_attribute_docstrings=True,
        json_schema_extra={"examples": [document]},
    )


def body_example(document: dict[str, Any]) -> ConfigDict:
    """The configuration of a request body: unknown fields are errors, NaN and infinity are no numbers."""
    return ConfigDict(
        frozen=True,
        extra="forbid",
        strict=True,
        allow_inf_nan=False,
        json_schema_extra={"examples": [document]},
    )


class Answer(BaseModel):
    """What the server tells."""


class Body(BaseModel):
    """What a caller sends."""


class Page(Answer, Generic[T]):
    """A part of a list. `next` is the cursor of the part that follows; null at the end."""

    items: list[T]
    next: str | None = None


def flat(record: Any, **more: Any) -> dict[str, Any]:
    """The fields of a record as a mapping, with others beside them."""
    # dataclasses.fields would make a list of them anew for each record of a page.
    return {name: getattr(record, name) for name in record.__dataclass_fields__} | more


@cache
def _shared(model: type[BaseModel], record: type) -> tuple[str, ...]:
    return tuple(field.name for field in fields(record) if field.name in model.model_fields)


def shown(model: type[BaseModel], record: Any) -> dict[str, Any]:
    """The fields of a record that a model shows."""
    return {name: getattr(record, name) for name in _shared(model, record.__class__)}


def inlined(schema: dict[str, Any]) -> dict[str, Any]:
    """A schema with its definitions in the places that refer to them: it may stand anywhere in the description."""
    definitions = {f"#/$defs/{name}": each for name, each in schema.get("$defs", {}).items()}

    def resolved(part: Any) -> Any:
        if isinstance(part, dict):
            if "$ref" in part:
                return resolved(definitions[part["$ref"]])
            return {name: resolved(each) for name, each in part.items() if name != "$defs"}
        return [resolved(each) for each in part] if isinstance(part, list) else part

    found: dict[str, Any] = resolved(schema)
    return found
