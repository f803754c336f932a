"""The serial driver runs whatever order is legal; the study compares like with like and goes on where it stopped."""

from __future__ import annotations

import pytest

from agents.worker.data import load_corpus
from agents.worker.executor.rank_plan import Action
from agents.worker.executor.rules.choice import RuleChoice
from agents.worker.study.cases import SEQUENCES, Case, cases
from agents.worker.study.results import line, read, table
from agents.worker.study.training import MODEL, Outcome, train_case
from scheduler.pipeline.plan.orders import gpipe
from scheduler.pipeline.plan.split_orders import zb_h1
from tests.unit.worker.rules.tiny import largest_difference, train


def planned(order: object) -> list[list[Action]]:
    """A plan of the scheduler as a worker reads it."""
    return [[Action(stage, op.value, micro_batch) for stage, op, micro_batch in actions] for actions in order]


@pytest.mark.parametrize("order", [gpipe(4, 8), zb_h1(4, 8)])
def test_synchronous_training_does_not_depend_on_the_order(order: object) -> None:
    window = (8, 8, 8, 8)
    plain, other = train(RuleChoice("flush"), 8), train(RuleChoice("flush"), 8, window, order=planned(order))

    assert plain.losses == other.losses
    assert largest_difference(plain.weights, other.weights) < 1e-6


def test_two_halves_of_a_backward_see_the_same_stashed_weights() -> None:
    whole = [[action for action in actions if action.op != "W"] for actions in planned(zb_h1(4, 8))]
    whole = [[action._replace(op="B") if action.op == "I" else action for action in each] for each in whole]
    halves = [
        [part for action in each for part in (
            (action._replace(op="I"), action._replace(op="W")) if action.op == "B" else (action,)
        )]
        for each in whole
    ]  # fmt: skip
    one, other = (train(RuleChoice("stashed"), 8, order=order) for order in (whole, halves))

    assert largest_difference(one.weights, other.weights) < 1e-6


def test_ranks_that_wait_for_each_other_are_named() -> None:
    order = [[Action(0, "B", 0), Action(0, "F", 0)], [], [], []]
    with pytest.raises(ValueError, match="wait for each other at 0B0"):
        train(RuleChoice("flush"), 1, order=order)


def test_every_case_is_a_rule_that_fits_and_updates_by_the_same_sequences() -> None:
    found = cases()

    assert len({case.name for case in found}) == len(found)
    assert all(SEQUENCES % case.micro_batches == 0 for case in found)
    assert {case.rule.every for case in found if case.micro_batches == 4 and not case.is_synchronous} == {4}


def test_a_run_is_the_same_again_and_learns() -> None:
    corpus = load_corpus(None, MODEL.seq_len)
    case = Case("adamw stashing", "adamw", RuleChoice("stashed"), (4,), 1)
    first, again = (train_case(case, 0, 6, 3e-3, corpus) for _ in range(2))

    assert first == again
    assert first.loss < 5.5
    assert first.drift == 3


def test_outcomes_are_read_as_they_were_written(tmp_path: object) -> None:
    path = tmp_path / "outcomes.jsonl"
    outcome = Outcome("adamw 2BW", 1, 200, 3e-3, 2.5, 1, 1.0)
    assert read(path) == []
    path.write_text(line(outcome) + "\n")
    assert read(path) == [outcome]
    path.write_text("{}\n")
    with pytest.raises(ValueError, match="line 1"):
        read(path)


def test_gaps_are_to_the_synchronous_run_of_the_same_seed() -> None:
    adamw = [case for case in cases() if case.optimizer == "adamw"][:2]
    outcomes = [
        Outcome(adamw[0].name, 0, 200, 3e-3, 2.0, 0, 1.0),
        Outcome(adamw[0].name, 1, 200, 3e-3, 3.0, 0, 1.0),
        Outcome(adamw[1].name, 0, 200, 3e-3, 2.2, 1, 1.0),
        Outcome(adamw[1].name, 1, 200, 3e-3, 3.4, 1, 1.0),
        Outcome(adamw[1].name, 2, 200, 3e-3, 9.9, 1, 1.0),
    ]

    assert "+0.3000 ± 0.1414 | +12.0" in table(adamw, outcomes)
