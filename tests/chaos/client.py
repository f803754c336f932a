"""A client that submits and cancels as clients should, and writes down every answer that it was given."""

from __future__ import annotations

import random
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx

from agents.lease import boot_clock_s
from tests.chaos import stage

STEP_TIME_S = 0.2
UNFINISHED_MAX = 12
"""So many jobs at once, no more."""
ENDED = frozenset({"succeeded", "failed", "cancelled", "rejected"})


@dataclass(slots=True)
class Submission:
    """What one key was sent for, and everything that was answered to it."""

    key: str
    document: dict[str, Any]
    job_ids: set[str] = field(default_factory=set)
    to_cancel: bool = False
    cancel_at_s: float = 0.0
    generation_at_cancel: int | None = None
    """Of the answer to the cancellation; None: not yet answered."""
    seen_cancelled_at_s: float | None = None
    """When the state `cancelled` was read first, on the clock since boot."""
    state: str = ""

    @property
    def job_id(self) -> str:
        """The id that was answered; empty before the first answer."""
        return min(self.job_ids, default="")


class Client(threading.Thread):
    """Works until it is told to stop submitting, and goes on looking after what it has submitted until `close`."""

    def __init__(self, ports: list[int], headers: dict[str, str], witnesses: Path, seed: int) -> None:
        super().__init__(daemon=True)
        self._ports = ports
        self._headers = headers
        self._witnesses = witnesses
        self._dice = random.Random(seed)
        self._http = httpx.Client(trust_env=False, verify=False, timeout=5)  # noqa: S501 - loopback, without TLS
        self._over = threading.Event()
        self._no_more = threading.Event()
        self.submissions: list[Submission] = []
        self.answers: dict[str, int] = {}
        """How often each status was answered; `none` where no answer came."""
        self.error: BaseException | None = None

    def run(self) -> None:
        try:
            while not self._over.is_set():
                self._round()
                self._over.wait(self._dice.uniform(0.2, 0.6))
        except BaseException as error:
            self.error = error
            raise

    def stop_submitting(self) -> None:
        """What has been sent without an answer is sent again until it has one."""
        self._no_more.set()

    @property
    def settled(self) -> bool:
        """Whether everything is answered and every job has ended."""
        return self._no_more.is_set() and all(
            each.job_id
            and each.state in ENDED
            and (not each.to_cancel or each.generation_at_cancel is not None)
            for each in self.submissions
        )

    def close(self) -> None:
        """End the thread."""
        self._over.set()
        self.join(30)
        self._http.close()

    def _round(self) -> None:
        unfinished = [each for each in self.submissions if each.state not in ENDED]
        if not self._no_more.is_set() and len(unfinished) < UNFINISHED_MAX:
            self.submissions.append(self._new())
            self._submit(self.submissions[-1])
        for each in self.submissions:
            if self._over.is_set():
                return
            if not each.job_id or (len(each.job_ids) == 1 and self._dice.random() < 0.002):
                self._submit(each)  # without an answer; or once more, by a client that has forgotten
            elif each.to_cancel and each.generation_at_cancel is None and time.monotonic() > each.cancel_at_s:
                self._cancel(each)
        for each in self._dice.sample(unfinished, min(4, len(unfinished))):
            if each.job_id:
                self._look(each)

    def _new(self) -> Submission:
        number = len(self.submissions)
        stages = self._dice.randint(1, 4)
        steps = self._dice.randint(15, 70)
        document = job_document(f"chaos-{number}", stages, steps, self._witnesses)
        if self._dice.random() < 0.3:
            document["run"]["env"][stage.WITH_CHILD] = "yes"
        cancelled = self._dice.random() < 0.2
        cancel_at_s = time.monotonic() + self._dice.uniform(0.0, 12.0)
        return Submission(f"key-{number}", document, to_cancel=cancelled, cancel_at_s=cancel_at_s)

    def _submit(self, submission: Submission) -> None:
        headers = {"Idempotency-Key": submission.key}
        answer = self._send("POST", "/v1/jobs", headers=headers, json=submission.document)
        if answer is not None and answer.status_code == 201:
            submission.job_ids.add(str(answer.json()["job_id"]))

    def _cancel(self, submission: Submission) -> None:
        answer = self._send("POST", f"/v1/jobs/{submission.job_id}/cancel")
        if answer is not None and answer.status_code == 200:
            submission.generation_at_cancel = int(answer.json()["generation"])
        elif answer is not None and answer.status_code == 409:  # it had ended before
            submission.to_cancel = False

    def _look(self, submission: Submission) -> None:
        answer = self._send("GET", f"/v1/jobs/{submission.job_id}")
        if answer is None or answer.status_code != 200:
            return
        submission.state = str(answer.json()["state"])
        if submission.state == "cancelled" and submission.seen_cancelled_at_s is None:
            submission.seen_cancelled_at_s = boot_clock_s()

    def _send(
        self, method: str, path: str, headers: dict[str, str] | None = None, **rest: Any
    ) -> httpx.Response | None:
        url = f"http://127.0.0.1:{self._dice.choice(self._ports)}{path}"
        try:
            answer = self._http.request(method, url, headers={**self._headers, **(headers or {})}, **rest)
        except httpx.TransportError:
            self._count("none")
            return None
        self._count(str(answer.status_code))
        return answer

    def _count(self, status: str) -> None:
        self.answers[status] = self.answers.get(status, 0) + 1


def job_document(name: str, stages: int, steps: int, witnesses: Path) -> dict[str, Any]:
    """A job of so many stages whose workers leave their witnesses in a folder."""
    return {
        "name": name,
        "model": {
            "layers": 4,
            "hidden": 64,
            "heads": 2,
            "kv_heads": 2,
            "head_dim": 32,
            "ffn": 128,
            "vocab": 256,
        }
        | {"seq_len": 64},
        "training": {"steps": steps, "micro_batch": 2, "micro_batches": 4, "dtype": "fp32"},
        "parallelism": {"stages": stages},
        "elasticity": "restart",
        "checkpoint": {"every_steps": 10},
        "stop": {"signal": "TERM", "grace": "1s"},
        "run": {
            "command": ["{python}", stage.__file__],
            "env": {stage.WITNESS_FOLDER: str(witnesses), stage.STEP_TIME: str(STEP_TIME_S)},
        },
    }
