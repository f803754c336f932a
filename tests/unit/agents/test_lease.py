"""The lease: from the sending of the heartbeat, across restarts of the agent, not across those of the machine."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from agents.lease import Lease, boot_clock_s, read_deadline, write_deadline


def test_it_runs_from_the_moment_of_sending(tmp_path: Path) -> None:
    lease = Lease(str(tmp_path / "lease"))
    assert not lease.valid(100.0)
    lease.renew(sent_at_s=100.0, lease_s=10.0)
    assert lease.valid(109.9)
    assert not lease.valid(110.0)
    assert lease.remaining_s(104.0) == 6.0
    assert lease.remaining_s(200.0) == 0.0


def test_a_restarted_agent_goes_on_with_what_was_left(tmp_path: Path) -> None:
    path = str(tmp_path / "lease")
    Lease(path).renew(sent_at_s=100.0, lease_s=10.0)
    assert Lease(path).remaining_s(108.0) == 2.0


@pytest.mark.parametrize(
    "content",
    ["", "{", "[1]", json.dumps({"boot_id": "of another start", "deadline_s": 1e9}), '{"deadline_s": 1e9}'],
)
def test_a_file_that_is_not_whole_or_of_another_boot_gives_no_lease(content: str, tmp_path: Path) -> None:
    (tmp_path / "lease").write_text(content)
    assert read_deadline(str(tmp_path / "lease")) is None
    assert not Lease(str(tmp_path / "lease")).valid(0.0)


def test_the_clock_goes_forward_and_the_file_is_read_back(tmp_path: Path) -> None:
    now_s = boot_clock_s()
    assert boot_clock_s() >= now_s > 0
    write_deadline(str(tmp_path / "lease"), now_s + 5)
    assert read_deadline(str(tmp_path / "lease")) == now_s + 5
