"""A server and an agent for each test; nothing of them is left afterwards."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.integration.agents.harness import AgentProcess, FakeServer, ThreadAgent, kill_all_in


@pytest.fixture
def server() -> Iterator[FakeServer]:
    with FakeServer() as fake:
        yield fake


@pytest.fixture
def agent_process(server: FakeServer, tmp_path: Path) -> Iterator[AgentProcess]:
    process = AgentProcess(tmp_path / "agent", server.url)
    yield process
    process.clean_up()
    kill_all_in(process.work_dir)


@pytest.fixture
def agent(server: FakeServer, tmp_path: Path) -> Iterator[ThreadAgent]:
    thread = ThreadAgent(tmp_path / "agent", server.url)
    yield thread
    thread.stop()
    kill_all_in(thread.work_dir)
