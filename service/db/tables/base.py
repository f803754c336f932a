"""What all tables are made of."""

from __future__ import annotations

from typing import Any

from sqlalchemy import JSON, BigInteger, Double, Integer, String
from sqlalchemy.orm import DeclarativeBase

SHARED_PROJECT = "*"

Id = String(64)
Name = String(63)
# SQLite gives only INTEGER PRIMARY KEY an automatic value.
Sequence = BigInteger().with_variant(Integer, "sqlite")


class Base(DeclarativeBase):
    """Root of the tables."""

    type_annotation_map = {float: Double, dict[str, Any]: JSON, list[Any]: JSON}  # noqa: RUF012 - SQLAlchemy's API
