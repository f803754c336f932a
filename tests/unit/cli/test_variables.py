"""A BACE_* variable that nothing reads is told, and every one that something reads is known."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest
from typer.testing import Result

import service
from service.cli.exits import Exit
from service.cli.variables import unread

Bace = Callable[..., Result]
ROOT = Path(service.__file__).parent.parent


def test_every_variable_that_the_code_names_is_known() -> None:
    named = {
        name
        for package in ("service", "scheduler", "agents")
        for source in (ROOT / package).rglob("*.py")
        for name in re.findall(r"\"(BACE_[A-Z0-9_]*[A-Z0-9])\"", source.read_text(encoding="utf-8"))
    }
    assert "BACE_RESUME_STEP" in named
    assert unread(dict.fromkeys(named, "")) == {}


def test_what_nothing_reads_comes_with_the_nearest_name() -> None:
    environment = {
        "BACE_LEASSE_S": "5",
        "BACE_ZZZ": "",
        "BACE_SECRET_HUB": "",
        "BACE_TEST_REDIS_URL": "",
        "HOME": "",
    }
    assert unread(environment) == {"BACE_LEASSE_S": "BACE_LEASE_S", "BACE_ZZZ": ""}


@pytest.mark.parametrize(
    ("name", "value", "told"),
    [
        ("BACE_LEASE_S", "abc", "BACE_LEASE_S: 'abc' is not valid: expected a valid number"),
        ("BACE_LEASE_S", "1", "BACE_LEASE_S: 1.0 is not valid: expected more than two heartbeats"),
        ("BACE_POLICY", "foo", "BACE_POLICY: 'foo' is not valid: expected one of fifo"),
        ("BACE_HOST", "0.0.0.0", "BACE_HOST: '0.0.0.0' is not valid: expected 127.0.0.1"),  # noqa: S104 - refused
    ],
)
def test_a_wrong_setting_is_told_by_its_variable_and_value(
    bace: Bace, monkeypatch: pytest.MonkeyPatch, name: str, value: str, told: str
) -> None:
    monkeypatch.setattr("service.logging.configure", lambda: None)  # it is of the whole process
    monkeypatch.setattr("uvicorn.Server.run", lambda _: pytest.fail("it serves"))
    monkeypatch.setenv(name, value)
    monkeypatch.setenv("BACE_LEASSE_S", "5")
    result = bace("server")
    assert result.exit_code == Exit.USAGE
    assert told in result.output
    assert "Warning: BACE_LEASSE_S is set, and nothing reads it: did you mean BACE_LEASE_S?" in result.output
