"""`python -m agents.supervisor FOLDER`: the small process above one worker.

It outlives the agent. It starts the worker once, keeps its output, stops it when it is told to or when the
agent's lease has run out, and leaves how it ended in a file. What to start comes on standard input and is kept
nowhere, because the environment may hold secrets. Files of FOLDER:

- `lock`          held (flock) for as long as the supervisor lives: who can take it knows that it is gone;
- `claim`         made by whoever is first: a supervisor that starts, or an agent that has given the start up;
- `running.json`  the pids of supervisor and worker, with their start times against reuse of a pid;
- `stop.json`     written by the agent: `{"cause": …}`;
- `exit.json`     how it ended;
- `log/`          the output (`outputlog`);  `work/`  the worker's own folder.

Only the standard library: a node starts many of these at once.
"""

from __future__ import annotations

import ctypes
import errno
import fcntl
import json
import os
import resource
import select
import signal
import sys
from typing import Any, NoReturn

from agents.causes import LEASE_EXPIRED, SUPERVISOR_STOPPED
from agents.lease import boot_clock_s, boot_id, read_deadline
from agents.outputlog import OutputLog

LOOK_EVERY_S = 0.5
"""How often the stop file and the lease are looked at without a signal."""
TELL_END_S = 60.0
"""For so long a supervisor tries to write how its worker ended, where the disk takes nothing."""
OPEN_FILES = 65536
SWEEP_ROUNDS = 200
_PR_SET_PDEATHSIG, _PR_SET_CHILD_SUBREAPER, _PR_SET_NO_NEW_PRIVS = 1, 36, 38
_READ_BYTES = 65536


def main(arguments: list[str]) -> int:
    """Goes to the background and supervises; returns (in the foreground) when the worker runs, or cannot."""
    folder = os.open(arguments[0], os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    launch = json.loads(sys.stdin.buffer.read())
    ready_read, ready_write = os.pipe()
    if os.fork():
        os.close(ready_write)
        os.read(ready_read, 1)  # ends when the supervisor says so, or is gone
        return 0
    os.setsid()
    _lose_the_terminal()
    os.close(ready_read)
    Supervisor(folder, launch).run(ready_write)
    return 0


def process_start(pid: int) -> str | None:
    """When a process started, in ticks since boot, as text; None if there is none (or no /proc).

    A pid and its start together are never used twice while the machine runs.
    """
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            # The command's name may hold blanks and brackets; the fields that count follow its last bracket.
            return file.read().rpartition(b")")[2].split()[19].decode("ascii")
    except (OSError, IndexError):
        return None


class Supervisor:
    """One worker's life: claim, start, watch, stop, tell."""

    def __init__(self, folder: int, launch: dict[str, Any]) -> None:
        self._folder = folder
        self._launch = launch
        self._worker = 0
        self._exit_status: int | None = None
        self._stop_cause: str | None = None
        self._kill_at_s: float | None = None
        self._killed = False
        self._deadline_s: float | None = None

    def run(self, ready: int) -> None:
        """From the claim to the exit file. `ready` is closed once the worker runs or has failed to."""
        if not self._claim():
            return
        os.umask(0o077)
        libc = ctypes.CDLL(None, use_errno=True) if sys.platform == "linux" else None
        if libc is not None:
            libc.prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
        wakeup = _wake_on_signals()
        self._look_at_lease()
        if self._stop_cause is not None:
            self._tell_end(None)
            return
        log = OutputLog(self._open_dir("log"), [s.encode() for s in self._launch.pop("mask")])
        output, failure = self._start(libc)
        if failure is not None:
            self._tell_end(failure)
            return
        self._write("running.json", self._running_document())
        os.close(ready)
        self._watch(output, wakeup, log)
        self._sweep()
        _drain(output, log)
        log.close()
        self._tell_end(None)

    def _claim(self) -> bool:
        """The lock first: from then on the agent sees that somebody is at work."""
        lock = os.open("lock", os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o600, dir_fd=self._folder)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            os.close(os.open("claim", os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600, dir_fd=self._folder))
        except (BlockingIOError, FileExistsError):
            return False
        return True

    def _start(self, libc: ctypes.CDLL | None) -> tuple[int, str | None]:
        """Forks the worker. Gives the pipe of its output, and why it could not be executed, if so."""
        output_read, output_write = os.pipe()
        failure_read, failure_write = os.pipe()
        supervisor = os.getpid()
        self._worker = os.fork()
        if not self._worker:
            os.set_blocking(output_write, True)
            self._become_worker(libc, supervisor, output_write, failure_write)
        os.close(output_write)
        os.close(failure_write)
        os.set_blocking(output_read, False)
        del self._launch["env"]
        failure = os.read(failure_read, 4096).decode(errors="replace")
        os.close(failure_read)
        if not failure:
            return output_read, None
        os.waitpid(self._worker, 0)
        return output_read, failure

    def _become_worker(
        self, libc: ctypes.CDLL | None, supervisor: int, output: int, failure: int
    ) -> NoReturn:
        """In the child: own session, limits, own folder, and execution. Never returns."""
        try:
            os.setsid()
            if libc is not None:
                libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
                libc.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
                _offer_to_the_oom_killer()
            if os.getppid() != supervisor:
                os._exit(127)
            _limit_resources(self._launch["memory_bytes"])
            for number in (signal.SIGTERM, signal.SIGCHLD, signal.SIGPIPE, signal.SIGINT, signal.SIGHUP):
                signal.signal(number, signal.SIG_DFL)
            os.dup2(output, 1)
            os.dup2(output, 2)
            os.fchdir(self._open_dir("work"))
            argv = self._launch["argv"]
            os.execvpe(argv[0], argv, self._launch["env"])  # noqa: S606 - argv only, and no shell: that is the point
        except (OSError, ValueError) as error:
            os.write(failure, f"{error}: {self._launch['argv'][0]}".encode(errors="replace")[:4096])
        finally:
            os._exit(127)

    def _watch(self, output: int, wakeup: int, log: OutputLog) -> None:
        """Until the worker has ended: its output, the end of its children, the stop file, the lease."""
        poll = select.poll()
        poll.register(output, select.POLLIN)
        poll.register(wakeup, select.POLLIN)
        while self._exit_status is None:
            ready = dict(poll.poll(self._poll_timeout_s() * 1000))
            if ready.get(wakeup, 0) and signal.SIGTERM in os.read(wakeup, 4096):
                self._begin_stop(self._requested_stop() or SUPERVISOR_STOPPED)
            if output in ready and not _copy_some(output, log):
                poll.unregister(output)  # closed its output and goes on
            self._reap()
            cause = self._requested_stop()
            if cause is not None:
                self._begin_stop(cause)
            self._look_at_lease()
            if self._kill_at_s is not None and boot_clock_s() >= self._kill_at_s:
                self._kill()

    def _poll_timeout_s(self) -> float:
        if self._kill_at_s is None:
            return LOOK_EVERY_S
        return min(LOOK_EVERY_S, max(0.0, self._kill_at_s - boot_clock_s()))

    def _look_at_lease(self) -> None:
        deadline_s = read_deadline(self._launch["lease_file"])
        if deadline_s is not None:
            self._deadline_s = deadline_s
        now_s = boot_clock_s()
        if self._deadline_s is None or now_s >= self._deadline_s:
            self._begin_stop(LEASE_EXPIRED, since_s=now_s if self._deadline_s is None else self._deadline_s)

    def _requested_stop(self) -> str | None:
        try:
            file = os.open("stop.json", os.O_RDONLY | os.O_NOFOLLOW, dir_fd=self._folder)
        except FileNotFoundError:
            return None
        with os.fdopen(file, "rb") as stream:
            return str(json.load(stream)["cause"])

    def _begin_stop(self, cause: str, since_s: float | None = None) -> None:
        """The stop signal to the whole group of the worker, once; the grace runs from here, or from `since_s`.

        That of a lease runs from its end: whoever was asleep then, with the machine or alone, has used it up.
        """
        if self._stop_cause is not None:
            return
        self._stop_cause = cause
        self._kill_at_s = (boot_clock_s() if since_s is None else since_s) + self._launch["grace_s"]
        if self._worker:
            _signal_group(self._worker, signal.Signals[f"SIG{self._launch['stop_signal']}"])

    def _kill(self) -> None:
        self._killed = True
        self._kill_at_s = None
        _signal_group(self._worker, signal.SIGKILL)

    def _reap(self) -> None:
        while True:
            try:
                ended = os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
            except ChildProcessError:
                return
            if ended is None:
                return
            if ended.si_pid == self._worker:
                # Not yet reaped, its pid cannot have become somebody else's: the moment to end its group.
                _signal_group(self._worker, signal.SIGKILL)
            _, status = os.waitpid(ended.si_pid, 0)
            if ended.si_pid == self._worker:
                self._exit_status = status

    def _sweep(self) -> None:
        """Kills what the worker has left behind in sessions of its own.

        As the subreaper of all its descendants the supervisor inherits every orphan; a killed child's own
        children come up in the next round.
        """
        for _ in range(SWEEP_ROUNDS):
            children = _children_of(os.getpid())
            if not children:
                return
            for child in children:
                os.kill(child, signal.SIGKILL)  # an unreaped child of ours: the pid is its own
            for child in children:
                os.waitpid(child, 0)

    def _running_document(self) -> dict[str, Any]:
        return {
            "boot_id": boot_id(),
            "supervisor_pid": os.getpid(),
            "supervisor_start": process_start(os.getpid()),
            "worker_pid": self._worker,
            "worker_start": process_start(self._worker),
        }

    def _tell_end(self, failure: str | None) -> None:
        """How it ended must not be lost to a disk that is full for a moment."""
        give_up_at_s = boot_clock_s() + TELL_END_S
        while True:
            try:
                self._write("exit.json", self._exit_document(failure))
            except OSError as error:
                if error.errno == errno.ENOENT or boot_clock_s() >= give_up_at_s:
                    raise  # the folder itself is gone, or the time is over
                select.poll().poll(LOOK_EVERY_S * 1000)
            else:
                return

    def _exit_document(self, failure: str | None) -> dict[str, Any]:
        status = self._exit_status
        return {
            "exit_code": None if status is None else os.waitstatus_to_exitcode(status),
            "stop_cause": self._stop_cause,
            "killed": self._killed,
            "failure": failure,
        }

    def _open_dir(self, name: str) -> int:
        return os.open(name, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW, dir_fd=self._folder)

    def _write(self, name: str, document: dict[str, Any]) -> None:
        """Whole or not at all, and on disk before anybody can act on it."""
        draft = f"{name}.new"
        flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW
        with os.fdopen(os.open(draft, flags, 0o600, dir_fd=self._folder), "w") as stream:
            json.dump(document, stream)
            stream.flush()
            os.fsync(stream.fileno())
        os.replace(draft, name, src_dir_fd=self._folder, dst_dir_fd=self._folder)


def _lose_the_terminal() -> None:
    null = os.open(os.devnull, os.O_RDWR)
    for stream in (0, 1, 2):
        os.dup2(null, stream)


def _wake_on_signals() -> int:
    """A pipe that becomes readable, with the signal's number, on SIGTERM and SIGCHLD."""
    read, write = os.pipe()
    os.set_blocking(read, False)
    os.set_blocking(write, False)
    signal.set_wakeup_fd(write, warn_on_full_buffer=False)
    for number in (signal.SIGTERM, signal.SIGCHLD):
        signal.signal(number, _only_wake)
    for number in (signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    return read


def _only_wake(_number: int, _frame: object) -> None:
    """The wake-up pipe carries the signal; this only keeps its default from happening."""


def _limit_resources(memory_bytes: int | None) -> None:
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    files = OPEN_FILES if hard == resource.RLIM_INFINITY else min(OPEN_FILES, hard)
    resource.setrlimit(resource.RLIMIT_NOFILE, (files, files))
    if memory_bytes is not None:
        _, hard = resource.getrlimit(resource.RLIMIT_DATA)
        limit = memory_bytes if hard == resource.RLIM_INFINITY else min(memory_bytes, hard)
        resource.setrlimit(resource.RLIMIT_DATA, (limit, limit))


def _offer_to_the_oom_killer() -> None:
    """When memory runs out, a worker goes before the agent and its supervisors."""
    with open("/proc/self/oom_score_adj", "w", encoding="ascii") as file:
        file.write("500")


def _copy_some(output: int, log: OutputLog) -> bool:
    """Moves what there is, up to a bound; False at the end of the output."""
    try:
        data = os.read(output, _READ_BYTES)
    except BlockingIOError:
        return True
    log.write(data)
    return bool(data)


def _drain(output: int, log: OutputLog) -> None:
    """What is still in the pipe; nobody writes any more."""
    while True:
        try:
            data = os.read(output, _READ_BYTES)
        except BlockingIOError:
            return
        if not data:
            return
        log.write(data)


def _children_of(parent: int) -> list[int]:
    children = []
    for name in os.listdir("/proc") if os.path.isdir("/proc/self") else []:
        if not name.isdigit():
            continue
        try:
            with open(f"/proc/{name}/stat", "rb") as file:
                if int(file.read().rpartition(b")")[2].split()[1]) == parent:
                    children.append(int(name))
        except (OSError, IndexError):
            continue  # ended meanwhile
    return children


def _signal_group(leader: int, number: signal.Signals) -> None:
    try:
        os.killpg(leader, number)
    except OSError as error:
        if error.errno not in (errno.ESRCH, errno.EPERM):
            raise


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
