"""The supervisor and what it keeps: at most one start, limits, grace, orphans, output, the lease."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from agents.environment import Execution
from agents.errors import RefusedError
from agents.lease import boot_clock_s, write_deadline
from agents.logs import last_lines
from agents.outputlog import SEGMENT_BYTES, SEGMENTS_KEPT
from agents.protocol import ProcessState, StopProtocol
from agents.runtime import Ended, Launch, LocalLauncher
from agents.workdir import ProcessFolder, WorkDir
from tests.integration.agents.harness import alive, kill_all_in, running_in, wait_until

KEY = "alloc-1/0"


@pytest.fixture
def work_dir(tmp_path: Path) -> Iterator[WorkDir]:
    folder = WorkDir(tmp_path / "agent")
    write_deadline(folder.lease_file, boot_clock_s() + 60)
    yield folder
    kill_all_in(folder.path)


@pytest.fixture
def launcher(work_dir: WorkDir) -> LocalLauncher:
    return LocalLauncher(work_dir)


def launch(script: str, *, key: str = KEY, stop_signal: str = "TERM", grace_s: float = 2.0) -> Launch:
    execution = Execution((sys.executable, "-u", "-c", script), {"PATH": os.defpath}, ())
    stop = StopProtocol.model_validate({"signal": stop_signal, "grace_s": grace_s})
    return Launch(key, execution, stop, memory_bytes=None)


def end_of(launcher: LocalLauncher, key: str = KEY) -> Ended:
    ended: Ended = wait_until(lambda: launcher.ended(key), f"the end of {key}")
    return ended


def folder_of(work_dir: WorkDir) -> ProcessFolder:
    return work_dir.process(KEY)


def late_supervisor(work_dir: WorkDir, script: str) -> None:
    """One that an agent started and did not live to see; returns when it has done whatever it does."""
    document = {
        "argv": [sys.executable, "-c", script],
        "env": {},
        "mask": [],
        "stop_signal": "TERM",
        "grace_s": 1.0,
        "memory_bytes": None,
        "lease_file": work_dir.lease_file,
    }
    folder = work_dir.process(KEY)
    subprocess.run(
        [sys.executable, "-I", "-m", "agents.supervisor", str(folder.path)],
        input=json.dumps(document).encode(),
        timeout=20,
        check=True,
    )
    wait_until(lambda: not folder.supervised(), "the end of the late supervisor")


def test_limits_hold_inside_the_worker(launcher: LocalLauncher, work_dir: WorkDir) -> None:
    script = (
        "import json, os, resource as r, stat\n"
        "status = open('/proc/self/status').read()\n"
        "json.dump(dict(core=r.getrlimit(r.RLIMIT_CORE), data=r.getrlimit(r.RLIMIT_DATA),\n"
        "  no_new_privs='NoNewPrivs:\\t1' in status, cwd=os.getcwd(), session=os.getsid(0) == os.getpid(),\n"
        "  names=sorted(os.environ), mode=stat.S_IMODE(os.stat('.').st_mode),\n"
        "  oom=open('/proc/self/oom_score_adj').read().strip(), umask=os.umask(0),\n"
        "  stdin=os.readlink('/proc/self/fd/0')), open('seen.json', 'w'))\n"
    )
    plain = launch(script)
    launcher.start(Launch(KEY, plain.execution, plain.stop, memory_bytes=3 * 2**30))
    assert end_of(launcher) == Ended(ProcessState.EXITED, 0)
    folder = folder_of(work_dir)
    seen = json.loads((folder.work / "seen.json").read_text())
    assert seen["core"] == [0, 0]
    assert seen["data"] == [3 * 2**30] * 2
    assert seen["no_new_privs"]
    assert seen["session"]
    assert Path(seen["cwd"]) == folder.work
    assert "PATH" in seen["names"]
    assert not {"HOME", "BACE_TOKEN", "VIRTUAL_ENV"} & set(seen["names"])
    assert (seen["mode"], seen["umask"], seen["oom"]) == (0o700, 0o077, "500")
    assert seen["stdin"] == os.devnull


def test_a_key_is_started_once_however_often_it_is_asked_for(
    launcher: LocalLauncher, work_dir: WorkDir
) -> None:
    script = "open('starts', 'a').write('x')"
    for _ in range(3):
        launcher.start(launch(script))
    end_of(launcher)
    launcher.start(launch(script))
    # Also a supervisor that comes late, by another way than this launcher, finds the claim taken.
    late_supervisor(work_dir, script)
    assert (folder_of(work_dir).work / "starts").read_text() == "x"


def test_a_start_that_was_given_up_never_happens(launcher: LocalLauncher, work_dir: WorkDir) -> None:
    """The agent died between its intent and the start; the next one looks, and only then the start comes."""
    assert launcher.ended(KEY) is not None
    folder_of(work_dir).make()
    ended = launcher.ended(KEY)
    assert ended is not None
    assert (ended.state, ended.cause) == (ProcessState.FAILED_TO_START, "never-started")
    late_supervisor(work_dir, "open('starts', 'a').write('x')")
    assert running_in(work_dir.path) == []
    assert not (folder_of(work_dir).work / "starts").exists()


def test_the_stop_signal_then_grace_then_sigkill(launcher: LocalLauncher) -> None:
    ignoring = "import signal, time; signal.signal(signal.SIGUSR1, signal.SIG_IGN); print(1); time.sleep(60)"
    heeding = ignoring.replace("signal.SIG_IGN", "lambda *_: exit(5)")
    for key, script in (("a/0", ignoring), ("a/1", heeding)):
        launcher.start(launch(script, key=key, stop_signal="USR1", grace_s=0.3))
    for key in ("a/0", "a/1"):
        wait_until(lambda key=key: last_lines(launcher._work_dir.process(key)), "its first word")  # type: ignore[misc]
        launcher.stop(key, "not-desired")
        launcher.stop(key, "some-other-cause")
    killed = Ended(
        ProcessState.STOPPED, -signal.SIGKILL, "not-desired", "killed: it did not end within its grace"
    )
    assert end_of(launcher, "a/0") == killed
    assert end_of(launcher, "a/1") == Ended(ProcessState.STOPPED, 5, "not-desired")


def test_what_the_worker_leaves_behind_is_killed_too(launcher: LocalLauncher, work_dir: WorkDir) -> None:
    script = (
        "import os, subprocess, sys\n"
        "sleeper = [sys.executable, '-c', 'import time; time.sleep(60)']\n"
        "child = subprocess.Popen(sleeper)\n"
        "escaped = subprocess.Popen(sleeper, start_new_session=True)\n"
        "open('pids', 'w').write(f'{child.pid} {escaped.pid}')\n"
        "os._exit(3)\n"
    )
    launcher.start(launch(script))
    assert end_of(launcher).exit_code == 3
    pids = [int(pid) for pid in (folder_of(work_dir).work / "pids").read_text().split()]
    assert len(pids) == 2
    assert not any(alive(pid) for pid in pids)


def test_how_a_worker_ended_is_told_when_the_disk_takes_it_again(
    launcher: LocalLauncher, work_dir: WorkDir
) -> None:
    in_the_way = folder_of(work_dir).path / "exit.json.new"
    launcher.start(launch("import os, sys; os.mkdir('../exit.json.new'); sys.exit(3)"))
    worker = running_in(work_dir.path)[0]["worker_pid"]
    wait_until(lambda: in_the_way.exists() and not alive(worker), "the end of the worker")
    assert launcher.ended(KEY) is None
    in_the_way.rmdir()
    assert end_of(launcher) == Ended(ProcessState.EXITED, 3)


def test_the_worker_dies_with_its_supervisor(launcher: LocalLauncher, work_dir: WorkDir) -> None:
    launcher.start(launch("import time; time.sleep(60)"))
    running = running_in(work_dir.path)[0]
    os.kill(running["supervisor_pid"], signal.SIGKILL)
    wait_until(lambda: not alive(running["worker_pid"]), "the end of the worker")
    ended = end_of(launcher)
    assert (ended.state, ended.cause) == (ProcessState.EXITED, "supervisor-lost")


def test_what_the_worker_of_a_killed_supervisor_leaves_behind_is_killed_before_its_end_is_told(
    launcher: LocalLauncher, work_dir: WorkDir
) -> None:
    script = (
        "import subprocess, sys, time\n"
        "sleeper = [sys.executable, '-c', 'import time; time.sleep(60)']\n"
        "child = subprocess.Popen(sleeper)\n"
        "escaped = subprocess.Popen(sleeper, start_new_session=True)\n"
        "open('pids.new', 'w').write(f'{child.pid} {escaped.pid}')\n"
        "__import__('os').rename('pids.new', 'pids')\n"
        "time.sleep(60)\n"
    )
    work = folder_of(work_dir).work
    environment = {"PATH": os.defpath, "BACE_WORK_DIR": str(work)}
    execution = Execution((sys.executable, "-c", script), environment, ())
    stop = StopProtocol(signal="TERM", grace_s=2.0)
    launcher.start(Launch(KEY, execution, stop, memory_bytes=None))
    wait_until((work / "pids").exists, "the worker's children")
    pids = [int(pid) for pid in (work / "pids").read_text().split()]
    os.kill(running_in(work_dir.path)[0]["supervisor_pid"], signal.SIGKILL)
    assert end_of(launcher).cause == "supervisor-lost"
    assert len(pids) == 2
    assert not any(alive(pid) for pid in pids)


def test_a_reused_pid_is_never_signalled(launcher: LocalLauncher, work_dir: WorkDir) -> None:
    """A running file that names a living process which is not the worker: same pid, another start."""
    innocent = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"], start_new_session=True)
    try:
        folder = folder_of(work_dir)
        folder.make()
        assert folder.claim()
        document = {"boot_id": Path("/proc/sys/kernel/random/boot_id").read_text().strip()}
        for who in ("worker", "supervisor"):
            document |= {f"{who}_pid": innocent.pid, f"{who}_start": "1"}  # type: ignore[dict-item]
        (folder.path / "running.json").write_text(json.dumps(document))
        assert end_of(launcher).cause == "supervisor-lost"
        launcher.stop(KEY, "not-desired")
        assert innocent.poll() is None
    finally:
        innocent.kill()
        innocent.wait()


def test_without_a_lease_the_supervisor_stops_by_itself_and_starts_nothing(
    launcher: LocalLauncher, work_dir: WorkDir
) -> None:
    write_deadline(work_dir.lease_file, boot_clock_s() + 0.8)
    launcher.start(launch("import time; time.sleep(60)"))
    assert launcher.ended(KEY) is None
    assert end_of(launcher) == Ended(ProcessState.STOPPED, -signal.SIGTERM, "lease-expired")
    launcher.start(launch("open('started', 'w')", key="alloc-2/0"))
    assert end_of(launcher, "alloc-2/0") == Ended(ProcessState.STOPPED, None, "lease-expired")
    assert not (work_dir.process("alloc-2/0").work / "started").exists()


def test_a_worker_whose_work_folder_is_lost_ends_with_the_last_lease(
    launcher: LocalLauncher, work_dir: WorkDir
) -> None:
    """Nobody can renew it, or ask for a stop, in a folder that is no longer there."""
    write_deadline(work_dir.lease_file, boot_clock_s() + 3.0)
    launcher.start(launch("import time; open('up', 'w'); time.sleep(60)"))
    wait_until((folder_of(work_dir).work / "up").exists, "the worker")
    (document,) = running_in(work_dir.path)
    running = [document["supervisor_pid"], document["worker_pid"]]
    assert all(map(alive, running))
    shutil.rmtree(work_dir.path)

    wait_until(lambda: not any(map(alive, running)), "the end of both")


def test_a_supervisor_that_slept_through_the_end_of_the_lease_leaves_no_grace(
    launcher: LocalLauncher, work_dir: WorkDir
) -> None:
    launcher.start(launch("import signal, time; signal.signal(15, 1); time.sleep(60)", grace_s=30.0))
    began_s = boot_clock_s()
    write_deadline(work_dir.lease_file, began_s - 31.0)
    ended = end_of(launcher)
    assert (ended.state, ended.exit_code) == (ProcessState.STOPPED, -signal.SIGKILL)
    assert boot_clock_s() - began_s < 15.0


def test_a_flood_of_output_is_bounded_on_disk_and_its_last_lines_are_there(
    launcher: LocalLauncher, work_dir: WorkDir
) -> None:
    lines = 6 * SEGMENT_BYTES // 4000
    launcher.start(launch(f"for n in range({lines}): print(n, 'x' * 4000)\nprint('the very', 'end', end='')"))
    end_of(launcher)
    log = folder_of(work_dir).path / "log"
    assert sum(file.stat().st_size for file in log.iterdir()) < (SEGMENTS_KEPT + 1) * SEGMENT_BYTES
    assert len(list(log.iterdir())) == SEGMENTS_KEPT
    last = last_lines(folder_of(work_dir))
    assert last[-1] == "the very end"
    assert last[-2].startswith(str(lines - 1))


def test_a_worker_that_closes_its_output_is_still_watched(launcher: LocalLauncher) -> None:
    launcher.start(launch("import os, time; os.close(1); os.close(2); time.sleep(0.3); os._exit(9)"))
    assert end_of(launcher).exit_code == 9


def test_a_work_folder_that_cannot_be_made_is_a_refusal(work_dir: WorkDir, launcher: LocalLauncher) -> None:
    (work_dir.path / "run").rmdir()
    with pytest.raises(RefusedError, match="work folder could not be made"):
        launcher.start(launch(""))
