"""The stage worker: `python -m agents.worker`, started by an agent with its plan and place in the environment.

It ends with one line in the report channel and an exit code that tell why (`agents.worker.causes`).
"""

from __future__ import annotations

import os
import sys
import threading
import traceback
from types import TracebackType
from typing import NoReturn

from agents.worker.causes import EXIT_CODES, Cause, WorkerEndError
from agents.worker.progress import Report
from agents.worker.settings import read_settings
from agents.worker.stopping import StopRequest, exit_now


def main() -> NoReturn:
    """Train as the environment says, then end the process."""
    report = Report(os.environ.get("BACE_REPORT"))
    stop = StopRequest(report)
    stop.watch()

    ending = threading.Lock()

    def ends(cause: Cause, detail: str = "") -> NoReturn:
        ending.acquire()  # for good: whoever comes first tells
        report.end(cause, detail)
        exit_now(EXIT_CODES[cause])

    def crashed(kind: type[BaseException], error: BaseException, where: TracebackType | None) -> NoReturn:
        traceback.print_exception(kind, error, where)
        if isinstance(error, WorkerEndError):
            ends(error.cause, error.detail)
        ends(Cause.CRASHED, f"{kind.__name__}: {error}")

    sys.excepthook = crashed
    threading.excepthook = lambda thread: crashed(
        thread.exc_type, thread.exc_value or thread.exc_type(), thread.exc_traceback
    )
    try:
        cause = _run(stop, report)
    except WorkerEndError as end:
        print(end, file=sys.stderr)
        ends(end.cause, end.detail)
    ends(cause)


def _run(stop: StopRequest, report: Report) -> Cause:
    settings = read_settings(os.environ)
    # torch takes seconds to import: a plan that is wrong, or a stop, need not wait for it.
    from agents.worker.failures import known_end
    from agents.worker.train import train

    try:
        return train(settings, stop, report)
    except (RuntimeError, MemoryError, ArithmeticError) as error:
        end = known_end(error)
        if end is None:
            raise
        traceback.print_exc()
        raise end from error


if __name__ == "__main__":
    main()
