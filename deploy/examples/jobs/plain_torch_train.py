"""A training script of your own under bacepipe: plain torch, no import of bacepipe, any number of processes.

What it takes from the environment, all set by the agent:

- RANK, WORLD_SIZE, MASTER_ADDR, MASTER_PORT: where its processes meet, as torch.distributed expects them;
- BACE_STEPS, BACE_RESUME_STEP: how far to train, and after which step to go on;
- BACE_CHECKPOINT_URI, BACE_CHECKPOINT_EVERY: where checkpoints go (a folder, file://), and how often;
- BACE_REPORT: a file that takes one JSON object a line: what the job's page shows.

The stop protocol: on SIGTERM it finishes its step, writes a checkpoint, says so, and exits with 0. Here every
process trains the same small model on its own share of the batch, and the gradients are averaged.
"""

import json
import os
import signal
import sys
import time
from pathlib import Path
from urllib.parse import unquote, urlsplit

import torch
import torch.distributed as dist
from torch import nn

RANK, WORLD_SIZE = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
STEPS, RESUME_STEP = int(os.environ["BACE_STEPS"]), int(os.environ.get("BACE_RESUME_STEP", "0"))
CHECKPOINT_EVERY = int(os.environ.get("BACE_CHECKPOINT_EVERY", "100"))
CHECKPOINTS = Path(unquote(urlsplit(os.environ["BACE_CHECKPOINT_URI"]).path))

CONTEXT, BATCH = 16, 64


class NextByte(nn.Module):
    """Guesses a byte from the sixteen before it."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(256, 16)
        self.layers = nn.Sequential(nn.Linear(16 * CONTEXT, 128), nn.ReLU(), nn.Linear(128, 256))

    def forward(self, context: torch.Tensor) -> torch.Tensor:
        return self.layers(self.embedding(context).flatten(1))


def report(**fields: object) -> None:
    if "BACE_REPORT" in os.environ:
        with open(os.environ["BACE_REPORT"], "a") as channel:
            channel.write(json.dumps(fields) + "\n")


def batch(text: torch.Tensor, step: int) -> tuple[torch.Tensor, torch.Tensor]:
    """The batch is a function of step and rank, so that a resumed job goes on where it was."""
    generator = torch.Generator().manual_seed(step * WORLD_SIZE + RANK)
    starts = torch.randint(len(text) - CONTEXT, (BATCH,), generator=generator)
    windows = text[starts[:, None] + torch.arange(CONTEXT + 1)]
    return windows[:, :-1], windows[:, -1]


def save(model: nn.Module, optimizer: torch.optim.Optimizer, step: int) -> None:
    """Rank 0 writes beside the name and renames: a checkpoint is there whole or not at all."""
    if RANK == 0:
        CHECKPOINTS.mkdir(parents=True, exist_ok=True)
        path = CHECKPOINTS / f"plain-{step}.pt"
        unfinished = path.with_suffix(".tmp")
        torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict()}, unfinished)
        unfinished.replace(path)
        report(kind="checkpoint", step=step, uri=path.as_uri())


def main() -> None:
    stop_asked = torch.zeros(1)
    signal.signal(signal.SIGTERM, lambda *_: stop_asked.fill_(1))
    dist.init_process_group("gloo")
    report(kind="ready")

    torch.manual_seed(0)  # the same weights everywhere
    model = NextByte()
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.003)
    if RESUME_STEP:
        state = torch.load(CHECKPOINTS / f"plain-{RESUME_STEP}.pt", weights_only=True)
        model.load_state_dict(state["model"])
        optimizer.load_state_dict(state["optimizer"])
    text = torch.frombuffer(bytearray(Path(os.__file__).read_bytes()), dtype=torch.uint8).long()

    for step in range(RESUME_STEP + 1, STEPS + 1):
        began_s = time.perf_counter()
        context, target = batch(text, step)
        loss = nn.functional.cross_entropy(model(context), target)
        optimizer.zero_grad()
        loss.backward()
        for parameter in model.parameters():
            dist.all_reduce(parameter.grad)
            parameter.grad /= WORLD_SIZE
        optimizer.step()

        # All must stop after the same step: so they agree, and sum up the loss on the way.
        agreed = torch.cat((stop_asked, loss.detach().reshape(1)))
        dist.all_reduce(agreed)
        stopping, mean_loss = bool(agreed[0]), agreed[1].item() / WORLD_SIZE
        if RANK == WORLD_SIZE - 1:
            now_s = time.time()
            step_time_s = time.perf_counter() - began_s
            tokens = BATCH * WORLD_SIZE
            report(kind="step", step=step, loss=mean_loss, step_time_s=step_time_s, tokens=tokens, at_s=now_s)
            print(f"step {step}: loss {mean_loss:.4f}", flush=True)
        if stopping or step % CHECKPOINT_EVERY == 0 or step == STEPS:
            save(model, optimizer, step)
        if stopping:
            report(kind="end", cause="stopped", detail="")
            break
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    sys.exit(main())
