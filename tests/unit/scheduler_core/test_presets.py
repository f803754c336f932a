"""Presets: known names in any case, and their figures equal to the published tables."""

from __future__ import annotations

import csv

import pytest

from scheduler import presets
from scheduler.errors import UnknownPresetError
from scheduler.job import ModelShape
from scheduler.parameters import active_parameter_count, parameter_count

ROUNDED = {
    "GPT-3-1.3B": "published as 1.3 B, counted 1.315 B: two digits",
    "GPT-3-13B": "published as 13.0 B from a printed width of 5140, which no head size divides; 5120 is used",
    "Megatron-GPT-1.7B": "published as 1.7 B, counted 1.652 B: two digits",
    "Megatron-GPT-3.6B": "published as 3.6 B, counted 3.561 B: two digits",
    "OPT-1.3B": "named 1.3 B, counted 1.315 B: two digits",
    "OPT-13B": "named 13 B, counted 12.851 B: two digits",
}
"""Models whose published count is rounded by more than 1 %, and why ours is right."""


def rows(path):
    with path.open(encoding="utf-8", newline="") as lines:
        return list(csv.DictReader(line for line in lines if not line.startswith("#")))


@pytest.fixture
def published(data_dir):
    return {row["model"]: row for row in rows(data_dir / "data" / "models" / "models.csv")}


@pytest.mark.parametrize("name", ["llama-2-7b", "LLAMA-2-7B", "Llama 2 7B", "llama_2_7b"])
def test_a_name_is_known_in_any_case_and_punctuation(name):
    assert presets.model(name).name == "Llama-2-7b"


@pytest.mark.parametrize(
    ("alias", "name"),
    [("A100-80G", "A100-80G"), ("a100-80gb", "A100-80G"), ("A100-SXM-80GB", "A100-80G"), ("h100", "H100"),
     ("RTX A6000", "A6000"), ("v100", "V100-16G"), ("CPU-slot", "cpu-slot")],
)  # fmt: skip
def test_gpus_go_by_their_usual_names(alias, name):
    assert presets.gpu(alias).name == name


def test_an_unknown_name_is_answered_with_its_neighbours():
    with pytest.raises(UnknownPresetError, match="Llama-2-70b") as caught:
        presets.model("lama-2-70b", field="model.preset")
    assert caught.value.field == "model.preset"
    with pytest.raises(UnknownPresetError, match="H100"):
        presets.gpu("H1000")
    with pytest.raises(UnknownPresetError, match="A100-40G"):
        presets.gpu("☃")


def test_every_listed_name_is_found_and_no_two_names_are_one():
    assert [presets.model(name).name for name in presets.MODEL_NAMES] == list(presets.MODEL_NAMES)
    assert [presets.gpu(name).name for name in presets.GPU_NAMES] == list(presets.GPU_NAMES)


@pytest.mark.shared_data
def test_shapes_equal_the_published_table_to_the_last_number(published):
    for name, row in published.items():
        shape = presets.model(name)
        experts = int(row["n_experts"])
        expected = ModelShape(
            name=shape.name,
            layers=int(row["layers"]),
            hidden=int(row["hidden"]),
            heads=int(row["heads"]),
            kv_heads=int(row["kv_heads"]),
            head_dim=int(row["head_dim"]),
            ffn=int(row["moe_ffn"]) if experts else int(row["ffn"]),
            gated_mlp=row["gated_mlp"] == "1",
            vocab=int(row["vocab"]),
            seq_len=int(row["train_seq"]),
            tied_embeddings=row["tied_emb"] == "1",
            learned_positions=row["family"] in {"gpt3", "megatron-gpt", "opt", "mpt"},
            experts=max(1, experts),
            experts_per_token=max(1, int(row["top_k"])),
            shared_experts=int(row["shared_experts"]),
            dense_layers=int(row["dense_layers"]) if experts else 0,
            dense_ffn=int(row["ffn"]) if experts and int(row["dense_layers"]) else 0,
            attention_parameters=shape.attention_parameters,
        )
        assert shape == expected, name
        assert bool(shape.attention_parameters) == ("MLA" in row["note"]), name


@pytest.mark.shared_data
def test_parameter_counts_are_within_one_per_cent_of_the_published(published):
    assert len(published) == 81
    off = set()
    for name, row in published.items():
        shape = presets.model(name)
        assert parameter_count(shape) / 1e9 == pytest.approx(float(row["params_total_B"]), rel=2e-3), name
        active = active_parameter_count(shape) / 1e9
        assert active == pytest.approx(float(row["params_active_B"]), rel=2e-3), name
        if parameter_count(shape) / 1e9 != pytest.approx(float(row["params_published_B"]), rel=0.01):
            off.add(shape.name)
    assert off == set(ROUNDED)


@pytest.mark.shared_data
def test_gpus_equal_the_data_sheets(data_dir):
    table = {row["accelerator"]: row for row in rows(data_dir / "data" / "gpu" / "accelerators.csv")}
    known = {name: row for name, row in table.items() if row["tdp_w"]}
    assert set(table) - set(known) == {"TPU v4", "TPU v5e", "TPU v5p", "TPU v6e", "Trainium2"}
    for name, row in known.items():
        gpu = presets.gpu(name)
        peak = float(row["peak_bf16_dense_tflops"] or row["peak_fp16_dense_tflops"]) * 1e12
        assert presets.peak_flops(name) == peak, name
        assert gpu.memory_bytes == float(row["memory_gb"]) * 1e9, name
        assert gpu.memory_bps == float(row["hbm_gbps"]) * 8e9, name
        assert gpu.power_w == float(row["tdp_w"]), name
        assert gpu.idle_w == pytest.approx(0.15 * gpu.power_w), name
        span = row["typical_mfu_dense_llm"].split(" ")[0]
        if span and gpu.name != "A100-80G":
            low, high = map(float, span.split("-"))
            assert gpu.sustained_flops / peak == pytest.approx((low + high) / 2), name


def test_models_of_known_size_have_their_published_parameters():
    # The figures of the released weights, embeddings and norms included.
    assert parameter_count(presets.model("llama-2-7b")) == 6_738_415_616
    assert parameter_count(presets.model("llama-2-13b")) == 13_015_864_320
    assert parameter_count(presets.model("llama-2-70b")) == 68_976_648_192
    assert parameter_count(presets.model("mixtral-8x7b")) == 46_702_792_704
    assert parameter_count(presets.model("gemma-3-27b")) == pytest.approx(27.0e9, rel=0.01)
    assert parameter_count(presets.model("flm-101b")) == pytest.approx(101e9, rel=0.01)
    assert active_parameter_count(presets.model("mixtral-8x7b")) == pytest.approx(12.9e9, rel=0.01)


@pytest.mark.parametrize("name", ["gpt-nano", "gpt-tiny", "gpt-mini"])
def test_our_own_small_models_train_on_bytes_and_can_be_cut_into_three_regions(name):
    shape = presets.model(name)
    assert (shape.vocab, shape.heads * shape.head_dim) == (256, shape.hidden)
    assert shape.layers >= 4
    assert parameter_count(shape) < 8e6
    assert shape.head_dim % 2 == 0, "rotary embeddings turn pairs"
