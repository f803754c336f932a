"""Random numbers that depend on what they are for, and on nothing that happened before."""

from __future__ import annotations

import hashlib

import torch


def generator_for(*purpose: int | str) -> torch.Generator:
    """A CPU generator whose state is a function of `purpose` alone: (seed, "layer", 3), (seed, "batch", step, …)."""
    digest = hashlib.blake2b("/".join(str(part) for part in purpose).encode(), digest_size=8).digest()
    return torch.Generator().manual_seed(int.from_bytes(digest, "big") >> 1)
