"""What gangs of real workers write and read: who has the layer finds the damage, and all go on from the same step."""

from __future__ import annotations

import signal
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.xdist_group("stage-workers")

TOLERANCE = 1e-4
ENDLESS = 100_000
FULL_DISK = Path(__file__).with_name("full_disk_worker.py")


def damage(root: Path, step: int, file: str) -> None:
    """Change one bit of a file, and not its size."""
    path = root / f"step-{step:08d}" / file
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    path.write_bytes(content)


def run(gangs: Any, stages: int, **changes: Any) -> list[Any]:
    workers: list[Any] = gangs.start(gangs.plan(stages, **changes), stages)
    assert [worker.exit_code() for worker in workers] == [0] * stages, workers[0].log.read_text()
    return workers


def test_a_damaged_one_is_left_out_for_the_one_before_and_written_again(gangs: Any) -> None:
    first = run(gangs, 2, steps=9, checkpoint_every=3, checkpoint_keep=3)
    assert gangs.checkpoints.steps() == [3, 6, 9]
    damage(gangs.checkpoint_root, 9, "head.safetensors")  # of the last stage: the leader cannot see it

    resumed = run(gangs, 2, steps=12, checkpoint_every=3, resume_step=9)

    assert list(resumed[1].losses) == list(range(7, 13))
    again = {step: resumed[1].losses[step] for step in (7, 8, 9)}
    assert again == pytest.approx({step: first[1].losses[step] for step in (7, 8, 9)}, abs=TOLERANCE)
    for worker in resumed:
        assert (
            "step-00000009 is damaged and left out: step-00000009/head.safetensors" in worker.log.read_text()
        )
    told = [(line["step"], line["detail"]) for line in resumed[0].reports("checkpoint-damaged")]
    assert [step for step, _ in told] == [9]
    assert "SHA-256" in told[0][1]
    last = run(gangs, 2, steps=13, resume_step=9)
    assert list(last[1].losses) == [10, 11, 12, 13], "what was damaged is whole again"


def test_only_where_none_is_left_it_ends_and_names_the_file(gangs: Any) -> None:
    run(gangs, 2, steps=4, checkpoint_every=2)
    damage(gangs.checkpoint_root, 2, "layer-0000.safetensors")
    damage(gangs.checkpoint_root, 4, "layer-0003.safetensors")

    workers = gangs.start(gangs.plan(2, steps=6, resume_step=4), 2)

    assert workers[0].exit_code() == 17
    assert workers[0].end["cause"] == "checkpoint-unusable"
    for file in ("step-00000004/layer-0003.safetensors", "step-00000002/layer-0000.safetensors"):
        assert f"{file}: its bytes do not have the SHA-256" in workers[0].end["detail"]
    workers[1].exit_code()


def test_an_address_without_renames_holds_a_job_that_is_stopped_and_goes_on(gangs: Any) -> None:
    uri = f"local://{gangs.folder}/bucket"
    workers = gangs.start(gangs.plan(2, steps=ENDLESS, checkpoint_uri=uri), 2)
    gangs.until(lambda: len(workers[1].losses) >= 7, "seven steps")
    workers[1].send(signal.SIGTERM)
    assert [worker.exit_code() for worker in workers] == [0, 0], workers[0].log.read_text()
    last = max(workers[1].losses)
    assert workers[0].reports("checkpoint")[-1] == {
        "kind": "checkpoint", "step": last, "uri": f"{uri}/step-{last:08d}"
    }  # fmt: skip

    resumed = run(gangs, 1, steps=last + 3, checkpoint_uri=uri, resume_step=last)

    (undisturbed,) = run(gangs, 1, steps=last + 3)
    assert workers[1].losses | resumed[0].losses == pytest.approx(undisturbed.losses, abs=TOLERANCE)


@pytest.mark.parametrize("steps", [ENDLESS, 4], ids=["next-step", "end"])
def test_a_disk_that_is_full_under_one_stage_ends_the_gang_without_the_checkpoint(
    gangs: Any, steps: int
) -> None:
    plan = gangs.plan(2, steps=steps, checkpoint_every=2)
    workers = gangs.start(plan, 2, env={"FULL_AFTER": "1"}, script=FULL_DISK)

    assert [worker.exit_code() for worker in workers] == [12, 18], workers[0].log.read_text()
    assert workers[1].end["cause"] == "checkpoint-unwritable"
    assert "head.safetensors: No space left on device" in workers[1].end["detail"]
    assert [line["step"] for line in workers[0].reports("checkpoint")] == [2]
    assert gangs.checkpoints.steps() == [2]


@pytest.mark.parametrize(
    ("stages", "changes"),
    [
        pytest.param(1, {}, id="one-stage"),
        pytest.param(3, {}, id="another-cut"),
        pytest.param(2, {"layers_per_stage": [1, 3]}, id="other-layers"),
        pytest.param(2, {"window": [4, 4]}, id="gpipe"),
        pytest.param(2, {"binding": "hint"}, id="ready-first"),
        pytest.param(2, {"recompute": "full"}, id="recomputed"),
    ],
)
def test_a_plan_that_computes_the_same_goes_on_with_the_same_losses(
    gangs: Any, stages: int, changes: dict[str, Any]
) -> None:
    first = run(gangs, 2, steps=3)

    resumed = run(gangs, stages, steps=6, resume_step=3, **changes)

    undisturbed = run(gangs, 1, steps=6, checkpoint_uri=(gangs.folder / "undisturbed").as_uri())
    assert first[1].losses | resumed[-1].losses == pytest.approx(undisturbed[0].losses, abs=TOLERANCE)


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"optimizer": "muon"}, "optimizer adamw, and the plan's is muon"),
        ({"weight_rule": "current"}, "weight_rule flush, and the plan's is current"),
    ],
)
def test_another_optimizer_or_rule_is_refused(gangs: Any, changes: dict[str, Any], told: str) -> None:
    run(gangs, 1, steps=2)

    (worker,) = gangs.start(gangs.plan(1, steps=4, resume_step=2, **changes), 1)

    assert worker.exit_code() == 17
    assert told in worker.end["detail"]
