"""Commands find the server, and a token never goes where it does not belong."""

from __future__ import annotations

from pathlib import Path

import pytest

from service.cli import home
from service.cli.exits import CommandError

TOKEN = "bace_local"


@pytest.fixture(autouse=True)
def own_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("BACE_HOME", str(tmp_path))
    monkeypatch.delenv("BACE_URL", raising=False)
    monkeypatch.delenv("BACE_TOKEN", raising=False)
    (tmp_path / home.TOKEN_FILE).write_text(TOKEN + "\n")
    return tmp_path


def test_the_address_that_up_left_is_used_until_it_is_taken_away(own_home: Path) -> None:
    assert home.server_url() == home.DEFAULT_URL
    home.write_address("http://127.0.0.1:9000", own_home)
    assert home.server_url() == "http://127.0.0.1:9000"
    home.remove_address("http://127.0.0.1:1234")
    assert home.server_url() == "http://127.0.0.1:9000", "another server's address is not ours to remove"
    home.remove_address("http://127.0.0.1:9000")
    assert home.server_url() == home.DEFAULT_URL


def test_the_environment_comes_first(own_home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    home.write_address("http://127.0.0.1:9000", own_home)
    monkeypatch.setenv("BACE_URL", "https://bace.example.org/")
    monkeypatch.setenv("BACE_TOKEN", "bace_given")
    assert home.server_url() == "https://bace.example.org"
    assert home.server_token(home.server_url()) == "bace_given"


@pytest.mark.parametrize(
    ("url", "token"),
    [
        ("http://127.0.0.1:8642", TOKEN),
        ("http://localhost:1", TOKEN),
        ("http://[::1]:1", TOKEN),
        ("https://bace.example.org", None),
        ("http://127.0.0.1.example.org", None),
        ("http://localhost.example.org", None),
        ("http://10.0.0.1:8642", None),
    ],
)
def test_the_local_admin_token_stays_on_this_machine(url: str, token: str | None) -> None:
    assert home.server_token(url) == token


def test_the_token_of_the_running_server_is_found_in_its_own_folder(own_home: Path, tmp_path: Path) -> None:
    other = tmp_path / "demo"
    other.mkdir()
    (other / home.TOKEN_FILE).write_text("bace_demo\n")
    home.write_address("http://127.0.0.1:9000", other)
    assert home.server_token("http://127.0.0.1:9000") == "bace_demo"
    assert home.server_token("http://127.0.0.1:8642") == TOKEN


def test_one_folder_has_one_up_at_a_time(own_home: Path) -> None:
    home.write_address("http://127.0.0.1:9000", own_home)
    with home.only_one_up():
        with (
            pytest.raises(CommandError, match=f"BACE_HOME={own_home}, at http://127.0.0.1:9000"),
            home.only_one_up(),
        ):
            pytest.fail("two of them ran")
        assert home.server_url() == "http://127.0.0.1:9000", "the first one can still be found"
    with home.only_one_up():
        pass
