"""Training goes on after a stop, a kill, a lost peer: at the right step, with the curve of an undisturbed run."""

from __future__ import annotations

import shutil
import signal
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.xdist_group("stage-workers")

TOLERANCE = 1e-4
ENDLESS = 100_000
EXAMPLE = Path(__file__).parents[3] / "deploy" / "examples" / "jobs" / "plain_torch_train.py"


def undisturbed(gangs: Any, steps: int) -> dict[int, float]:
    """The losses of a run of one stage that nothing disturbs."""
    folder = (gangs.folder / "undisturbed").as_uri()
    (worker,) = gangs.start(gangs.plan(1, steps=steps, checkpoint_uri=folder, checkpoint_every=steps), 1)
    assert worker.exit_code() == 0
    losses: dict[int, float] = worker.losses
    return losses


def test_a_killed_job_of_three_stages_goes_on_with_two(gangs: Any) -> None:
    killed = gangs.start(gangs.plan(3, steps=ENDLESS), 3)
    gangs.until(lambda: len(killed[0].reports("checkpoint")) >= 2, "two checkpoints")
    killed[1].send(signal.SIGKILL)
    assert [worker.exit_code() for worker in killed] == [12, -9, 12], "its peers end at once, by themselves"
    assert killed[0].end["cause"] == killed[2].end["cause"] == "peer-lost"

    complete = gangs.checkpoints.steps()
    torn = gangs.checkpoint_root / "step-00099999"
    shutil.copytree(gangs.checkpoint_root / f"step-{complete[0]:08d}", torn)
    (torn / "layer-0002.safetensors").write_bytes(b"torn")
    steps = complete[0] + 12
    resumed = gangs.start(gangs.plan(2, steps=steps, resume_step=complete[0]), 2)

    assert [worker.exit_code() for worker in resumed] == [0, 0], resumed[0].log.read_text()
    assert list(resumed[-1].losses) == list(range(complete[0] + 1, steps + 1))
    right = undisturbed(gangs, steps)
    before = {step: loss for step, loss in killed[-1].losses.items() if step <= complete[0]}
    assert before | resumed[-1].losses == pytest.approx(right, abs=TOLERANCE)


def test_all_ranks_stop_after_the_same_step_when_one_is_asked(gangs: Any) -> None:
    workers = gangs.start(gangs.plan(3, steps=ENDLESS, checkpoint_every=ENDLESS), 3)
    gangs.until(lambda: len(workers[-1].losses) >= 3, "three steps")
    workers[1].send(signal.SIGTERM)

    assert [worker.exit_code() for worker in workers] == [0, 0, 0], workers[0].log.read_text()
    assert [worker.end["cause"] for worker in workers] == ["stopped"] * 3
    last = max(workers[-1].losses)
    assert [line["step"] for line in workers[0].reports("checkpoint")] == [last]
    assert gangs.checkpoints.steps() == [last]

    resumed = gangs.start(gangs.plan(3, steps=last + 4, resume_step=last), 3)
    assert [worker.exit_code() for worker in resumed] == [0, 0, 0], resumed[0].log.read_text()
    assert workers[-1].losses | resumed[-1].losses == pytest.approx(
        undisturbed(gangs, last + 4), abs=TOLERANCE
    )


def test_a_worker_that_waits_for_its_gang_stops_at_once(gangs: Any) -> None:
    (worker,) = gangs.start(gangs.plan(2), 2, ranks=[0])
    gangs.until(worker.listens, "the rendezvous")

    worker.send(signal.SIGTERM)

    assert worker.exit_code() == 0
    assert worker.end["cause"] == "stopped"


def test_a_newer_checkpoint_serves_where_the_wanted_one_is_gone(gangs: Any) -> None:
    (first,) = gangs.start(gangs.plan(1, steps=6, checkpoint_every=2), 1)
    assert first.exit_code() == 0
    assert gangs.checkpoints.steps() == [4, 6], "the last two are kept"

    (second,) = gangs.start(gangs.plan(1, steps=8, resume_step=2), 1)

    assert second.exit_code() == 0, second.log.read_text()
    assert list(second.losses) == [7, 8]


def test_the_example_of_a_users_own_script_is_stopped_and_resumes(gangs: Any) -> None:
    env = {
        "BACE_STEPS": str(ENDLESS),
        "BACE_CHECKPOINT_EVERY": "5",
        "BACE_CHECKPOINT_URI": (gangs.folder / "plain").as_uri(),
    }
    workers = gangs.start(None, 2, env=env, script=EXAMPLE)
    gangs.until(lambda: len(workers[1].losses) >= 7, "seven steps")
    workers[0].send(signal.SIGTERM)

    assert [worker.exit_code() for worker in workers] == [0, 0], workers[0].log.read_text()
    assert [worker.end["cause"] for worker in workers] == ["stopped", "stopped"]
    last = max(workers[1].losses)
    assert workers[0].reports("checkpoint")[-1]["step"] == last

    goes_on = env | {"BACE_STEPS": str(last + 5), "BACE_RESUME_STEP": str(last)}
    resumed = gangs.start(None, 2, env=goes_on, script=EXAMPLE)
    assert [worker.exit_code() for worker in resumed] == [0, 0], resumed[0].log.read_text()
    again = env | {"BACE_STEPS": str(last + 5), "BACE_CHECKPOINT_URI": (gangs.folder / "again").as_uri()}
    whole = gangs.start(None, 2, env=again, script=EXAMPLE)
    assert [worker.exit_code() for worker in whole] == [0, 0]
    assert workers[1].losses | resumed[1].losses == pytest.approx(whole[1].losses, abs=TOLERANCE)
