"""Migrations down to the first and up again, with a row in every table: what every version has in common stays."""

from __future__ import annotations

import re
from typing import Any

from alembic.script import ScriptDirectory
from sqlalchemy import (
    JSON,
    Boolean,
    CheckConstraint,
    Column,
    Double,
    Engine,
    Integer,
    String,
    Table,
    insert,
    text,
)

from service.db import migrate
from service.db.tables import Base, LeaderRow

FIRST = "0001"
SPECIAL: dict[tuple[str, str], Any] = {
    ("roles", "role"): "viewer",
    ("tokens", "role"): "viewer",
    ("links", "dst"): "other",
    ("jobs", "reasons"): [],
}
"""Where the constraints of a table do not tell it by themselves."""


def allowed(table: Table) -> dict[str, str]:
    """The first value of each column that a constraint gives a list of."""
    texts = [str(each.sqltext) for each in table.constraints if isinstance(each, CheckConstraint)]
    return {column: value for each in texts for column, value in re.findall(r"(\w+) IN \('([^']+)'", each)}


def value_of(column: Column[Any], choices: dict[str, str]) -> Any:
    """Something that fits: what is named alike is alike, so references find what they refer to."""
    special = SPECIAL.get((column.table.name, column.name), choices.get(column.name))
    if special is not None:
        return special
    target = next(iter(column.foreign_keys), None)
    name = target.column.name if target else column.name
    if isinstance(column.type, JSON):
        return {}
    if isinstance(column.type, Boolean):
        return True
    if isinstance(column.type, Double):
        return 1.0
    if isinstance(column.type, Integer):
        return 1
    length = column.type.length if isinstance(column.type, String) else None
    return name[: length or 64]


def fill(engine: Engine) -> None:
    """A row in every table of the newest schema; two regions, for a link to lie between."""
    with engine.begin() as connection:
        for table in Base.metadata.sorted_tables:
            if table.name == LeaderRow.__tablename__:
                continue  # the migrations make it
            choices = allowed(table)
            row = {column.name: value_of(column, choices) for column in table.columns}
            connection.execute(insert(table), row)
            if table.name == "regions":
                connection.execute(insert(table), {**row, "region": "other"})


def contents(engine: Engine, columns: dict[str, list[str]]) -> dict[str, list[tuple[Any, ...]]]:
    with engine.connect() as connection:
        return {
            table: sorted(
                tuple(row)
                for row in connection.execute(text(f"SELECT {', '.join(names)} FROM {table}"))  # noqa: S608
            )
            for table, names in columns.items()
        }


def columns_of(engine: Engine) -> dict[str, list[str]]:
    """What can be compared: no JSON, which has no order."""
    from sqlalchemy import inspect

    inspector = inspect(engine)
    known = Base.metadata.tables
    return {
        table: [
            column["name"]
            for column in inspector.get_columns(table)
            if not isinstance(known[table].columns[column["name"]].type, JSON)
        ]
        for table in inspector.get_table_names()
        if table in known
    }


def test_down_to_the_first_and_up_again_with_a_row_in_every_table(empty: Engine) -> None:
    migrate.upgrade(empty)
    fill(empty)
    script = ScriptDirectory.from_config(migrate._config(None))
    revisions = [each.revision for each in script.walk_revisions()]
    assert revisions[-1] == FIRST
    for revision in revisions[1:]:
        migrate.downgrade(empty, revision)
    kept = columns_of(empty)
    assert len(kept) > 15
    before = contents(empty, kept)
    assert all(before.values()), "every table of the first version has its row"
    for revision in reversed(revisions[:-1]):
        migrate.upgrade(empty, revision)
    assert contents(empty, kept) == before
    for revision in revisions[1:]:
        migrate.downgrade(empty, revision)
    assert contents(empty, kept) == before
    migrate.upgrade(empty)
    with empty.connect() as connection:
        assert migrate.current(connection) == migrate.head()
