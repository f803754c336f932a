"""With 100,000 jobs in its history a server is ready in seconds, and lists them at once, at any page."""

from __future__ import annotations

import contextlib
import json
import time
from itertools import product
from pathlib import Path

import pytest

from scheduler.job import JobState
from service import limits
from service.db import migrate
from service.db.engine import make_engine
from tests.perf.history import fill
from tests.perf.load import Connection, ServerProcess, on_the_other_core

pytestmark = [pytest.mark.perf, pytest.mark.timeout(600)]

JOBS = 100_000
READY_S, LIST_S = 5.0, 0.05
LIMITS = (limits.PAGE_DEFAULT, limits.JOB_PAGE_MAX)
QUERIES = ("", "&state=succeeded", "".join(f"&state={state}" for state in JobState), "&project=nlp")
DEPTHS = (1, 20, 200)
"""Pages from the newest on."""
TRIES = 3
"""Of one page: the server has other things to do now and then."""


@pytest.fixture(params=["sqlite", pytest.param("postgres", marks=pytest.mark.postgres)])
def database(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """The URL of a filled database."""
    on_file = f"sqlite:///{tmp_path / 'bace.db'}"
    url = on_file if request.param == "sqlite" else str(request.getfixturevalue("postgres_url"))
    engine = make_engine(url)
    migrate.upgrade(engine)
    begin_s = time.monotonic()
    fill(engine, JOBS)
    engine.dispose()
    print(f"\n{JOBS:,} jobs stored in {time.monotonic() - begin_s:.0f} s")
    return url


async def test_it_is_ready_in_seconds_and_lists_any_page_at_once(database: str, tmp_path: Path) -> None:
    server = ServerProcess(tmp_path, ["service.cli.main", "server"], {"BACE_DATABASE_URL": database})
    try:
        ready_s, cpu_s = server.wait(), server.cpu_s()
        print(f"ready after {ready_s:.1f} s, {cpu_s:.1f} s of them of a processor")
        assert cpu_s < READY_S, "what it takes where nobody else wants the processor"
        with (
            contextlib.closing(
                Connection(server.port, (tmp_path / "admin-token").read_text().strip())
            ) as link,
            on_the_other_core(),
        ):
            await link.call("GET", "/v1/jobs?limit=1")  # a server's first list: its statements are made
            taken_s = {
                (query, limit): await _walk(server, link, query, limit)
                for query, limit in product(QUERIES, LIMITS)
            }
    finally:
        server.end()
    too_long = {asked: pages for asked, pages in taken_s.items() if max(pages.values()) >= LIST_S}
    assert not too_long


async def _walk(server: ServerProcess, link: Connection, query: str, limit: int) -> dict[int, float]:
    """Page by page to the deepest; what those of `DEPTHS` take, each the best of `TRIES`."""
    cursor, taken_s = "", {}
    for page in range(1, max(DEPTHS) + 1):
        path = f"/v1/jobs?limit={limit}{query}{cursor}"
        tries_s = []
        for _ in range(TRIES if page in DEPTHS else 1):
            asked_s, asked_cpu_s = time.perf_counter(), server.cpu_s()
            status, body = await link.call("GET", path)
            answered_s = time.perf_counter() - asked_s
            assert status == 200, body
            # A tick of the processor's clock is 10 ms; other processes lengthen the wall's alone.
            tries_s.append(min(answered_s, server.cpu_s() - asked_cpu_s + 0.01))
        cursor = f"&cursor={json.loads(body)['next']}"
        if page in DEPTHS:
            taken_s[page] = min(tries_s)
    told = ", ".join(f"page {page} {1000 * s:.0f} ms" for page, s in taken_s.items())
    print(f"jobs?limit={limit}{query}: {told}")
    return taken_s
