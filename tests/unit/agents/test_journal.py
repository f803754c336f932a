"""The journal: whole records or none, a torn end tolerated, damage refused."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agents import journal as journal_module
from agents.errors import JournalError
from agents.journal import Journal

RECORDS = [{"is": "test", "n": n, "text": "zeile\n\0"} for n in range(5)]


def test_what_was_appended_is_read_again(tmp_path: Path) -> None:
    journal = Journal(tmp_path / "journal")
    journal.append(RECORDS[:2])
    journal.append(RECORDS[2:])
    journal.close()
    again = Journal(tmp_path / "journal")
    assert again.read() == RECORDS
    assert again.size_bytes == (tmp_path / "journal").stat().st_size
    again.close()


@given(cut=st.integers(0, 400), junk=st.sampled_from([b"", b"\0" * 30, b"deadbeef {\n"]))
@settings(deadline=None, max_examples=60)
def test_a_torn_end_costs_only_the_torn_record_and_the_journal_goes_on(
    cut: int, junk: bytes, tmp_path_factory: pytest.TempPathFactory
) -> None:
    path = tmp_path_factory.mktemp("torn") / "journal"
    journal = Journal(path)
    journal.append(RECORDS)
    journal.close()
    whole = path.read_bytes()
    path.write_bytes(whole[: max(0, len(whole) - cut)] + junk)
    torn = Journal(path)
    survivors = torn.read()
    assert survivors == RECORDS[: len(survivors)]
    assert len(survivors) >= whole[: max(0, len(whole) - cut)].count(b"\n")
    torn.append([{"is": "next"}])
    torn.close()
    healed = Journal(path)
    assert healed.read() == [*survivors, {"is": "next"}]
    healed.close()


def test_damage_before_a_whole_record_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "journal"
    journal = Journal(path)
    journal.append(RECORDS)
    data = bytearray(path.read_bytes())
    data[20] ^= 1
    path.write_bytes(data)
    with pytest.raises(JournalError, match="damaged at byte 0"):
        journal.read()
    assert path.read_bytes() == bytes(data), "damage is left for a person to look at"
    journal.close()


def test_a_full_disk_leaves_nothing_of_the_record(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    journal = Journal(tmp_path / "journal")
    journal.append(RECORDS[:1])

    def half_then_full(file: int, data: bytes) -> int:
        os.pwrite(file, data[: len(data) // 2], 0)
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(journal_module, "_write_all", half_then_full)
        with pytest.raises(JournalError, match="No space left"):
            journal.append(RECORDS[1:2])
    journal.append(RECORDS[2:3])
    assert journal.read() == [RECORDS[0], RECORDS[2]]
    journal.close()


def test_compaction_replaces_all_at_once(tmp_path: Path) -> None:
    journal = Journal(tmp_path / "journal")
    journal.append(RECORDS)
    journal.replace(RECORDS[:1])
    journal.append(RECORDS[1:2])
    assert journal.read() == RECORDS[:2]
    journal.close()


def test_a_journal_that_is_a_link_is_not_followed(tmp_path: Path) -> None:
    (tmp_path / "elsewhere").write_bytes(b"")
    (tmp_path / "journal").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(OSError, match="symbolic links"):
        Journal(tmp_path / "journal")
