"""torch's CSV form of a schedule: what is written, torch reads; what torch writes, is read."""

from __future__ import annotations

import pytest

from scheduler.errors import InvalidValueError
from scheduler.pipeline.plan import layouts, orders, split_orders
from scheduler.pipeline.plan.communication import computations
from scheduler.pipeline.plan.generate import hanayo
from scheduler.pipeline.plan.ir import Binding, WeightRule, Worker
from scheduler.pipeline.plan.passes import place, plan_of
from scheduler.pipeline.plan.timing import timeline
from scheduler.pipeline.plan.torch_csv import from_csv, layout_of, to_csv
from tests.plans import UNIT, every_hop, links_between, pipeline_of, together

schedules = pytest.importorskip("torch.distributed.pipelining.schedules", reason="torch is not installed")

RANKS, MICRO_BATCHES = 4, 8
PUBLISHED = {
    "GPipe": (layouts.line(RANKS), orders.gpipe(RANKS, MICRO_BATCHES)),
    "1F1B": (layouts.line(RANKS), orders.one_f_one_b(RANKS, MICRO_BATCHES)),
    "LoopedBFS": (layouts.loop(RANKS, 2), orders.looped_breadth_first(RANKS, 2, MICRO_BATCHES)),
    "Interleaved1F1B": (layouts.loop(RANKS, 2), orders.interleaved(RANKS, 2, MICRO_BATCHES)),
    "ZBVZeroBubble": (layouts.vee(RANKS), split_orders.zb_v(RANKS, MICRO_BATCHES)),
    "DualPipeV": (layouts.vee(RANKS), split_orders.dual_pipe_v(RANKS, MICRO_BATCHES)),
}
OURS = {
    "slack-1f1b": (layouts.line(RANKS), orders.windowed((7, 6, 2, 1), MICRO_BATCHES)),
    "zb-h1": (layouts.line(RANKS), split_orders.zb_h1(RANKS, MICRO_BATCHES)),
    "v-half": (layouts.vee(RANKS), split_orders.v_half(RANKS, MICRO_BATCHES)),
    "hanayo": (layouts.wave(RANKS, 2), hanayo(RANKS, 2, MICRO_BATCHES)),
}

ADDED = (schedules.UNSHARD, schedules.RESHARD, schedules.REDUCE_GRAD)


def torchs_own(name: str):
    """torch's table of a built-in schedule, an overlapped pair one after the other."""
    from torch.distributed.pipelining._schedule_visualizer import get_schedule_ops

    chunks = 1 if name in ("GPipe", "1F1B") else 2
    return get_schedule_ops(name, RANKS, MICRO_BATCHES, chunks)


@pytest.mark.parametrize("name", ["LoopedBFS", "Interleaved1F1B", "ZBVZeroBubble", "DualPipeV"])
def test_built_in_schedules_are_those_of_torch_action_for_action(name):
    text = "\n".join(",".join("" if each is None else str(each) for each in row) for row in torchs_own(name))
    assert from_csv(text) == PUBLISHED[name][1]
    assert layout_of(from_csv(text)) == PUBLISHED[name][0]


@pytest.mark.parametrize("name", [*PUBLISHED, *OURS])
def test_what_is_written_is_read_again_whole(name):
    plan = every_hop(*(PUBLISHED | OURS)[name], 1.0)
    assert from_csv(to_csv(plan)) == plan.actions
    assert from_csv(to_csv(plan, messages=False)) == computations(plan.actions)
    assert plan_of(plan.pipeline, from_csv(to_csv(plan))) == plan
    assert plan_of(plan.pipeline, from_csv(to_csv(plan, messages=False))) == plan


@pytest.mark.parametrize("name", [*PUBLISHED, *OURS])
@pytest.mark.parametrize("form", ["compute_only", "compute_comms"])
def test_torch_loads_what_is_written_and_runs_it_dry(name, form, tmp_path):
    layout, order = (PUBLISHED | OURS)[name]
    plan = every_hop(layout, order, 1.0)
    written = tmp_path / "plan.csv"
    written.write_text(to_csv(plan, messages=form == "compute_comms"), encoding="utf-8")
    runtime = schedules._PipelineScheduleRuntime.__new__(schedules._PipelineScheduleRuntime)
    runtime.pipeline_order, runtime.pp_group_size = {}, RANKS
    runtime._num_stages, runtime._n_microbatches = layout.stages, MICRO_BATCHES
    runtime._stages, runtime._defer_pp_recv = [], False
    runtime._load_csv(str(written), format=form)
    assert runtime.stage_index_to_group_rank == dict(enumerate(layout.chains[0]))
    for rank, row in runtime.pipeline_order_with_comms.items():
        # What torch adds around a stage's parameters, its own dry run does not know.
        runtime.pipeline_order_with_comms[rank] = [each for each in row if each.computation_type not in ADDED]
    ran = runtime._simulate()  # raises if it comes to a stand
    assert [[str(each) for each in ran[rank] if each and each.is_compute_op] for rank in range(RANKS)] == [
        [str(each) for each in actions] for actions in order
    ]


@pytest.mark.parametrize("name", PUBLISHED)
def test_torchs_own_messages_make_a_plan_that_takes_as_long_as_ours(name):
    layout, order = PUBLISHED[name]
    plain = {rank: [schedules._Action.from_str(str(each)) for each in row] for rank, row in enumerate(order)}
    lowered = schedules._add_send_recv(plain, lambda stage: layout.chains[0][stage], layout.stages)
    read = from_csv("\n".join(",".join(map(str, lowered[rank])) for rank in range(RANKS)))
    regions = [str(rank) for rank in range(RANKS)]
    pipeline = pipeline_of(layout, UNIT, regions, links_between(regions, 0.75, 0.25))
    theirs, ours = plan_of(pipeline, read), plan_of(pipeline, order)
    # Its receives may stand elsewhere: they only post.
    assert timeline(theirs) == timeline(ours)


def test_gradients_are_reduced_where_each_stage_has_ended():
    text = to_csv(together(layouts.line(2), orders.one_f_one_b(2, 2)))
    assert text.splitlines()[0] == "0F0,0SEND_F0,0F1,0SEND_F1,0RECV_B0,0B0,0RECV_B1,0B1,0REDUCE_GRAD"


@pytest.mark.parametrize("cell", ["0X1", "F0", "0F", "0F1 1B0", "0OVERLAP_F_B", "-1F0"])
def test_a_cell_that_is_no_action_is_refused(cell):
    with pytest.raises(InvalidValueError, match="row 1"):
        from_csv(f"0F0,0B0\n{cell}")


@pytest.mark.parametrize(
    ("text", "what"), [("0F0,1F0\n1B0,0B0", "stage 1 on ranks 0 and 1"), ("0F0\n2F0", "stages from 0")]
)
def test_stages_that_stand_nowhere_or_twice_are_refused(text, what):
    with pytest.raises(InvalidValueError, match=what):
        layout_of(from_csv(text))


def test_what_torchs_runtime_cannot_do_is_not_written():
    both = layouts.both_ways(2)
    replicas = plan_of(place(both, [UNIT] * 4, [Worker("a")] * 2), orders.chimera(2, 2))
    pipeline, order = together(*PUBLISHED["1F1B"]).pipeline, PUBLISHED["1F1B"][1]
    for plan, what in (
        (replicas, "one chain"),
        (plan_of(pipeline, order, WeightRule.STASHED), "flush"),
        (plan_of(pipeline, order, binding=Binding.HINT), "strict"),
    ):
        with pytest.raises(InvalidValueError, match=what):
            to_csv(plan)
