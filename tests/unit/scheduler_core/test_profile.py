"""Stage profiles: the formulas of the design, whole layers, and measured figures in their place."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from itertools import accumulate

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scheduler import presets
from scheduler.activations import builtin_layer_bytes, builtin_pending_bytes, layer_activation_bytes
from scheduler.errors import InvalidValueError
from scheduler.job import MeasuredProfile, ModelShape, Recompute, Schedule
from scheduler.parameters import active_parameter_count, layer_parameters, parameter_count
from scheduler.pipeline.plan.stage_costs import stage_costs
from scheduler.profile import (
    Workload,
    boundary_bytes,
    flops_per_token,
    in_flight_limit,
    k_min,
    layers_before,
    pace_s,
    split_layers,
    stage_profiles,
)

A100 = presets.gpu("a100-80g")
H100 = presets.gpu("h100")


@given(st.integers(1, 130), st.data())
def test_layers_are_whole_and_differ_by_one_at_most(layers, data):
    stages = data.draw(st.integers(1, layers))
    model = replace(presets.model("gpt-tiny"), layers=layers)
    split = split_layers(model, stages)
    before = [layers_before(model, stages, stage) for stage in range(stages + 1)]
    assert before == [0, *accumulate(split)]
    assert len(split) == stages
    assert sum(split) == layers
    assert set(split) <= {layers // stages, -(-layers // stages)}


def test_more_stages_than_layers_are_refused():
    with pytest.raises(InvalidValueError, match="layers = 32"):
        split_layers(presets.model("llama-2-7b"), 33)
    with pytest.raises(InvalidValueError, match="stages: 0"):
        split_layers(presets.model("llama-2-7b"), 0)


@pytest.mark.parametrize("model", ["llama-2-7b", "gpt-3-175b", "mixtral-8x7b", "deepseek-v3", "gemma-3-27b"])
@pytest.mark.parametrize("stages", [1, 2, 7, 13])
def test_the_stages_together_take_exactly_the_time_of_the_whole_model(make_spec, model, stages):
    spec = make_spec(model, micro_batch=2, tensor=8)
    shape = spec.model
    # t = micro_batch × seq × (6N + 12·L·h·s) / (tensor × peak × mfu), written out.
    operations = 6 * active_parameter_count(shape) + 12 * shape.layers * shape.hidden * shape.seq_len
    t = 2 * shape.seq_len * operations / (8 * A100.sustained_flops)
    profiles = stage_profiles(spec, (A100,) * stages)
    assert sum(each.pace_s for each in profiles) == pytest.approx(t, rel=1e-12)
    assert all(each.backward_s == pytest.approx(2 * each.forward_s) for each in profiles)


def test_full_recompute_repeats_the_forward(make_spec):
    plain = stage_profiles(make_spec("llama-2-7b"), (A100,) * 4)
    full = stage_profiles(make_spec("llama-2-7b", recompute=Recompute.FULL), (A100,) * 4)
    for before, after in zip(plain, full, strict=True):
        assert after.forward_s == pytest.approx(before.forward_s)
        assert after.backward_s == pytest.approx(3 * after.forward_s)
        assert after.pace_s == pytest.approx(before.pace_s * 4 / 3)


def test_the_head_counts_on_the_last_stage_and_the_embedding_costs_no_time(make_spec):
    spec = make_spec("llama-3.1-70b", tensor=8)
    first, *inner, last = stage_profiles(spec, (A100,) * 8)
    assert first.pace_s == pytest.approx(inner[0].pace_s)
    shape = spec.model
    matrices = layer_parameters(shape, 0) - 2 * shape.hidden
    layer = 6 * matrices + 12 * shape.hidden * shape.seq_len
    head = 6 * shape.vocab * shape.hidden
    assert last.pace_s / inner[0].pace_s == pytest.approx((10 * layer + head) / (10 * layer))


def test_more_stages_help_only_where_a_stage_loses_a_layer(make_spec):
    """80 layers on 41 … 79 stages are no faster than on 40: the slowest stage still has two."""
    spec = make_spec("llama-3.1-70b", tensor=8)
    paces = {stages: pace_s(spec, A100, stages) for stages in range(1, 81)}
    assert {paces[stages] for stages in range(40, 80)} == {paces[40]}
    assert paces[80] < paces[40] < paces[39] == paces[27] < paces[26]
    for stages, pace in paces.items():
        assert pace == max(each.pace_s for each in stage_profiles(spec, (A100,) * stages))


def test_memory_of_a_gpu_is_weights_by_stage_and_activations_by_layer(make_spec):
    spec = make_spec("llama-2-13b", tensor=2, micro_batch=3)
    shape = spec.model
    first, *_, last = stage_profiles(spec, (A100,) * 8)
    table = shape.vocab * shape.hidden
    layers = 5 * layer_parameters(shape, 0)
    assert first.weight_bytes == pytest.approx(18 * (layers + table) / 2)
    assert last.weight_bytes == pytest.approx(18 * (layers + table + shape.hidden) / 2)
    assert first.inflight_bytes == pytest.approx(5 * 34 * 4096 * 3 * 5120 / 2)
    total = sum(each.weight_bytes for each in stage_profiles(spec, (A100,) * 8)) * 2
    assert total == pytest.approx(18 * parameter_count(shape))


def test_a_tied_embedding_stands_on_both_ends_of_a_pipeline(make_spec):
    spec = make_spec("gpt-3-1.3b")
    table = spec.model.vocab * spec.model.hidden
    (alone,) = stage_profiles(spec, (A100,))
    ends = sum(each.weight_bytes for each in stage_profiles(spec, (A100,) * 2))
    assert alone.weight_bytes == pytest.approx(18 * parameter_count(spec.model))
    assert ends - alone.weight_bytes == pytest.approx(18 * table)


def test_activations_follow_the_recompute_that_was_asked_for():
    shape = presets.model("gpt-3-175b")
    sbh = 2048 * 12288
    assert layer_activation_bytes(shape, 1, 8, Recompute.NONE) == pytest.approx(
        sbh * (10 + 24 / 8 + 5 * 96 * 2048 / (12288 * 8))
    )
    assert layer_activation_bytes(shape, 1, 8, Recompute.SELECTIVE) == pytest.approx(34 * sbh / 8)
    assert layer_activation_bytes(shape, 1, 8, Recompute.FULL) == pytest.approx(2 * sbh)
    assert layer_activation_bytes(shape, 1, 8, Recompute.FULL, 4) == pytest.approx(4 * sbh)


def test_full_recompute_holds_one_whole_layer_once_however_many_are_in_flight(make_spec):
    spec = make_spec("llama-2-7b", recompute=Recompute.FULL)
    stage = stage_profiles(spec, (A100,) * 4)[1]
    whole = layer_activation_bytes(spec.model, 1, 1, Recompute.NONE)
    assert stage.inflight_bytes == pytest.approx(8 * 2 * 4096 * 4096)
    assert stage.weight_bytes == pytest.approx(18 * 8 * layer_parameters(spec.model, 0) + whole)


def test_a_layer_of_the_built_in_worker_keeps_the_tensors_of_its_table():
    shape = ModelShape("x", 2, 768, 12, 4, 64, 2048, gated_mlp=True, vocab=256, seq_len=512)
    in_fp32 = 2 * (2 * 4 * 768 + 4)
    of_width = {"hidden": 2 * 768, "queries": 2 * 768, "keys and values": 2 * 4 * 64, "mlp": 4 * 2048}
    for element_bytes in (2, 4):
        selective = 3 * 512 * (in_fp32 + element_bytes * sum(of_width.values()))
        assert builtin_layer_bytes(shape, 3, Recompute.SELECTIVE, element_bytes) == selective
        assert builtin_layer_bytes(shape, 3, Recompute.NONE, element_bytes) == selective + 3 * 512 * 4 * 12
        full = builtin_layer_bytes(shape, 3, Recompute.FULL, element_bytes)
        assert full == 3 * 512 * element_bytes * 768
        assert full == layer_activation_bytes(shape, 3, 1, Recompute.FULL, element_bytes)


@pytest.mark.parametrize("recompute", list(Recompute))
def test_a_stage_of_the_built_in_worker_differs_in_its_activations_alone(make_spec, recompute):
    published = make_spec("llama-2-7b", recompute=recompute, micro_batch=2)
    builtin = replace(published, training=replace(published.training, builtin_layers=True))
    kept = partial(builtin_layer_bytes, published.model, 2)
    rebuilt = recompute is Recompute.FULL
    for ours, theirs in zip(
        stage_profiles(builtin, (A100,) * 4), stage_profiles(published, (A100,) * 4), strict=True
    ):
        assert ours.inflight_bytes == 8 * kept(recompute)
        taken = layer_activation_bytes(published.model, 2, 1, Recompute.NONE) if rebuilt else 0.0
        assert ours.weight_bytes == pytest.approx(
            theirs.weight_bytes - taken + (kept(Recompute.NONE) if rebuilt else 0.0), rel=1e-12
        )
        same = replace(
            ours, inflight_bytes=theirs.inflight_bytes, weight_bytes=theirs.weight_bytes, pending_share=1.0
        )
        assert same == theirs


def test_both_parts_of_a_split_backward_count_the_layers_of_the_built_in_worker(make_spec):
    spec = make_spec("llama-2-7b")
    spec = replace(spec, training=replace(spec.training, builtin_layers=True))
    for cost in stage_costs(Workload.of(spec), (A100,) * 4, split=True):
        assert cost.inflight_bytes == 8 * builtin_layer_bytes(spec.model, 1, Recompute.SELECTIVE)
        left = 8 * builtin_pending_bytes(spec.model, 1, Recompute.SELECTIVE)
        assert cost.pending_bytes == pytest.approx(left, rel=1e-12)
        assert 0.6 < cost.pending_bytes / cost.inflight_bytes < 0.7
    for cost in stage_costs(Workload.of(make_spec("llama-2-7b")), (A100,) * 4, split=True):
        assert cost.pending_bytes == cost.inflight_bytes, "of a job's own command nobody knows better"


def test_five_per_cent_of_the_memory_stay_free(make_spec):
    stage = stage_profiles(make_spec("llama-2-7b"), (A100,) * 8)[3]
    limit = in_flight_limit(stage, A100)
    assert stage.weight_bytes + limit * stage.inflight_bytes <= 0.95 * 80e9
    assert stage.weight_bytes + (limit + 1) * stage.inflight_bytes > 0.95 * 80e9
    assert in_flight_limit(replace(stage, weight_bytes=77e9), A100) == 0


@pytest.mark.parametrize("model", ["llama-2-7b", "llama-2-13b", "llama-2-70b", "gpt-3-1.3b"])
@pytest.mark.parametrize("recompute", list(Recompute))
@pytest.mark.parametrize("tensor", [1, 8])
def test_k_min_is_the_least_number_of_stages_whose_strict_window_fits(make_spec, model, recompute, tensor):
    spec = make_spec(model, recompute=recompute, tensor=tensor, micro_batches=5)

    def fits(stages: int) -> bool:
        return all(
            in_flight_limit(profile, A100) >= min(stages - stage, 5)
            for stage, profile in enumerate(stage_profiles(spec, (A100,) * stages))
        )

    fitting = [stages for stages in range(1, spec.model.layers + 1) if fits(stages)]
    assert k_min(spec, A100) == (fitting[0] if fitting else None)


def test_gpipe_must_hold_every_micro_batch(make_spec):
    strict = k_min(make_spec("llama-2-7b", micro_batches=64), A100)
    gpipe = k_min(make_spec("llama-2-7b", micro_batches=64, schedule=Schedule.GPIPE), A100)
    assert strict is not None
    assert gpipe is None or gpipe > strict


def test_a_model_that_fits_no_memory_has_no_k_min(make_spec):
    assert k_min(make_spec("llama-3.1-405b"), presets.gpu("t4")) is None


def test_a_boundary_carries_the_hidden_state_of_all_replicas(make_spec):
    spec = make_spec("llama-2-7b", micro_batch=2, data=3, tensor=4)
    assert boundary_bytes(spec) == 3 * 2 * 4096 * 4096 * 2


def test_the_all_reduce_hides_behind_the_last_backward_but_for_its_last_bucket(make_spec):
    alone = stage_profiles(make_spec("llama-2-7b"), (A100,) * 8)[3]
    spec = make_spec("llama-2-7b", data=4)
    quick = stage_profiles(spec, (replace(A100, intra_region_bps=400e9),) * 8)[3]
    slow = stage_profiles(spec, (replace(A100, intra_region_bps=1e9),) * 8)[3]
    parameters = 4 * layer_parameters(spec.model, 0)
    volume_bits = 2 * 3 / 4 * 4 * parameters * 8
    optimizer_s = 30 * parameters * 8 / A100.memory_bps
    assert alone.sync_s == pytest.approx(optimizer_s)
    assert quick.sync_s == pytest.approx(optimizer_s + volume_bits / 400e9 / 4)
    assert slow.sync_s == pytest.approx(optimizer_s + volume_bits / 1e9 - quick.backward_s * 3 / 4)


def test_fractional_data_lies_between_its_neighbours(make_spec):
    gpu = replace(A100, intra_region_bps=1e9)
    one, between, two = (
        stage_profiles(make_spec("llama-2-7b", data=data), (gpu,) * 8)[3].sync_s for data in (1, 1.875, 2)
    )
    assert one < between < two
    assert boundary_bytes(make_spec("llama-2-7b", data=1.875)) == 1.875 * 4096 * 4096 * 2


def test_experts_weigh_whole_and_compute_by_what_is_active(make_spec):
    shape = presets.model("mixtral-8x7b")
    expert = 3 * 4096 * 14336
    assert layer_parameters(shape, 0) == 4096 * 128 * 80 + 8 * expert + 8 * 4096 + 2 * 4096
    assert parameter_count(shape) - active_parameter_count(shape) == 32 * 6 * expert
    assert flops_per_token(shape) == 6 * active_parameter_count(shape) + 12 * 32 * 4096 * 8192
    assert stage_profiles(make_spec("mixtral-8x7b"), (H100,) * 32)[5].weight_bytes == pytest.approx(
        18 * layer_parameters(shape, 0)
    )


def test_leading_dense_layers_are_smaller_than_the_experts_behind_them():
    shape = presets.model("deepseek-v3")
    assert (
        layer_parameters(shape, 2) - layer_parameters(shape, 3)
        == 3 * 7168 * (18432 - 257 * 2048) - 7168 * 256
    )
    with pytest.raises(InvalidValueError, match="layer: 61"):
        layer_parameters(shape, 61)


def test_each_stage_has_the_speed_of_the_gpu_under_it(make_spec):
    spec = make_spec("llama-2-7b")
    mixed = stage_profiles(spec, (A100, A100, H100, H100))
    slow, fast = stage_profiles(spec, (A100,) * 4), stage_profiles(spec, (H100,) * 4)
    assert mixed == (slow[0], slow[1], fast[2], fast[3])
    speed_up = H100.sustained_flops / A100.sustained_flops
    assert mixed[0].forward_s / mixed[2].forward_s == pytest.approx(speed_up)


def measured() -> MeasuredProfile:
    return MeasuredProfile(
        forward_s={"A100-80G": 0.9},
        backward_s={"A100-80G": 2.1},
        activation_bytes=7e6,
        stage_memory_bytes=320e9,
        inflight_bytes=64e9,
    )


def test_a_measured_profile_takes_the_place_of_the_formulas(make_spec):
    spec = make_spec("llama-2-7b", tensor=2, profile=measured())
    profiles = stage_profiles(spec, (A100,) * 4)
    assert sum(each.forward_s for each in profiles) == pytest.approx(0.9)
    assert sum(each.backward_s for each in profiles) == pytest.approx(2.1)
    assert sum(each.weight_bytes for each in profiles) == pytest.approx(320e9 / 2)
    assert sum(each.inflight_bytes for each in profiles) == pytest.approx(64e9 / 2)
    assert boundary_bytes(spec) == 7e6
    assert k_min(spec, A100) == 4
    assert pace_s(spec, A100, 4) == max(each.pace_s for each in profiles)


def test_a_gpu_type_that_was_not_measured_is_no_place_for_the_job(make_spec):
    spec = make_spec("llama-2-7b", profile=measured())
    assert k_min(spec, H100) is None
    with pytest.raises(InvalidValueError, match="A100-80G") as caught:
        stage_profiles(spec, (H100,))
    assert caught.value.value == "H100"


def test_profiles_do_not_depend_on_who_owns_the_job_or_how_long_it_runs(make_spec):
    short, long = (
        make_spec("llama-2-7b", steps=1),
        replace(make_spec("llama-2-7b", steps=10**6), job_id="other"),
    )
    assert stage_profiles(short, (A100,) * 4) is stage_profiles(long, (A100,) * 4)


def test_a_shape_of_the_users_own_needs_no_preset(make_spec):
    own = ModelShape("own", 3, 64, 4, 2, 16, 128, True, 256, 32, tied_embeddings=True)
    attention, mlp = 64 * 16 * 2 * (4 + 2), 3 * 64 * 128
    assert parameter_count(own) == 3 * (attention + mlp + 128) + 256 * 64 + 64
    assert len(stage_profiles(make_spec(own), (presets.gpu("cpu-slot"),) * 3)) == 3
