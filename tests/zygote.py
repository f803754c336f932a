"""Starts stage workers without paying for the import of torch each time: imports it once, then forks.

Started by the tests as a process of its own. Takes one JSON object a line and answers with one: `start` forks a
worker with exactly the environment given, `poll` tells its exit code.
"""

from __future__ import annotations

import ctypes
import importlib
import json
import os
import runpy
import signal
import sys

from agents.worker.__main__ import main

PR_SET_PDEATHSIG = 1
PRELOADED = ("agents.worker.failures", "agents.worker.train", "s3fs")


def start(env: dict[str, str], log: str, script: str | None) -> int:
    pid = os.fork()
    if pid:
        return pid
    # A test run that is killed must not leave workers that train on.
    ctypes.CDLL(None, use_errno=True).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    os.environ.clear()
    os.environ.update(env)
    os.setsid()
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    output = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    os.dup2(output, 1)
    os.dup2(output, 2)
    if script is None:
        main()
    try:
        runpy.run_path(script, run_name="__main__")
    except SystemExit as end:
        sys.stdout.flush()
        os._exit(0 if end.code is None else 1)
    os._exit(0)


def poll(pid: int) -> int | None:
    done, status = os.waitpid(pid, os.WNOHANG)
    return os.waitstatus_to_exitcode(status) if done else None


def serve() -> None:
    for module in PRELOADED:
        importlib.import_module(module)
    print(json.dumps("up"), flush=True)
    for line in sys.stdin:
        request = json.loads(line)
        if "poll" in request:
            answer = poll(request["poll"])
        else:
            answer = start(request["env"], request["log"], request["script"])
        print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    serve()
