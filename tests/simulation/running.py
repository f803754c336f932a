"""What really runs, and since when: the rules that only the machines themselves can tell broken.

It knows nothing of the server but which commit cancelled a job. At any moment:

- a GPU is used by one worker;
- of a job, the workers of one generation run;
- a key is started once, ever;
- a gang goes on from a checkpoint that was really left, or from the beginning;
- a job that has succeeded has really trained its last step;
- nothing of a cancelled job is started on the word of an answer that is newer than the cancellation.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.simulation.trace import Trace

if TYPE_CHECKING:
    from tests.simulation.host import Supervised


class Running:
    """All workers of the world."""

    def __init__(self, trace: Trace) -> None:
        self._trace = trace
        self._by_gpu: dict[str, str] = {}
        self._by_job: dict[str, dict[str, int]] = {}
        """Job → key → generation of its workers."""
        self._ever: set[str] = set()
        self._saved: dict[str, set[int]] = {}
        self._trained: dict[str, int] = {}
        self.cancelled_at: dict[str, int] = {}
        """Job → number of the commit that cancelled it."""

    @property
    def starts(self) -> int:
        return len(self._ever)

    def started(self, worker: Supervised, obeyed_commit: int) -> None:
        """A worker begins to run, because an agent obeys an answer of that commit."""
        job_id, generation = worker.env["BACE_JOB_ID"], int(worker.env["BACE_GENERATION"])
        if worker.key in self._ever:
            self._trace.violation("a key is started once", worker.key)
        self._ever.add(worker.key)
        for gpu in worker.gpus:
            other = self._by_gpu.setdefault(gpu, worker.key)
            if other != worker.key:
                self._trace.violation(
                    "a GPU is used by one worker", f"{gpu}: {other} runs, {worker.key} starts"
                )
        siblings = self._by_job.setdefault(job_id, {})
        for key, running in siblings.items():
            if running != generation:
                self._trace.violation("one generation of a stage runs", f"{key} runs, {worker.key} starts")
        siblings[worker.key] = generation
        resume_step = int(worker.env["BACE_RESUME_STEP"])
        if resume_step not in self._saved.setdefault(job_id, {0}):
            self._trace.violation(
                "a gang goes on from a checkpoint that is there", f"{worker.key}: {resume_step}"
            )
        if obeyed_commit > self.cancelled_at.get(job_id, obeyed_commit):
            self._trace.violation("nothing of a cancelled job is started", f"{worker.key} of {job_id}")

    def ended(self, worker: Supervised) -> None:
        """It runs no more."""
        for gpu in worker.gpus:
            if self._by_gpu.get(gpu) == worker.key:
                del self._by_gpu[gpu]
        siblings = self._by_job[worker.env["BACE_JOB_ID"]]
        del siblings[worker.key]
        if not siblings:
            del self._by_job[worker.env["BACE_JOB_ID"]]

    def trained(self, job_id: str, step: int) -> None:
        """A gang of the job has done the step."""
        self._trained[job_id] = max(step, self._trained.get(job_id, 0))

    def saved(self, job_id: str, step: int) -> None:
        """A gang of the job has left a checkpoint."""
        self._saved.setdefault(job_id, {0}).add(step)

    def succeeded(self, job_id: str, steps: int) -> None:
        """The server says that the job has done all its steps."""
        if self._trained.get(job_id, 0) < steps:
            detail = f"{job_id}: {self._trained.get(job_id, 0)} of {steps} steps"
            self._trace.violation("who has succeeded has trained", detail)

    def of_job(self, job_id: str) -> list[str]:
        """Keys of the job's workers that run."""
        return sorted(self._by_job.get(job_id, ()))
