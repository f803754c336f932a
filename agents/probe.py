"""What one GPU or slot sustains: measured by `agents.worker.probe` in a process of its own, and remembered.

torch is never imported into the agent. The figure is kept with its time in the work folder and measured again
when it is older than a week, or was of another device.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from agents.errors import ProbeError
from agents.protocol import Seconds
from agents.workdir import write_file

MAX_AGE_S = 7 * 24 * 3600.0
START_TIMEOUT_S = 180.0
"""For the interpreter and torch to load, on a slow disk."""


class Measurement(BaseModel):
    """FLOP/s of one GPU or slot, forward and backward of a transformer block, and when it was measured."""

    model_config = ConfigDict(frozen=True, extra="ignore")
    device_key: str
    sustained_flops: Annotated[float, Field(gt=0, le=1e18, allow_inf_nan=False)]
    forward_s: Seconds = 0.0
    backward_s: Seconds = 0.0
    device: str = ""
    measured_at_s: Seconds


@dataclass(frozen=True, slots=True)
class ProbeTarget:
    """One device: its type's name, and its UUID where it is a GPU."""

    gpu_type: str
    uuid: str | None

    @property
    def device_key(self) -> str:
        """What a measurement is remembered by: devices of one type in one machine are taken to be alike."""
        return f"{'cuda' if self.uuid else 'cpu'}:{self.gpu_type}"


class Probe:
    """Measures devices of this machine; remembers in `cache`."""

    def __init__(
        self, cache: Path, command: Sequence[str] = (sys.executable, "-m", "agents.worker.probe")
    ) -> None:
        self._cache = cache
        self._command = tuple(command)

    def sustained(self, target: ProbeTarget, seconds: float, now_s: float, busy: bool) -> Measurement:
        """The figure of a device, from memory where that is fresh; ProbeError where it cannot be had.

        While the machine is `busy` with workers an old figure is truer than a new one.
        """
        remembered = self._remembered(target.device_key)
        if remembered is not None and (busy or 0 <= now_s - remembered.measured_at_s < MAX_AGE_S):
            return remembered
        measurement = self._measure(target, seconds, now_s)
        kept = [m for m in self._all() if m.device_key != target.device_key]
        write_file(self._cache, {"measurements": [m.model_dump() for m in (*kept, measurement)]})
        return measurement

    def _measure(self, target: ProbeTarget, seconds: float, now_s: float) -> Measurement:
        device = "cuda" if target.uuid else "cpu"
        environment = dict(os.environ)
        environment.pop("BACE_TOKEN", None)
        environment["CUDA_VISIBLE_DEVICES"] = target.uuid or ""
        if not target.uuid:
            environment["OMP_NUM_THREADS"] = "1"
        command = [*self._command, "--seconds", str(seconds), "--device", device]
        try:
            done = subprocess.run(
                command,
                env=environment,
                stdin=subprocess.DEVNULL,
                capture_output=True,
                timeout=START_TIMEOUT_S + 10 * seconds,
                check=True,
            )
            printed = json.loads(done.stdout.splitlines()[-1])
            return Measurement.model_validate(
                {**printed, "device_key": target.device_key, "measured_at_s": now_s}
            )
        except subprocess.CalledProcessError as error:
            last = error.stderr.decode(errors="replace").strip().splitlines()[-1:]
            raise ProbeError(_advice(target, f"it ended with {error.returncode}: {''.join(last)}")) from error
        except (OSError, subprocess.TimeoutExpired) as error:
            raise ProbeError(_advice(target, str(error))) from error
        except (ValueError, IndexError, TypeError) as error:
            raise ProbeError(_advice(target, f"its answer cannot be read ({error})")) from error

    def _remembered(self, device_key: str) -> Measurement | None:
        return next((m for m in self._all() if m.device_key == device_key), None)

    def _all(self) -> list[Measurement]:
        try:
            document = json.loads(self._cache.read_text(encoding="utf-8"))
            return [Measurement.model_validate(entry) for entry in document["measurements"]]
        except FileNotFoundError:
            return []
        except (ValueError, KeyError, TypeError, ValidationError):
            return []  # a memory that cannot be read is measured anew


def _advice(target: ProbeTarget, what: str) -> str:
    return (
        f"the speed of {target.gpu_type} could not be measured: {what}. Install torch here "
        "(`pip install bacepipe[worker]`), or give the figure by --sustained-flops"
    )
