"""The rules that the whole history must keep: looked at once, at the end, when the world is at rest."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterator

from tests.simulation.rows import OBJECTS

ROUNDING_S = 1e-6


def broken(driver: sqlite3.Connection) -> Iterator[tuple[str, str]]:
    """Rules that the tables break, with details."""
    yield from _events_fold_to_rows(driver)
    yield from _ledger_is_whole(driver)
    yield from _months_are_sums(driver)
    yield from _nothing_is_left(driver)


def _events_fold_to_rows(driver: sqlite3.Connection) -> Iterator[tuple[str, str]]:
    folded: dict[tuple[str, str], tuple[str, int]] = {}
    events = driver.execute("SELECT seq, at_s, object_kind, object_id, data FROM events ORDER BY seq")
    for seq, _, kind, name, text in events:
        data = json.loads(text)
        if kind not in OBJECTS or "to" not in data:
            continue
        before = folded.get((kind, name))
        if data["from"] != (None if before is None else before[0]):
            yield (
                "events follow each other",
                f"event {seq}: {kind} {name} goes from {data['from']}, it was {before}",
            )
        if before is not None and data["version"] <= before[1]:
            yield "versions grow", f"event {seq}: {kind} {name} at {data['version']} after {before[1]}"
        folded[kind, name] = (data["to"], data["version"])
    for kind, (table, key) in OBJECTS.items():
        for name, state in driver.execute(f"SELECT {key}, state FROM {table}"):  # noqa: S608
            told = folded.get((kind, name), (None, 0))[0]
            if told != state:
                yield "events fold to the rows", f"{kind} {name} is {state}, its events say {told}"


def _ledger_is_whole(driver: sqlite3.Connection) -> Iterator[tuple[str, str]]:
    """Every second that an allocation held GPUs is billed once, by its price; nothing else is."""
    allocations = driver.execute(
        "SELECT allocation_id, created_at_s, ended_at_s, billed_until_s, state FROM allocations"
    )
    for allocation_id, created_s, ended_s, billed_s, state in allocations.fetchall():
        if state == "ended" and billed_s is not None and abs(billed_s - ended_s) > ROUNDING_S:
            yield (
                "what has ended is billed to its end",
                f"{allocation_id}: billed until {billed_s}, ended {ended_s}",
            )
        spans: dict[tuple[str, str], list[tuple[float, float]]] = {}
        rows = driver.execute(
            "SELECT kind, region, gpu_type, from_s, to_s, quantity, price, amount_usd FROM ledger "
            "WHERE allocation_id = ? ORDER BY from_s",
            (allocation_id,),
        )
        for kind, region, gpu_type, from_s, to_s, quantity, price, amount_usd in rows:
            if abs(amount_usd - quantity * (price or 0.0)) > 1e-9 + 1e-6 * abs(amount_usd):
                yield (
                    "an amount is its quantity by its price",
                    f"{allocation_id}: {quantity} × {price} ≠ {amount_usd}",
                )
            if kind == "electricity":
                spans.setdefault((region, gpu_type), []).append((from_s, to_s))
        for place, found in spans.items():
            at_s = created_s
            for from_s, to_s in found:
                if abs(from_s - at_s) > ROUNDING_S:
                    yield (
                        "bills join without gap or overlap",
                        f"{allocation_id} {place}: {at_s} then {from_s}",
                    )
                at_s = to_s
            if billed_s is not None and abs(at_s - billed_s) > ROUNDING_S:
                yield (
                    "bills reach to what is billed",
                    f"{allocation_id} {place}: {at_s}, billed until {billed_s}",
                )


def _months_are_sums(driver: sqlite3.Connection) -> Iterator[tuple[str, str]]:
    """What projects are told to have spent in a month is what they were billed."""
    billed = driver.execute(
        "SELECT project, strftime('%Y-%m', from_s, 'unixepoch') AS month, sum(amount_usd) FROM ledger "
        "GROUP BY project, month"
    )
    rows = driver.execute("SELECT project, month, amount_usd FROM monthly_spending")
    told = {(project, month): amount for project, month, amount in rows}
    for project, month, amount_usd in billed:
        if abs(told.get((project, month), 0.0) - amount_usd) > 1e-9:
            detail = f"{project} {month}: {told.get((project, month))}, {amount_usd}"
            yield "a month is the sum of its bills", detail


def _nothing_is_left(driver: sqlite3.Connection) -> Iterator[tuple[str, str]]:
    """At rest nothing is held but by who lives."""
    for table in ("held_gpus", "held_ports", "held_links"):
        left = driver.execute(
            f"SELECT count(*) FROM {table} WHERE allocation_id NOT IN "  # noqa: S608
            "(SELECT allocation_id FROM allocations WHERE state <> 'ended')"
        ).fetchone()[0]
        if left:
            yield "what has ended holds nothing", f"{left} rows of {table}"
