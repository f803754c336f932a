"""The profile against what others measured and printed."""

from __future__ import annotations

import csv
from dataclasses import replace

import pytest

from scheduler import presets
from scheduler.activations import activation_bytes
from scheduler.job import ModelShape, Recompute
from scheduler.parameters import parameter_count
from scheduler.profile import mfu

GIB = 2.0**30
PEAKS = {
    # llm-foundry's own constants: H100 with two digits more than the data sheet's 989.
    ("h100_80gb", "amp_bf16"): 989.5e12,
    ("h100_80gb", "amp_fp8"): 1979e12,
    ("a100_80gb", "amp_bf16"): 312e12,
    ("a100_80gb", "bf16"): 312e12,
    ("a100_40gb", "bf16"): 312e12,
}


def rows(path):
    with path.open(encoding="utf-8", newline="") as lines:
        return list(csv.DictReader(lines))


@pytest.mark.shared_data
def test_mfu_of_llm_foundry_follows_from_its_tokens_per_second(data_dir):
    table = rows(data_dir / "data" / "models" / "throughput_llm_foundry.csv")
    assert len(table) == 216
    for row in table:
        shape = replace(presets.model(f"mpt-{row['model']}"), seq_len=int(row["seq_len"]))
        assert parameter_count(shape) == pytest.approx(float(row["num_params"]), rel=2e-3)
        tokens_per_s = float(row["tokens_per_s"]) / int(row["gpus"])
        per_cent = 100 * mfu(shape, tokens_per_s, PEAKS[row["gpu"], row["precision"]])
        assert per_cent == pytest.approx(float(row["mfu_pct"]), abs=0.2), row


@pytest.mark.shared_data
def test_activation_memory_equals_the_printed_digits_of_korthikanti(data_dir):
    table = rows(data_dir / "data" / "models" / "memory_korthikanti.csv")
    assert [row["model"] for row in table] == ["22B", "175B", "530B", "1T"]
    for row in table:
        layers, hidden, heads = int(row["layers"]), int(row["hidden"]), int(row["heads"])
        shape = ModelShape(
            row["model"], layers, hidden, heads, heads, hidden // heads, 4 * hidden, False, 51200, 2048
        )
        for recompute, column in (
            (Recompute.NONE, "act_gib_no_recompute"),
            (Recompute.SELECTIVE, "act_gib_selective_seqpar"),
        ):
            held = activation_bytes(
                shape,
                int(row["micro_batch"]),
                int(row["tensor"]),
                recompute,
                pipeline=int(row["pipeline"]),
                interleave=int(row["interleave"]),
            )
            assert f"{held / GIB:.10g}" == f"{float(row[column]):.10g}", (row["model"], column)


@pytest.mark.shared_data
def test_weights_and_optimizer_of_the_22b_model_are_as_printed(data_dir):
    """With 18 bytes a parameter, as the same table has them (its own count leaves a few norms out)."""
    row = rows(data_dir / "data" / "models" / "memory_korthikanti.csv")[0]
    per_gpu = 18 * parameter_count(presets.model("megatron 22b")) / int(row["tensor"])
    assert per_gpu / GIB == pytest.approx(float(row["params_optim_gib_per_gpu"]), rel=0.02)
