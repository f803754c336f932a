"""A stage worker that writes to `COUNT` how many bytes the kernel has delivered over its connections to other ranks."""

from __future__ import annotations

import json
import os
import socket
import struct
from pathlib import Path

import torch.distributed as dist

from agents.worker.progress import Report
from agents.worker.settings import read_settings
from agents.worker.stopping import StopRequest
from agents.worker.train import train

BYTES_RECEIVED = 128
"""Where tcpi_bytes_received stands in Linux' struct tcp_info."""


def received_from_ranks(rendezvous_port: int) -> int:
    """Of every connection but those to the store."""
    total = 0
    for entry in Path("/proc/self/fd").iterdir():
        try:
            descriptor = os.dup(int(entry.name))
        except OSError:
            continue  # the listing's own, closed by now
        try:
            connection = socket.socket(fileno=descriptor)
        except OSError:
            os.close(descriptor)
            continue
        with connection:
            if connection.family not in (socket.AF_INET, socket.AF_INET6) or _is_listening(connection):
                continue
            if rendezvous_port in (connection.getsockname()[1], connection.getpeername()[1]):
                continue
            info = connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 256)
            total += struct.unpack_from("<Q", info, BYTES_RECEIVED)[0]
    return total


def _is_listening(connection: socket.socket) -> bool:
    return bool(connection.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN))


settings = read_settings(os.environ)
report = Report(None)
train(settings, StopRequest(report), report)
Path(os.environ["COUNT"]).write_text(json.dumps(received_from_ranks(settings.place.master_port)))
dist.barrier()  # a connection is gone, and its count with it, when the other side has left
