"""Whatever ends a worker, it ends soon, with a cause and an exit code that tell what to do."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.xdist_group("stage-workers")

DEAF = Path(__file__).with_name("deaf_worker.py")


def test_a_port_that_is_taken(gangs: Any) -> None:
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        port = other.getsockname()[1]
        (worker,) = gangs.start(gangs.plan(2), 2, ranks=[0], port=port)

        assert worker.exit_code() == 10
    assert worker.end["cause"] == "port-taken"
    assert f"MASTER_PORT {port}" in worker.end["detail"]


@pytest.mark.parametrize(
    ("present", "told"), [([0, 2], "did not come within 2 s: 1 "), ([1], "could not reach rank 0")]
)
def test_a_rank_that_never_comes(gangs: Any, present: list[int], told: str) -> None:
    workers = gangs.start(gangs.plan(3), 3, ranks=present, env={"BACE_RENDEZVOUS_TIMEOUT": "2"})

    assert [worker.exit_code() for worker in workers] == [11] * len(present)
    assert workers[0].end["cause"] == "rendezvous-timeout"
    assert told in workers[0].end["detail"]


def test_a_peer_that_hangs(gangs: Any) -> None:
    workers = gangs.start(gangs.plan(2, steps=100_000), 2, env={"BACE_PEER_TIMEOUT": "2"})
    gangs.until(lambda: len(workers[1].losses) >= 2, "two steps")
    workers[0].send(signal.SIGSTOP)

    assert workers[1].exit_code() == 12
    assert workers[1].end["cause"] == "peer-lost"


def test_a_peer_that_dies_where_nothing_else_tells_of_it(gangs: Any) -> None:
    """As where gloo has lost a send. The others learn of it one from the other, long before a time-out."""
    workers = gangs.start(gangs.plan(3, binding="hint", checkpoint_every=20), 3, script=DEAF)
    gangs.until(lambda: all(worker.reports("ready") for worker in workers), "the gang")
    workers[0].send(signal.SIGKILL)

    assert [worker.exit_code() for worker in workers[1:]] == [12, 12], workers[1].log.read_text()
    assert [worker.end["cause"] for worker in workers[1:]] == ["peer-lost"] * 2


def test_a_corpus_that_is_missing(gangs: Any) -> None:
    (worker,) = gangs.start(gangs.plan(1, corpus="/nowhere/corpus.txt"), 1)

    assert worker.exit_code() == 14
    assert worker.end["cause"] == "corpus-missing"
    assert "/nowhere/corpus.txt" in worker.end["detail"]


def test_stages_that_read_different_corpora(gangs: Any) -> None:
    texts = [gangs.folder / "one.txt", gangs.folder / "two.txt"]
    for text in texts:
        text.write_text(f"the text of {text.name} " * 20)
    workers = [
        gangs.start(gangs.plan(2, corpus=str(text)), 2, ranks=[rank], port=port)[0]
        for port in [gangs.free_port()]
        for rank, text in enumerate(texts)
    ]

    assert [worker.exit_code() for worker in workers] == [12, 16]
    assert workers[1].end["cause"] == "corpus-differs"


def test_a_checkpoint_that_is_not_there(gangs: Any) -> None:
    (worker,) = gangs.start(gangs.plan(1, resume_step=40), 1)

    assert worker.exit_code() == 17
    assert worker.end["cause"] == "checkpoint-unusable"
    assert str(gangs.checkpoint_root) in worker.end["detail"]


def test_a_file_in_the_place_of_the_checkpoints_ends_it_before_it_trains(gangs: Any) -> None:
    (gangs.folder / "file").write_text("not a folder")
    uri = (gangs.folder / "file" / "checkpoints").as_uri()
    (worker,) = gangs.start(gangs.plan(1, checkpoint_uri=uri), 1)

    assert worker.exit_code() == 2
    assert worker.end["cause"] == "invalid-plan"
    assert "file is a file, not a folder" in worker.end["detail"]
    assert worker.losses == {}


def test_the_module_runs_by_its_name_and_refuses_what_it_cannot_do(gangs: Any) -> None:
    """As the agent starts it: `{python} -m agents.worker`. Refusing does not wait for the import of torch."""
    report = gangs.folder / "by-name.jsonl"
    env = {
        "BACE_PLAN": gangs.plan(1).model_dump_json(), "BACE_TENSOR_SIZE": "2", "BACE_REPORT": str(report),
        "PATH": os.environ["PATH"],
    }  # fmt: skip
    ended = subprocess.run(
        [sys.executable, "-m", "agents.worker"], env=env, capture_output=True, text=True, check=False
    )

    assert ended.returncode == 2
    assert '"cause": "invalid-plan"' in report.read_text()
    assert "BACE_TENSOR_SIZE is 2" in ended.stderr
