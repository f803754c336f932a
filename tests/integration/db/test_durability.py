"""Acknowledged means durable: what a process said was stored is there after `kill -9` of it at any moment."""

from __future__ import annotations

import subprocess
import sys

from sqlalchemy import Engine

from service.db.engine import Mode
from service.db.repositories import access
from service.db.scope import EVERYTHING
from service.db.transaction import transact

WRITER = """
import sys
from service.db.engine import Mode, make_engine
from service.db.repositories import access
from service.db.transaction import transact
engine = make_engine(sys.argv[1])
for number in range(1_000_000):
    transact(engine, Mode.WRITE, lambda session: access.ensure_project(session, f"p{number}", 0.0))
    print(f"p{number}", flush=True)
"""
ACKNOWLEDGED = 40


def test_what_was_acknowledged_survives_kill_9(engine: Engine) -> None:
    url = engine.url.render_as_string(hide_password=False)
    with subprocess.Popen([sys.executable, "-c", WRITER, url], stdout=subprocess.PIPE, text=True) as writer:
        assert writer.stdout is not None
        acknowledged = [writer.stdout.readline().strip() for _ in range(ACKNOWLEDGED)]
        writer.kill()  # in the middle of whatever it does next
        acknowledged += writer.stdout.read().split()
    found, _ = transact(engine, Mode.READ, lambda session: access.projects(session, EVERYTHING))
    stored = {project.project for project in found}
    assert len(acknowledged) >= ACKNOWLEDGED
    assert set(acknowledged) <= stored
    assert len(stored) <= len(set(acknowledged)) + 1, "at most the one that was not acknowledged any more"
