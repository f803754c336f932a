"""The stage worker of the chaos run: it trains nothing, keeps the rules of workers, and leaves a witness of its time.

It is started by itself, from the standard library alone, so that many of them fit on a small machine. The witness is
a file of its own outside the agent's folder: a line of the machine's clock since boot, every `STAMP_EVERY_S`.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from pathlib import Path
from urllib.parse import unquote, urlsplit

WITNESS_FOLDER, STEP_TIME, WITH_CHILD = "CHAOS_WITNESS", "CHAOS_STEP_S", "CHAOS_CHILD"
STAMP_EVERY_S = 0.1


def main() -> int:
    """Train from the checkpoint to the last step, or until the stop signal."""
    environment = os.environ
    rank, ranks = int(environment["RANK"]), int(environment["WORLD_SIZE"])
    witness = Witness(Path(environment[WITNESS_FOLDER]), environment)
    stopping: list[int] = []
    signal.signal(signal.SIGTERM, lambda number, _frame: stopping.append(number))
    if environment.get(WITH_CHILD):
        start_child(witness)
    report(kind="ready")
    saved = step = int(environment["BACE_RESUME_STEP"])
    leads = rank == ranks - 1
    while step < int(environment["BACE_STEPS"]) and not stopping:
        witness.run_for(float(environment[STEP_TIME]))
        step += 1
        if not leads:
            continue
        report(kind="step", step=step, loss=1.0 / step, step_time_s=float(environment[STEP_TIME]), tokens=64)
        if step % int(environment["BACE_CHECKPOINT_EVERY"]) == 0:
            save(step)
            saved = step
    if stopping and leads and step > saved:
        save(step)
    report(kind="end", cause="stopped" if stopping else "finished")
    witness.stamp()
    return 0


class Witness:
    """The times at which one worker ran."""

    def __init__(self, folder: Path, environment: os._Environ[str]) -> None:
        names = (
            environment["BACE_JOB_ID"],
            environment["BACE_GENERATION"],
            environment["RANK"],
            str(os.getpid()),
        )
        self._file = os.open(folder / ".".join(names), os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        self.stamp()

    def stamp(self) -> None:
        """It runs now."""
        os.write(self._file, f"{time.clock_gettime(time.CLOCK_BOOTTIME):.3f}\n".encode())

    def run_for(self, seconds: float) -> None:
        """Let the time pass, stamping."""
        end_s = time.monotonic() + seconds
        while (left_s := end_s - time.monotonic()) > 0:
            self.stamp()
            time.sleep(min(left_s, STAMP_EVERY_S))


def start_child(witness: Witness) -> None:
    """A process in a session of its own, as loaders of data may be, that never ends by itself. It is a witness, too."""
    if not os.fork():
        os.setsid()
        while True:
            witness.run_for(STAMP_EVERY_S)


def save(step: int) -> None:
    """A checkpoint: there whole or not at all."""
    folder = Path(unquote(urlsplit(os.environ["BACE_CHECKPOINT_URI"]).path))
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{step}.json"
    draft = path.with_suffix(f".{os.getpid()}")
    draft.write_text(json.dumps({"step": step}))
    draft.replace(path)
    report(kind="checkpoint", step=step, uri=path.as_uri())


def report(**fields: object) -> None:
    """One line of the report file."""
    with open(os.environ["BACE_REPORT"], "a", encoding="utf-8") as channel:
        channel.write(json.dumps(fields) + "\n")


if __name__ == "__main__":
    sys.exit(main())
