"""With 100,000 jobs in its history a server is ready in seconds, and lists them at once, at any page."""

from __future__ import annotations

import json
import time
from pathlib import Path

import pytest

from service.db import migrate
from service.db.engine import make_engine
from tests.perf.history import fill
from tests.perf.load import Connection, ServerProcess, on_the_other_core

pytestmark = [pytest.mark.perf, pytest.mark.timeout(600)]

JOBS = 100_000
READY_S, LIST_S = 5.0, 0.05
DEPTHS = (1, 20, 200)
"""Pages from the newest on."""


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
        link = Connection(server.port, (tmp_path / "admin-token").read_text().strip())
        with on_the_other_core():
            await link.call("GET", "/v1/jobs?limit=1")  # a server's first list: its statements are made
            for query in ("", "&state=succeeded", "&state=succeeded&state=failed", "&project=nlp"):
                await _walk(server, link, query)
        link.close()
    finally:
        server.end()


async def _walk(server: ServerProcess, link: Connection, query: str) -> None:
    """Page by page as deep as asked for; each page in the time that a list may take."""
    cursor, taken_s = "", {}
    for page in range(1, max(DEPTHS) + 1):
        asked_s, asked_cpu_s = time.perf_counter(), server.cpu_s()
        status, body = await link.call("GET", f"/v1/jobs?limit=100{query}{cursor}")
        answered_s = time.perf_counter() - asked_s
        assert status == 200, body
        cursor = f"&cursor={json.loads(body)['next']}"
        if page in DEPTHS:
            # A tick of the processor's clock is 10 ms; other processes lengthen the wall's alone.
            taken_s[page] = min(answered_s, server.cpu_s() - asked_cpu_s + 0.01)
    print(
        f"jobs?limit=100{query}: "
        + ", ".join(f"page {page} {1000 * s:.0f} ms" for page, s in taken_s.items())
    )
    assert max(taken_s.values()) < LIST_S
