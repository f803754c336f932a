"""The agent's folder: private, its own, and no way out of it."""

from __future__ import annotations

import fcntl
import os
import stat
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agents.errors import SettingsError, WorkDirTakenError
from agents.workdir import ProcessFolder, WorkDir


def test_it_is_private_and_taken_by_one_agent(tmp_path: Path) -> None:
    first, second = WorkDir(tmp_path / "a"), WorkDir(tmp_path / "a")
    assert stat.S_IMODE((tmp_path / "a").stat().st_mode) == 0o700
    first.lock()
    with pytest.raises(WorkDirTakenError, match="--work-dir"):
        second.lock()
    first.unlock()
    second.lock()
    second.unlock()


def test_two_agents_on_one_machine_have_names_of_their_own_and_keep_them(tmp_path: Path) -> None:
    one, other = WorkDir(tmp_path / "a"), WorkDir(tmp_path / "b")
    assert one.agent_id() != other.agent_id()
    assert WorkDir(tmp_path / "a").agent_id() == one.agent_id()


def test_a_folder_that_cannot_be_made_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(SettingsError, match="--work-dir"):
        WorkDir(tmp_path / "file" / "below")


@given(key=st.text(alphabet="./-a0~\0é", max_size=200))
def test_no_key_leads_out_of_the_folder(key: str) -> None:
    folder = ProcessFolder.of(Path("/agent"), key)
    assert folder.path.parent == Path("/agent/run")
    assert folder.path.name.isalnum()
    assert len(str(folder.tmp)) < len("/agent") + 40


def test_a_process_folder_is_made_once(tmp_path: Path) -> None:
    folder = WorkDir(tmp_path / "a").process("x/0")
    folder.make()
    with pytest.raises(FileExistsError):
        folder.make()
    assert stat.S_IMODE(folder.work.stat().st_mode) == 0o700
    folder.remove()
    folder.remove()
    assert not folder.path.exists()


def test_removing_does_not_follow_what_the_worker_has_linked(tmp_path: Path) -> None:
    (tmp_path / "precious").mkdir()
    (tmp_path / "precious" / "file").write_text("kept")
    folder = WorkDir(tmp_path / "a").process("x/0")
    folder.make()
    (folder.work / "link").symlink_to(tmp_path / "precious")
    folder.remove()
    assert (tmp_path / "precious" / "file").read_text() == "kept"


def test_a_claim_is_given_once_and_needs_a_folder(tmp_path: Path) -> None:
    folder = WorkDir(tmp_path / "a").process("x/0")
    assert folder.claim(), "nothing can start where there is no folder"
    folder.make()
    assert folder.claim()
    assert not folder.claim()


def test_a_supervisor_lives_while_it_holds_the_lock(tmp_path: Path) -> None:
    folder = WorkDir(tmp_path / "a").process("x/0")
    folder.make()
    assert not folder.supervised()
    lock = os.open(folder.path / "lock", os.O_RDWR | os.O_CREAT)
    assert not folder.supervised()
    fcntl.flock(lock, fcntl.LOCK_EX)
    assert folder.supervised()
    os.close(lock)
    assert not folder.supervised()


def test_documents_are_not_read_through_links(tmp_path: Path) -> None:
    folder = WorkDir(tmp_path / "a").process("x/0")
    folder.make()
    (tmp_path / "elsewhere.json").write_text('{"cause": "x"}')
    assert folder.read("exit.json") is None
    (folder.path / "exit.json").symlink_to(tmp_path / "elsewhere.json")
    with pytest.raises(OSError, match="symbolic links"):
        folder.read("exit.json")


def test_the_first_cause_of_a_stop_stands(tmp_path: Path) -> None:
    folder = WorkDir(tmp_path / "a").process("x/0")
    folder.write_stop("too early")
    folder.make()
    folder.write_stop("first")
    folder.write_stop("second")
    assert folder.read("stop.json") == {"cause": "first"}
