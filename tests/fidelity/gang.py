"""One case as real processes: a gang of stage workers that sleep for their work, in the regions of a bed."""

from __future__ import annotations

import json
import os
import tempfile
import time
from collections.abc import Iterator, Sequence
from itertools import pairwise, permutations
from pathlib import Path

from agents.protocol import WorkerModel, WorkerOrder, WorkerPlan
from service.cli.testbed.bed import Bed
from service.cli.testbed.network import Link, Network
from tests.fidelity.cases import HIDDEN, Case
from tests.fidelity.prediction import Prediction, stage_seconds
from tests.gangs import Zygote

WARM_UP = 2
"""Iterations that are not counted: connections find their windows in the first, and a stage that has nothing to wait
for from the iteration before begins it early."""
ITERATIONS = 4
PORT = 29400
TIMEOUT_S = 90.0
VOCABULARY = HIDDEN
"""Bytes are the tokens, and what the last stage gives serves as its logits."""


class GangError(Exception):
    """The gang did not come to its end: its logs."""


def network(regions: Sequence[str]) -> Network:
    """Every two regions joined; what their links are, each case says."""
    return Network(regions=tuple(regions), links=tuple(_links(regions, 0.0, 1.0)))


def become(bed: Bed, case: Case) -> None:
    """Let the links of the bed be those of a case."""
    for link in _links(bed.network.regions, case.latency_ms, case.mbps):
        bed.change(link)


def _links(regions: Sequence[str], latency_ms: float, mbps: float) -> Iterator[Link]:
    for src, dst in permutations(regions, 2):
        yield Link(src=src, dst=dst, latency_ms=latency_ms, mbps=mbps)


def measured_iterations(bed: Bed, case: Case, planned: Prediction, zygote: Zygote) -> list[float]:
    """Seconds from the end of one iteration to that of the next, after the warm-up. Raises GangError.

    So nothing that a worker does between two iterations is left out.
    """
    with tempfile.TemporaryDirectory(prefix="bace-fidelity-") as folder:
        return _Run(bed, case, planned, zygote, Path(folder)).iterations()


class _Run:
    def __init__(self, bed: Bed, case: Case, planned: Prediction, zygote: Zygote, folder: Path) -> None:
        self._bed, self._case, self._planned = bed, case, planned
        self._zygote, self._folder = zygote, folder
        corpus = folder / "corpus"
        corpus.write_bytes(bytes(range(256)) * 16)

    def iterations(self) -> list[float]:
        processes = [self._start(rank) for rank in range(self._case.ranks)]
        deadline_s = time.monotonic() + TIMEOUT_S
        codes: dict[int, int] = {}
        try:
            while len(codes) < len(processes):
                for pid in processes:
                    if pid not in codes and (code := self._zygote.ask(poll=pid)) is not None:
                        codes[pid] = code
                if time.monotonic() > deadline_s or any(codes.values()):
                    raise GangError(self._log_ends())
                time.sleep(0.05)
        finally:
            for pid in processes:
                if pid not in codes:
                    os.kill(pid, 9)
                    while self._zygote.ask(poll=pid) is None:
                        time.sleep(0.01)
        reporting = self._planned.stage_ranks[-1]
        lines = map(json.loads, self._report(reporting).read_text().splitlines())
        ended_s = [line["at_s"] for line in lines if line["kind"] == "step"]
        return [then_s - before_s for before_s, then_s in pairwise(ended_s[WARM_UP - 1 :])]

    def _plan(self, rank: int) -> WorkerPlan:
        case, planned = self._case, self._planned
        order = None
        if planned.actions is not None:
            order = WorkerOrder(stage_ranks=list(planned.stage_ranks), actions=list(planned.actions[rank]))
        model = WorkerModel(
            layers=case.stages, hidden=HIDDEN, heads=1, kv_heads=1, head_dim=2, ffn=1, vocab=VOCABULARY,
            seq_len=case.tokens,
        )  # fmt: skip
        return WorkerPlan(
            model=model,
            steps=WARM_UP + ITERATIONS,
            micro_batch=1,
            micro_batches=case.micro_batches,
            dtype="fp32",
            recompute="none",
            layers_per_stage=[1] * case.stages,
            window=list(planned.caps),
            order=order,
            weight_rule="current" if case.every else "flush",
            update_every=case.every or 1,
            learning_rate=0.001,
            seed=1,
            corpus=str(self._folder / "corpus"),
            checkpoint_uri=(self._folder / "checkpoints").as_uri(),
            checkpoint_every=1000,
        )

    def _start(self, rank: int) -> int:
        case, region = self._case, self._case.region_of[rank]
        environment = {
            "RANK": str(rank),
            "WORLD_SIZE": str(case.ranks),
            "BACE_STAGE": str(rank),
            "BACE_STAGES": str(case.ranks),
            "MASTER_ADDR": self._bed.address(case.regions[0]),
            "MASTER_PORT": str(PORT),
            "BACE_REPORT": str(self._report(rank)),
            "BACE_PLAN": self._plan(rank).model_dump_json(),
            "BACE_PEER_TIMEOUT": str(TIMEOUT_S),
            "FIDELITY_SECONDS": json.dumps(stage_seconds(case, rank)),
            "FIDELITY_NAMESPACE": f"{self._bed.namespace(region).keeper}:{region}",
            "OMP_NUM_THREADS": "1",
            "PATH": os.environ["PATH"],
        }
        script = Path(__file__).with_name("stage.py")
        return int(self._zygote.ask(env=environment, log=str(self._log(rank)), script=str(script)))

    def _report(self, rank: int) -> Path:
        return self._folder / f"report-{rank}"

    def _log(self, rank: int) -> Path:
        return self._folder / f"rank-{rank}"

    def _log_ends(self) -> str:
        logs = sorted(self._folder.glob("*-*"))
        return "\n".join(f"--- {log.name}\n{log.read_text()[-2000:]}" for log in logs)
