"""All ranks go on from the same checkpoint: the newest that every one of them found undamaged."""

from __future__ import annotations

from collections.abc import Sequence

from agents.protocol import WorkerPlan
from agents.worker.checkpoint.folder import CheckpointFolder, CheckpointPart, DamagedCheckpointError
from agents.worker.checkpoint.manifest import folder_name
from agents.worker.gang import Gang
from agents.worker.progress import Report
from agents.worker.trained_stage import TrainedStage

FINE = "fine"


def resume(
    gang: Gang, folder: CheckpointFolder, plan: WorkerPlan, stages: Sequence[TrainedStage], report: Report
) -> int:
    """Bring the stages of every rank to what they were after the step that this gives.

    Rank 0 proposes; where any rank finds its part damaged, the checkpoint before is next.

    Raises WorkerEndError `checkpoint-unusable` when none is left (on rank 0; the others end as they lose it), or where
    it does not fit the plan.
    """
    if plan.resume_step == 0:
        return 0
    while True:
        proposed = folder.choose(plan) if gang.place.leads else 0
        step = int(gang.same_everywhere(f"resume/{len(folder.damaged)}", str(proposed)))
        part, wrong = _read(folder, step, stages)
        wrong = _first_wrong(gang, step, wrong)
        if part is not None and wrong == FINE:
            for stage in stages:
                stage.restore(part, _updates_a_step(plan))
            print(f"resumed after step {step}", flush=True)
            return step
        folder.damaged[step] = wrong
        print(f"checkpoint {folder_name(step)} is damaged and left out: {wrong}", flush=True)
        if gang.place.leads:
            report.checkpoint_damaged(step, wrong)


def _updates_a_step(plan: WorkerPlan) -> int:
    return 1 if plan.weight_rule == "flush" else plan.micro_batches // plan.update_every


def _read(
    folder: CheckpointFolder, step: int, stages: Sequence[TrainedStage]
) -> tuple[CheckpointPart | None, str]:
    manifest = folder.manifest(step)
    names = [name for stage in stages for name in stage.names_in(manifest.files if manifest else ())]
    try:
        return folder.read(step, names), FINE
    except DamagedCheckpointError as error:
        return None, str(error)


def _first_wrong(gang: Gang, step: int, wrong: str) -> str:
    """What the first rank that found anything wrong found; `FINE` if none did."""
    gang.store.set(f"read/{step}/{gang.place.rank}", wrong)
    first = FINE
    if gang.place.leads:
        keys = [f"read/{step}/{rank}" for rank in range(gang.place.world_size)]
        told = [bytes(each).decode() for each in gang.store.multi_get(keys)]
        first = next((each for each in told if each != FINE), FINE)
    return gang.same_everywhere(f"read/{step}", first)
