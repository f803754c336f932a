"""What a codec costs in loss: a toy GPT over the worker's corpus, its one boundary coded in several ways.

`python -m agents.worker.codec.study --seeds 5 --out losses.jsonl` prints a table; each run is a line of JSON as well.
The loss is over held-out batches, nats a byte, after the last step. Runs of one seed see the same batches.
"""

from __future__ import annotations

import argparse
import json
import math
import statistics
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import torch

from agents.protocol import WorkerCodec, WorkerModel, WorkerPlan
from agents.worker.codec.stiefel import Spel, deviation
from agents.worker.codec.training import STEP_SIZE, gradient_of
from agents.worker.codec.whole import CodedModel
from agents.worker.data import Corpus, load_corpus
from agents.worker.model import cross_entropy
from agents.worker.optimizer import make_optimizer

TOY = WorkerModel(layers=4, hidden=64, heads=4, kv_heads=4, head_dim=16, ffn=176, vocab=256, seq_len=64)
SEQUENCES = 16
LEARNING_RATE = 3e-3
HELD_OUT_SEQUENCES = 256
CPU = torch.device("cpu")


@dataclass(frozen=True, slots=True)
class Variant:
    """A way to code the boundary. `step_size` of the projector is a part of the learning rate: 0 keeps it as it is
    drawn, none lets AdamW train it like any weight, off the manifold. Full rank with neither is no compression."""

    name: str
    step_size: float | None
    anchors: bool
    full_rank: bool = False


VARIANTS = (
    Variant("uncompressed", 0.0, anchors=False, full_rank=True),
    Variant("SPEL + anchors", STEP_SIZE, anchors=True),
    Variant("SPEL", STEP_SIZE, anchors=False),
    Variant("SPEL, ten times the step, + anchors", 10 * STEP_SIZE, anchors=True),
    Variant("fixed", 0.0, anchors=False),
    Variant("fixed + anchors", 0.0, anchors=True),
    Variant("naive learned", None, anchors=False),
    Variant("naive learned + anchors", None, anchors=True),
)


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a run came to."""

    variant: str
    seed: int
    rank: int
    steps: int
    loss: float
    deviation: float
    """max|AᵀA − I| of the projector at the end."""


def run(variant: Variant, seed: int, rank: int, steps: int, corpus: Corpus) -> Outcome:
    """Train the toy once."""
    rank = TOY.hidden if variant.full_rank else rank
    codec = WorkerCodec(rank=rank, boundaries=[0])
    model = CodedModel(_plan(codec, seed, steps), codec, CPU)
    (projector,) = model.projectors
    trained = [model.layers, *(model.anchors if variant.anchors else ())]
    optimizer = make_optimizer(torch.nn.ModuleList(trained), LEARNING_RATE)
    if variant.step_size is None:
        optimizer.add_param_group({"params": [projector], "weight_decay": 0.0})
    spel = Spel(projector.data, LEARNING_RATE * (variant.step_size or 0.0))
    for step in range(1, steps + 1):
        inputs, targets = corpus.batch(seed, step, 0, SEQUENCES, TOY.seq_len)
        cross_entropy(model(inputs), targets).backward()  # type: ignore[no-untyped-call]
        if variant.step_size:
            spel.step(gradient_of(projector))
        optimizer.step()
        model.zero_grad()
    with torch.no_grad():
        inputs, targets = corpus.batch(seed, 0, 0, HELD_OUT_SEQUENCES, TOY.seq_len)
        loss = cross_entropy(model(inputs), targets).item()
    return Outcome(variant.name, seed, rank, steps, loss, deviation(projector))


def table(outcomes: Sequence[Outcome]) -> Iterator[str]:
    """A row a variant: the mean loss, and the mean distance to uncompressed with its standard error over seeds."""
    losses = {(each.variant, each.seed): each.loss for each in outcomes}
    yield "| boundary | loss | above uncompressed | max deviation of AᵀA |"
    yield "|---|---|---|---|"
    for variant in VARIANTS:
        mine = [each for each in outcomes if each.variant == variant.name]
        above = [each.loss - losses[VARIANTS[0].name, each.seed] for each in mine]
        error = statistics.stdev(above) / math.sqrt(len(above)) if len(above) > 1 else math.nan
        yield (
            f"| {variant.name} | {statistics.mean(each.loss for each in mine):.4f} "
            f"| {statistics.mean(above):+.4f} ± {error:.4f} | {max(each.deviation for each in mine):.1e} |"
        )


def _plan(codec: WorkerCodec, seed: int, steps: int) -> WorkerPlan:
    half = TOY.layers // 2
    return WorkerPlan(
        model=TOY,
        steps=steps,
        micro_batch=SEQUENCES,
        micro_batches=1,
        dtype="fp32",
        recompute="none",
        layers_per_stage=[half, TOY.layers - half],
        window=[2, 1],
        learning_rate=LEARNING_RATE,
        seed=seed,
        codec=codec,
        checkpoint_uri="file:///nowhere",
        checkpoint_every=steps,
    )


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m agents.worker.codec.study", description=__doc__)
    parser.add_argument("--seeds", type=int, default=5, help="seeds 0 … N − 1")
    parser.add_argument("--rank", type=int, default=8, help=f"numbers a token, of {TOY.hidden}")
    parser.add_argument("--steps", type=int, default=250)
    parser.add_argument("--out", type=Path, help="a file for the lines of JSON")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    corpus = load_corpus(None, TOY.seq_len)
    outcomes = []
    for seed in range(arguments.seeds):
        for variant in VARIANTS:
            outcomes.append(run(variant, seed, arguments.rank, arguments.steps, corpus))
            line = json.dumps(asdict(outcomes[-1]))
            print(line, flush=True)
            if arguments.out is not None:
                with arguments.out.open("a") as file:
                    file.write(line + "\n")
    print("\n".join(table(outcomes)))


if __name__ == "__main__":
    main()
