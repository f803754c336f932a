"""What every commit did to the rows, by triggers of our own: the checkers see it without any code of the service."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from dataclasses import dataclass

OBJECTS = {
    "job": ("jobs", "job_id"),
    "allocation": ("allocations", "allocation_id"),
    "process": ("processes", "key"),
    "node": ("nodes", "node_id"),
}
"""Kind → its table and key: the four state machines."""


@dataclass(frozen=True, slots=True)
class Change:
    """One change of a row. `old` and `new`: states; None where there was or is none."""

    what: str
    name: str
    old: str | None
    new: str | None


class Watch:
    """Notes the changes of each transaction in a temporary table of the connection; a rollback takes them back."""

    def __init__(self, driver: sqlite3.Connection) -> None:
        self._driver = driver
        driver.execute(
            "CREATE TEMP TABLE changes (number INTEGER PRIMARY KEY, what TEXT, name TEXT, old TEXT, new TEXT)"
        )
        for statement in _triggers():
            driver.execute(statement)

    def take(self) -> list[Change]:
        """The changes since the last call, in order."""
        rows = self._driver.execute(
            "SELECT what, name, old, new FROM temp.changes ORDER BY number"
        ).fetchall()
        if rows:
            self._driver.execute("DELETE FROM temp.changes")
        return [Change(*row) for row in rows]


def _triggers() -> Iterator[str]:
    for kind, (table, key) in OBJECTS.items():
        yield _trigger(f"{kind}_born", "INSERT", table, f"'{kind}', NEW.{key}, NULL, NEW.state")
        yield _trigger(
            f"{kind}_moved",
            "UPDATE OF state",
            table,
            f"'{kind}', NEW.{key}, OLD.state, NEW.state",
            "OLD.state <> NEW.state",
        )
        yield _trigger(f"{kind}_gone", "DELETE", table, f"'{kind}', OLD.{key}, OLD.state, NULL")
    yield _trigger("job_named", "INSERT", "jobs", "'submitted', NEW.job_id, NULL, NEW.name")
    yield _trigger(
        "job_cancelled",
        "UPDATE OF cancel_requested",
        "jobs",
        "'cancelled', NEW.job_id, NULL, NULL",
        "NEW.cancel_requested AND NOT OLD.cancel_requested",
    )
    moved = "json_extract(NEW.data, '$.from'), json_extract(NEW.data, '$.to')"
    kinds = ", ".join(f"'{kind}'" for kind in OBJECTS)
    yield _trigger(
        "event_written",
        "INSERT",
        "events",
        f"'event ' || NEW.object_kind, NEW.object_id, {moved}",
        f"NEW.object_kind IN ({kinds}) AND json_extract(NEW.data, '$.to') IS NOT NULL",
    )
    yield _trigger(
        "promise_broken",
        "INSERT",
        "events",
        "'promise broken', NEW.object_id, NULL, NULL",
        "NEW.kind = 'job.promise_broken'",
    )
    yield _trigger(
        "told_by",
        "INSERT",
        "events",
        "'told by', NEW.object_kind || ' ' || NEW.object_id, json_extract(NEW.data, '$.from'), NEW.actor",
        "NEW.actor <> ''",
    )
    yield _trigger(
        "audited", "INSERT", "audit", "'audited', NEW.token_id, NULL, NEW.object_id", "NEW.outcome = 'done'"
    )
    yield _trigger(
        "token_used",
        "UPDATE OF agent_id",
        "tokens",
        "'token', NEW.token_id, OLD.agent_id, NEW.agent_id",
        "OLD.agent_id IS NOT NEW.agent_id",
    )
    yield _trigger(
        "token_back",
        "UPDATE OF revoked_at_s",
        "tokens",
        "'token back', NEW.token_id, NULL, NULL",
        "OLD.revoked_at_s IS NOT NULL AND NEW.revoked_at_s IS NULL",
    )
    yield _trigger(
        "quota",
        "UPDATE OF quota_gpus, quota_usd_per_month",
        "projects",
        "'quota', NEW.project, NEW.quota_gpus, NEW.quota_usd_per_month",
    )
    yield _trigger(
        "spent",
        "INSERT",
        "ledger",
        "'spent', NEW.project, strftime('%Y-%m', NEW.from_s, 'unixepoch'), NEW.amount_usd",
    )
    yield _trigger("gpu_held", "INSERT", "held_gpus", "'held', NEW.allocation_id, NULL, NEW.project")
    yield _trigger("gpu_left", "DELETE", "held_gpus", "'held', OLD.allocation_id, OLD.project, NULL")
    yield _trigger("link_held", "INSERT", "held_links", "'link', NEW.src || ' ' || NEW.dst, NULL, NULL")
    yield _trigger("link_left", "DELETE", "held_links", "'link', OLD.src || ' ' || OLD.dst, NULL, NULL")
    yield _trigger("ledger_changed", "UPDATE", "ledger", "'ledger', OLD.seq, 'written', 'changed'")
    yield _trigger("ledger_removed", "DELETE", "ledger", "'ledger', OLD.seq, 'written', 'removed'")
    yield _trigger("promise_made", "INSERT", "promises", "'promise', NEW.job_id, NULL, NEW.kind")
    yield _trigger(
        "epoch",
        "UPDATE OF epoch",
        "leader",
        "'epoch', NEW.holder, OLD.epoch, NEW.epoch",
        "OLD.epoch <> NEW.epoch",
    )


def _trigger(name: str, when: str, table: str, values: str, condition: str = "1") -> str:
    return (
        f"CREATE TEMP TRIGGER watch_{name} AFTER {when} ON main.{table} WHEN {condition} "  # noqa: S608
        f"BEGIN INSERT INTO changes (what, name, old, new) VALUES ({values}); END"
    )
