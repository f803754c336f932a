"""A copy in host memory of what a checkpoint holds, so that training can go on while it is written."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

from agents.worker.checkpoint.folder import NamedTensors


class Snapshot:
    """Buffers that are filled again for every checkpoint: pinned where the tensors are on a GPU."""

    def __init__(self) -> None:
        self._buffers: dict[tuple[str, str], Tensor] = {}

    @torch.no_grad()
    def take(self, files: Mapping[str, NamedTensors]) -> dict[str, dict[str, Tensor]]:
        """Copies of the named tensors of each file, as they are now; the copies are done when this returns.

        They are those of the next call, too: what was written must be, by then.
        """
        copies: dict[str, dict[str, Tensor]] = {}
        devices = set()
        for file, tensors in files.items():
            copies[file] = {}
            for name, tensor in tensors.items():
                buffer = self._buffer((file, name), tensor)
                buffer.copy_(tensor, non_blocking=True)
                copies[file][name] = buffer
                devices.add(tensor.device)
        for device in devices:
            if device.type == "cuda":
                torch.cuda.synchronize(device)
        return copies

    def _buffer(self, key: tuple[str, str], tensor: Tensor) -> Tensor:
        buffer = self._buffers.get(key)
        if buffer is None:
            buffer = torch.empty(
                tensor.shape, dtype=tensor.dtype, device="cpu", pin_memory=tensor.device.type == "cuda"
            )
            self._buffers[key] = buffer
        return buffer
