"""An order that a placement keeps as text is the same order again."""

from __future__ import annotations

import random

import pytest

from scheduler.errors import InvalidValueError
from scheduler.job import Schedule
from scheduler.pipeline.plan import layouts, orders, split_orders
from scheduler.pipeline.plan.generate import generate
from scheduler.pipeline.plan.ir import Op, StageAction
from scheduler.pipeline.plan.laid_out import laid_out
from scheduler.pipeline.plan.order_text import read, written
from tests.plans import UNIT, links_between, pipeline_of

TWO_A_RANK = [each for each in Schedule if each.parts > 1]
F, B, I, W = Op.FORWARD, Op.BACKWARD, Op.INPUT_GRADIENT, Op.WEIGHT_GRADIENT  # noqa: E741


@pytest.mark.parametrize("schedule", TWO_A_RANK)
@pytest.mark.parametrize(("ranks", "micro_batches"), [(1, 2), (2, 4), (4, 8), (4, 12), (8, 32)])
def test_every_published_order_comes_back(schedule: Schedule, ranks: int, micro_batches: int) -> None:
    made = laid_out(schedule, ranks, micro_batches)
    assert read(made.text, made.layout) == made.order


@pytest.mark.parametrize("seed", range(50))
def test_a_generated_order_comes_back(seed: int) -> None:
    dice = random.Random(seed)
    ranks, micro_batches = dice.randint(1, 8), dice.randint(1, 24)
    layout = dice.choice([layouts.line, layouts.vee])(ranks)
    regions = sorted(dice.choice("abc") for _ in range(ranks))
    links = links_between(regions, dice.uniform(0, 4), dice.uniform(0, 1))
    pipeline = pipeline_of(layout, UNIT, regions, links, dice.randint(ranks + 1, 3 * ranks + 1))
    order = generate(pipeline, micro_batches).order
    text = written(order, layout)
    assert read(text, layout) == order
    assert max(map(len, text)) <= 3 * micro_batches * (layout.stages // ranks), (
        "a letter for each computation"
    )


@pytest.mark.parametrize("seed", range(50))
def test_any_order_of_any_micro_batches_comes_back(seed: int) -> None:
    dice = random.Random(seed)
    layout, rank = layouts.vee(2), []
    for stage in (0, 3):
        for micro_batch in dice.sample(range(20), 12):
            rank.append(StageAction(stage, F, micro_batch))
            whole = dice.random() < 0.5
            rank += [StageAction(stage, op, micro_batch) for op in ((B,) if whole else (I, W))]
    dice.shuffle(rank)
    order = (tuple(rank), ())
    assert read(written(order, layout), layout) == order


def test_a_letter_is_a_computation_and_what_repeats_stands_once() -> None:
    line, vee = layouts.line(2), layouts.vee(2)
    assert written(orders.one_f_one_b(2, 3), line) == ("FFBFBB", "[FB]3")
    assert written(orders.one_f_one_b(2, 64), line) == ("F[FB]63B", "[FB]64")
    assert written(split_orders.zb_h1(2, 3), line) == ("FFIWFIWIW", "FIFIWFIWW")
    backwards = tuple(StageAction(3, B, each) for each in (1, 0))
    assert written((backwards, ()), vee) == ("b1b0", "")


def test_what_is_no_repetition_is_left_as_it_is() -> None:
    """A number that names a micro-batch is none that says how often."""
    named = tuple(StageAction(0, F, each) for each in (0, 1, 2, 7, 8, 9, 10, 3))
    assert written((named,), layouts.line(1)) == ("FFFF7FFFF3",)
    assert read(("[F]3F7[F]3F3",), layouts.line(1)) == (named,)


def test_the_text_of_a_large_order_is_short() -> None:
    for schedule in (Schedule.ZB_V, Schedule.V_HALF, Schedule.DUALPIPEV):
        assert sum(map(len, laid_out(schedule, 8, 1024).text)) < 400
    assert max(sum(map(len, laid_out(each, 8, 1024).text)) for each in TWO_A_RANK) < 2**16


@pytest.mark.parametrize(
    ("text", "why"),
    [
        (("FB",), "a text for each of 2 ranks"),
        (("FB", "FX"), "F, B, I and W of 1 stages"),
        (("FB", "fb"), "F, B, I and W of 1 stages"),
        (("FB", "3"), "F, B, I and W of 1 stages"),
        (("FB", "[FB]"), "F, B, I and W of 1 stages"),
        (("FB", "[]3"), "F, B, I and W of 1 stages"),
    ],
)
def test_a_text_of_something_else_is_refused(text: tuple[str, ...], why: str) -> None:
    with pytest.raises(InvalidValueError, match=why):
        read(text, layouts.line(2))


def test_more_stages_a_rank_or_more_chains_have_no_text() -> None:
    with pytest.raises(InvalidValueError, match="at most 2 stages a rank"):
        written(orders.interleaved(2, 3, 2), layouts.loop(2, 3))
    with pytest.raises(InvalidValueError, match="one chain"):
        written(orders.chimera(2, 2), layouts.both_ways(2))
