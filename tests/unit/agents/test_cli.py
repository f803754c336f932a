"""`bace-agent`: what is wrong is named on standard error, with the exit code that the docs promise."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
from typer.testing import CliRunner

from agents import cli
from agents.doctor import Finding
from agents.errors import ProbeError
from agents.inventory import Gpu
from agents.processes import Log
from agents.settings import AgentSettings
from agents.start import default_work_dir
from agents.workdir import WorkDir

GOOD = ["--region", "eu-1", "--cpu-slots", "2", "--node", "a"]


class Ran:
    """Stands in for the running agent: keeps what it was to run with."""

    settings: AgentSettings
    log: Log

    def __call__(
        self, settings: AgentSettings, gpus: Sequence[Gpu], log: Log, ending: threading.Event
    ) -> None:
        self.settings, self.log = settings, log


@pytest.fixture
def ran(monkeypatch: pytest.MonkeyPatch) -> Iterator[Ran]:
    stand_in = Ran()
    monkeypatch.setattr(cli, "run_agent", stand_in)
    monkeypatch.setattr(cli, "_ending", threading.Event)
    monkeypatch.delenv("BACE_URL", raising=False)
    monkeypatch.setenv("BACE_TOKEN", "bace_t")
    return stand_in


def run(*arguments: str) -> tuple[int, str]:
    result = CliRunner().invoke(cli.app, arguments)
    return result.exit_code, result.output


def test_options_come_to_settings(ran: Ran, tmp_path: Path) -> None:
    (tmp_path / "token").write_text("bace_from-file\n")
    code, output = run(
        *GOOD, "--token-file", str(tmp_path / "token"), "--node", "b", "--ports", "3000-3009",
        "--work-dir", str(tmp_path / "w"), "--memory", "2GB", "--stop-workers-on-exit", "--url", "https://bace.test/",
    )  # fmt: skip
    assert code == 0, output
    settings = ran.settings
    assert (settings.url, settings.token) == ("https://bace.test", "bace_from-file")
    assert [(n.node_id, n.region, n.port_first, n.memory_bytes) for n in settings.nodes] == [
        ("a", "eu-1", 3000, 2e9),
        ("b", "eu-1", 3005, 2e9),
    ]
    assert settings.stop_workers_on_exit
    assert settings.secrets_dir == tmp_path / "w" / "secrets"


def test_url_and_token_come_from_the_environment(ran: Ran, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BACE_URL", "http://10.9.8.7:1")
    monkeypatch.setenv("BACE_TOKEN", "bace_env")
    code, output = run("--region", "eu", "--cpu-slots", "1")
    assert code == 0
    assert (ran.settings.url, ran.settings.token) == ("http://10.9.8.7:1", "bace_env")
    assert "unencrypted" in output
    assert "bace_env" not in output
    assert len(ran.settings.nodes) == 1, "the machine's own name"


def test_what_workers_get_of_the_environment_is_an_option_or_a_variable(
    ran: Ran, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("AWS_CONFIG_FILE", "AWS_PROFILE"):
        monkeypatch.setenv(name, "x")
    assert run(*GOOD, "--worker-env", "AWS_CONFIG_FILE")[0] == 0
    assert ran.settings.worker_env == ("AWS_CONFIG_FILE",)
    monkeypatch.setenv("BACE_WORKER_ENV", "AWS_CONFIG_FILE AWS_PROFILE")
    assert run(*GOOD)[0] == 0
    assert ran.settings.worker_env == ("AWS_CONFIG_FILE", "AWS_PROFILE")


@pytest.mark.parametrize("token", ["", "two words"])
def test_without_a_good_token_it_says_where_one_is_looked_for(
    ran: Ran, monkeypatch: pytest.MonkeyPatch, token: str
) -> None:
    monkeypatch.setenv("BACE_TOKEN", token)
    code, output = run(*GOOD)
    assert (code, "BACE_TOKEN" in output) == (2, True), output


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        ([*GOOD, "--token", "bace_t"], "--token"),
        ([*GOOD, "--token-file", "/no/such/file"], "--token-file"),
        ([*GOOD, "--url", "nowhere"], "--url"),
        ([*GOOD, "--node", "../b"], "--node: '../b'"),
        ([*GOOD, "--nodes", "/no/such/file"], "--node"),
        ([*GOOD, "--ports", "1-2"], "--ports"),
        ([*GOOD, "--cpu-slots", "0"], "--cpu-slots"),
        ([*GOOD, "--idle-w", "nan"], "--idle-w"),
        ([*GOOD, "--memory", "much"], "--memory"),
        ([*GOOD, "--worker-env", "BACE_TOKEN"], "--worker-env"),
        ([*GOOD, "--worker-env", "NO_SUCH_VARIABLE"], "--worker-env"),
        (["--cpu-slots", "1"], "--region"),
        ([*GOOD, "--probe-seconds", "0"], "--probe-seconds"),
        ([*GOOD, "doctor", "--peer", "nowhere"], "--peer"),
    ],
)
def test_a_wrong_setting_is_named_and_ends_with_2(arguments: list[str], named: str, ran: Ran) -> None:
    code, output = run(*arguments)
    assert (code, named in output) == (2, True), output
    assert "Traceback" not in output


def test_an_agent_that_cannot_begin_ends_with_3(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("BACE_TOKEN", "bace_t")
    taken = WorkDir(tmp_path / "w")
    taken.lock()
    code, output = run(*GOOD, "--work-dir", str(tmp_path / "w"), "--sustained-flops", "1e9")
    assert (code, "another agent runs in" in output) == (3, True), output
    taken.unlock()

    def cannot(*_: object) -> None:
        raise ProbeError("no torch")

    monkeypatch.setattr(cli, "run_agent", cannot)
    assert run(*GOOD)[0] == 3


@pytest.mark.parametrize(("ok", "code"), [(True, 0), (False, 1)])
def test_the_doctor_ends_with_1_where_something_is_wrong(
    ok: bool, code: int, ran: Ran, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    findings = [Finding("one", True, "[fine]"), Finding("two", ok, "seen", "do this")]
    monkeypatch.setattr(cli, "examine", lambda *_: iter(findings))
    got, output = run(*GOOD, "--work-dir", str(tmp_path), "--ports", "20000-20000", "doctor")
    assert got == code
    assert "one · [fine]" in output
    assert "→ do this" in output


def test_the_doctor_speaks_json(ran: Ran, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(cli, "examine", lambda *_: iter([Finding("one", False, "seen", "do this")]))
    code, output = run(*GOOD, "--work-dir", str(tmp_path), "--ports", "20000-20000", "doctor", "--json")
    assert code == 1
    finding = {"name": "one", "ok": False, "detail": "seen", "fix": "do this"}
    assert json.loads(output) == {"findings": [finding]}


def test_the_default_folder_is_the_users() -> None:
    assert default_work_dir({"XDG_DATA_HOME": "/data"}) == Path("/data/bacepipe/agent")
    assert default_work_dir({}).parts[-4:] == (".local", "share", "bacepipe", "agent")


def test_the_default_folder_is_in_the_home_that_is_named() -> None:
    assert default_work_dir({"XDG_DATA_HOME": "/data", "BACE_HOME": "/home"}) == Path("/home/agent")
