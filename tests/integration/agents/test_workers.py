"""One agent above real workers: what is started, told, refused and stopped."""

from __future__ import annotations

import json
import signal
from pathlib import Path

import pytest

from tests.integration.agents.harness import (
    STEPPING,
    TELLING,
    FakeServer,
    ThreadAgent,
    alive,
    stage,
    wait_until,
)


def test_a_worker_runs_reports_and_its_exit_code_is_told(server: FakeServer, agent: ThreadAgent) -> None:
    script = TELLING + (
        "tell(kind='ready')\n"
        "tell(kind='step', step=1, loss=float('nan'), step_time_s=0.5, tokens=7)\n"
        "tell(kind='busy', from_s=1, to_s=2, busy_fraction=0.5)\n"
        "print('hello'); print('last words', file=sys.stderr)\n"
        "tell(kind='end', cause='port-taken', detail='29500')\n"
        "sys.exit(7)\n"
    )
    server.want(stage(script))
    agent.start()
    wait_until(lambda: server.state("alloc-1/0") == "exited", "the end of the worker")
    told = server.processes["alloc-1/0"]
    assert (told.exit_code, told.cause, told.detail) == (7, "port-taken", "29500")
    assert told.last_lines[-2:] == ["hello", "last words"]
    wait_until(lambda: len(server.reports) == 3, "step, busy and log")
    assert server.steps("alloc-1/0") == [1]
    assert server.lines("alloc-1/0") == ["hello", "last words"]
    offer = server.joins[0].nodes[0]
    assert (offer.node_id, offer.region, offer.gpus, offer.gpu.name) == ("node-a", "eu-test", 4, "cpu-slot")


def test_a_forgotten_key_is_cleaned_up_and_never_started_again(
    server: FakeServer, agent: ThreadAgent
) -> None:
    server.forgetting = True
    server.want(stage("print('once')"))
    agent.start()
    wait_until(lambda: server.state("alloc-1/0") == "exited", "its end")
    wait_until(lambda: not list(agent.work_dir.glob("run/*")), "the clean-up")
    agent.stop()
    agent.start()
    beats = len(server.beats)
    wait_until(lambda: len(server.beats) > beats + 5, "some more replies that still desire it")
    assert len(server.joins) == 2
    assert not list(agent.work_dir.glob("run/*"))
    assert server.lines("alloc-1/0") == ["once"]


def test_without_answers_the_lease_runs_out_and_the_workers_are_stopped(
    server: FakeServer, agent: ThreadAgent
) -> None:
    server.lease_s = 1.0
    server.want(stage(STEPPING))
    agent.start()
    wait_until(lambda: server.state("alloc-1/0") == "ready", "the worker")
    worker = agent.running()[0]["worker_pid"]
    server.answering = False
    wait_until(lambda: not alive(worker), "the end of the worker without a server")
    server.desired.clear()
    server.answering = True
    wait_until(lambda: server.state("alloc-1/0") == "stopped", "the news of the end")
    assert server.processes["alloc-1/0"].cause == "lease-expired"


def test_secrets_reach_the_worker_and_nothing_else(
    server: FakeServer, agent: ThreadAgent, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    canary = "canary-4f1c"
    (tmp_path / "secrets").mkdir()
    (tmp_path / "secrets" / "api").write_text(canary + "\n")
    script = (
        "import os, json\n"
        f"assert os.environ['API_KEY'] == '{canary[:6]}' + '{canary[6:]}'\n"
        "assert os.environ['HUB'] == os.environ['API_KEY']\n"
        "assert 'BACE_TOKEN' not in os.environ\n"
        "print('my key is', os.environ['API_KEY'])\n"
    )
    server.want(stage(script, secrets={"API_KEY": "file:api", "HUB": "env:HUB"}))
    monkeypatch.setenv("BACE_SECRET_HUB", canary)
    monkeypatch.setenv("BACE_TOKEN", "not for workers")
    agent.start(secrets_dir=tmp_path / "secrets")
    wait_until(lambda: server.state("alloc-1/0") == "exited", "its end")
    assert server.processes["alloc-1/0"].exit_code == 0, server.processes["alloc-1/0"].last_lines
    assert server.lines("alloc-1/0") == ["my key is [secret]"]
    agent.stop()
    kept = [path for path in tmp_path.rglob("*") if path.is_file() and "secrets" not in path.parts]
    assert kept
    for path in kept:
        assert canary not in path.read_text(errors="replace"), path
    assert canary not in repr(agent.log.entries)
    assert canary not in json.dumps([beat.model_dump(mode="json") for beat in server.beats])


def test_a_worker_gets_of_the_agents_environment_what_the_agent_was_told_to_pass(
    server: FakeServer, agent: ThreadAgent, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_CONFIG_FILE", "/etc/aws/config")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "not for workers")
    server.want(
        stage("import os; print([os.environ.get('AWS_' + n) for n in ('CONFIG_FILE', 'SECRET_ACCESS_KEY')])")
    )
    agent.start(worker_env=("AWS_CONFIG_FILE",))
    wait_until(lambda: server.state("alloc-1/0") == "exited", "its end")
    assert server.lines("alloc-1/0") == ["['/etc/aws/config', None]"]


def test_what_cannot_be_meant_is_refused_and_touches_nothing(server: FakeServer, agent: ThreadAgent) -> None:
    hostile = {
        "a/../../etc": {},
        "a//0": {},
        "env/0": {"env": {"LD_PRELOAD": "/tmp/x.so"}},
        "env/1": {"env": {"BACE_TOKEN": "x"}, "gpu_indices": [1]},
        "node/0": {"node_id": "somebody-elses"},
        "gpu/0": {"gpu_indices": [4]},
        "gpu/1": {"gpu_indices": [0, 0]},
        "secret/0": {"secrets": {"X": "file:../../etc/passwd"}, "gpu_indices": [2]},
        "nul/0": {"argv": ["/bin/echo", "a\x00b"], "gpu_indices": [3]},
    }
    for key, changes in hostile.items():
        server.want(stage("open('/tmp/never','w')", key=key, **changes))
    server.want(stage("", key="gone/0", argv=["/no/such/program"]))
    agent.start()
    wait_until(lambda: set(server.processes) == {*hostile, "gone/0"}, "an answer to every one of them")
    wait_until(lambda: server.state("gone/0") == "failed-to-start", "the end of the one that was tried")
    for key in hostile:
        assert server.state(key) == "failed-to-start", key
    causes = {key: server.processes[key].cause for key in server.processes}
    assert causes["a/../../etc"] == "refused"
    assert causes["env/0"] == "environment-refused"
    assert causes["secret/0"] == "secret-missing"
    assert causes["gone/0"] == "not-executable"
    assert "LD_PRELOAD" in (server.processes["env/0"].detail or "")
    assert agent.running() == []


def test_a_start_waits_until_the_gpu_is_free(server: FakeServer, agent: ThreadAgent) -> None:
    stubborn = (
        "import signal, time\nsignal.signal(signal.SIGTERM, signal.SIG_IGN)\nprint('up')\ntime.sleep(60)\n"
    )
    server.want(stage(stubborn, key="old/0", stop={"signal": "TERM", "grace_s": 0.6}))
    agent.start()
    wait_until(lambda: server.lines("old/0") == ["up"], "the first generation")
    first = agent.running()[0]["worker_pid"]
    server.desired.clear()
    server.want(stage("import time; print('mine'); time.sleep(60)", key="new/0"))
    overlap = []

    def second_runs() -> bool:
        mine = [d["worker_pid"] for d in agent.running() if d["worker_pid"] != first]
        overlap.append(bool(mine) and alive(first))
        return bool(mine)

    wait_until(second_runs, "the second generation")
    assert not any(overlap), "two generations ran at once"
    assert server.processes["old/0"].exit_code == -signal.SIGKILL
    assert server.processes["old/0"].detail == "killed: it did not end within its grace"
