"""A rank learns that another is gone, whatever it waits for.

gloo loses a send when the other side dies right after it has said that it is ready to receive: nobody tells who waits
for it, and the wait lasts until its timeout, minutes later. A receive that is always posted, and never answered, is
told at once that the connection has ended.
"""

from __future__ import annotations

import threading
import time
from datetime import timedelta

import torch
from torch.distributed import ProcessGroup, Work

from agents.worker.causes import Cause, WorkerEndError
from agents.worker.gang import Gang

LIFELINE_TAG = 1 << 21
"""Above those of all messages."""
GRACE_S = 5.0
"""In which training may tell by itself what it met: it knows better what for."""
FOREVER = timedelta(days=3650)


class Lifelines:
    """From this rank to all others of its pipeline, and to the replicas of its stage.

    Where one is cut, the process ends with `peer-lost`, if it has not ended by itself.
    """

    def __init__(self, gang: Gang) -> None:
        self._held = True
        for group in (gang.pipeline, gang.replicas):
            if group is not None:
                self._hold(group)

    def let_go(self) -> None:
        """From now on others may leave."""
        self._held = False

    def _hold(self, group: ProcessGroup) -> None:
        for other in range(group.size()):
            if other == group.rank():
                continue
            nothing = torch.zeros(1, dtype=torch.uint8)
            line = group.recv([nothing], other, LIFELINE_TAG)
            # The tensor goes along: gloo keeps but its address.
            threading.Thread(target=self._watch, args=(line, nothing), name="lifeline", daemon=True).start()

    def _watch(self, line: Work, nothing: torch.Tensor) -> None:
        try:
            line.wait(FOREVER)
        except RuntimeError as error:
            if self._held:
                time.sleep(GRACE_S)
            if self._held:
                cut = str(error).partition("\n")[0]
                raise WorkerEndError(
                    Cause.PEER_LOST, f"another rank is gone or out of reach: its connection ended ({cut})"
                ) from error
