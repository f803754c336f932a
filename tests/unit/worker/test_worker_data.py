"""The batch of a step is a function of seed, step and replica, and its targets are the bytes that follow."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from agents.worker.causes import Cause, WorkerEndError
from agents.worker.data import DEFAULT_CORPUS_BYTES, load_corpus


@pytest.fixture
def text(tmp_path: Path) -> str:
    path = tmp_path / "corpus.txt"
    path.write_bytes(bytes(range(256)) * 8)
    return str(path)


def test_the_same_step_gives_the_same_batch_and_another_step_seed_or_replica_another(text: str) -> None:
    def inputs(seed: int, step: int, replica: int) -> torch.Tensor:
        return load_corpus(text, 16).batch(seed, step, replica, sequences=4, seq_len=16)[0]

    assert torch.equal(inputs(1, 7, 0), inputs(1, 7, 0))
    for other in ((2, 7, 0), (1, 8, 0), (1, 7, 1)):
        assert not torch.equal(inputs(1, 7, 0), inputs(*other))


def test_targets_are_the_next_bytes(text: str) -> None:
    inputs, targets = load_corpus(text, 16).batch(0, 1, 0, sequences=8, seq_len=16)

    assert inputs.shape == targets.shape == (8, 16)
    assert torch.equal(targets, (inputs + 1) % 256)


def test_every_window_of_a_corpus_can_be_drawn_to_its_last_byte(tmp_path: Path) -> None:
    path = tmp_path / "short.txt"
    path.write_bytes(b"abcdef")

    inputs, _ = load_corpus(str(path), 4).batch(0, 1, 0, sequences=64, seq_len=4)

    assert {bytes(row.tolist()) for row in inputs} == {b"abcd", b"bcde"}


def test_the_default_corpus_is_the_standard_library_and_the_same_each_time() -> None:
    first, second = load_corpus(None, 16), load_corpus(None, 16)

    assert 1_000_000 < len(first) <= DEFAULT_CORPUS_BYTES
    assert first.digest == second.digest


def test_a_changed_or_longer_corpus_has_another_digest(tmp_path: Path) -> None:
    digests = set()
    for content in (b"a" * 40, b"a" * 39 + b"b", b"a" * 41):
        path = tmp_path / "corpus.txt"
        path.write_bytes(content)
        digests.add(load_corpus(str(path), 16).digest)
    assert len(digests) == 3


@pytest.mark.parametrize(("content", "cause"), [(None, Cause.CORPUS_MISSING), (b"", Cause.CORPUS_TOO_SHORT),
                                                (b"short", Cause.CORPUS_TOO_SHORT)])  # fmt: skip
def test_a_corpus_that_will_not_do_is_named(tmp_path: Path, content: bytes | None, cause: Cause) -> None:
    path = tmp_path / "corpus.txt"
    if content is not None:
        path.write_bytes(content)

    with pytest.raises(WorkerEndError) as caught:
        load_corpus(str(path), 16)

    assert caught.value.cause is cause
    assert str(path) in caught.value.detail
