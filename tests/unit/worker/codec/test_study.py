"""The study's variants do what they are called, and its table tells them against uncompressed, seed by seed."""

from __future__ import annotations

from pathlib import Path

import pytest

from agents.worker.codec.study import VARIANTS, Outcome, Variant, run, table
from agents.worker.data import Corpus, load_corpus

BY_NAME = {variant.name: variant for variant in VARIANTS}


@pytest.fixture
def corpus(tmp_path: Path) -> Corpus:
    path = tmp_path / "corpus.txt"
    path.write_bytes(bytes(range(32, 128)) * 40)
    return load_corpus(str(path), 64)


@pytest.mark.parametrize("variant", [BY_NAME["SPEL + anchors"], BY_NAME["fixed"]], ids=["spel", "fixed"])
def test_a_projector_stays_on_the_manifold_that_is_moved_along_it_or_not_at_all(
    corpus: Corpus, variant: Variant
) -> None:
    outcome = run(variant, 0, 4, 3, corpus)

    assert (outcome.variant, outcome.seed, outcome.rank, outcome.steps) == (variant.name, 0, 4, 3)
    assert outcome.deviation < 1e-5
    assert outcome == run(variant, 0, 4, 3, corpus), "a run is its seed's"


def test_adamw_takes_a_projector_off_the_manifold_and_uncompressed_has_the_full_rank(corpus: Corpus) -> None:
    assert run(BY_NAME["naive learned"], 0, 4, 3, corpus).deviation > 1e-4
    assert run(BY_NAME["uncompressed"], 0, 4, 1, corpus).rank == 64


def test_the_table_pairs_seeds() -> None:
    outcomes = [
        Outcome(variant.name, seed, 4, 1, base + above, 0.0)
        for seed, base in enumerate((2.0, 3.0))
        for variant, above in zip(VARIANTS, (0.0, *([0.25] * (len(VARIANTS) - 1))), strict=True)
    ]

    rows = list(table(outcomes))

    assert len(rows) == 2 + len(VARIANTS)
    assert rows[3] == "| SPEL + anchors | 2.7500 | +0.2500 ± 0.0000 | 0.0e+00 |"
