"""The gang: how its ranks find each other, their process groups, and what they agree on."""

from __future__ import annotations

import errno
import os
import socket
import time
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from enum import IntEnum

import psutil
import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed import PrefixStore, Store, TCPStore  # type: ignore[attr-defined]

from agents.worker.causes import Cause, WorkerEndError
from agents.worker.settings import Place
from agents.worker.stopping import StopRequest


@dataclass(frozen=True, slots=True)
class Gang:
    """This rank's view of its gang. Everything in it is called by all ranks, in the same order."""

    place: Place
    store: Store
    pipeline: dist.ProcessGroup
    """The stages of this replica, in order."""
    replicas: dist.ProcessGroup | None
    """The replicas of this stage; None when there is one."""
    device: torch.device

    def same_everywhere(self, name: str, value: str) -> str:
        """Rank 0's value of `name`; blocks until rank 0 has come so far."""
        if self.place.leads:
            self.store.set(name, value)
        return bytes(self.store.get(name)).decode()

    def ask_to_empty(self) -> None:
        """Have the pipeline emptied after one of the next steps; a `StepVote` tells all ranks after which."""
        self.store.set(_EMPTY, "asked")

    def barrier(self) -> None:
        """Wait until every rank is here."""
        dist.all_reduce(torch.zeros(1))

    def average(self, tensors: Sequence[Tensor]) -> None:
        """Replace each tensor by its mean over the replicas of this stage."""
        if self.replicas is None:
            return
        flat = torch.cat([tensor.reshape(-1) for tensor in tensors])
        dist.all_reduce(flat, group=self.replicas)
        flat.div_(self.place.data_size)
        for tensor, mean in zip(
            tensors, torch.split(flat, [tensor.numel() for tensor in tensors]), strict=True
        ):
            tensor.copy_(mean.view_as(tensor))


class Verdict(IntEnum):
    """What all ranks do after a step."""

    GO_ON = 0
    EMPTY = 1
    """Go on once the pipeline is empty."""
    STOP = 2


class StepVote:
    """All ranks learn from rank 0, while a step runs, what they do after it.

    Whoever is asked to stop, or wants the pipeline emptied, says so in the store; rank 0 looks there before each step
    and tells all. The answer travels beside the step and is read at its end, so that agreeing costs no time, even
    between regions.
    """

    def __init__(self, gang: Gang, stop: StopRequest) -> None:
        self._gang, self._stop = gang, stop
        self._verdict = torch.zeros(1, dtype=torch.uint8)
        self._told = False
        self._work: dist.Work | None = None

    def begin_step(self) -> None:
        """Rank 0 sends, and the others start to receive, what is done after the step that begins, or will."""
        if self._work is not None:
            self._work.wait()
        if self._stop.requested and not self._told:
            self._gang.store.set(_STOP, "asked")
            self._told = True
        if self._gang.place.leads:
            self._verdict.fill_(self._decide())
        self._work = dist.broadcast(self._verdict, src=0, async_op=True)

    def is_told(self) -> bool:
        """Whether `end_step` would answer at once."""
        return self._gang.place.leads or self._work is None or self._work.is_completed()

    def end_step(self) -> Verdict:
        """What all ranks do after the step that `begin_step` was called for last."""
        if self._work is not None and not self._gang.place.leads:
            self._work.wait()
        return Verdict(int(self._verdict.item()))

    def _decide(self) -> Verdict:
        store = self._gang.store
        if store.check([_STOP]):
            return Verdict.STOP
        return Verdict.EMPTY if store.delete_key(_EMPTY) else Verdict.GO_ON


_STOP, _EMPTY = "stop", "empty"
"""Keys in the gang's store."""


def join(place: Place, rendezvous_timeout_s: float, peer_timeout_s: float) -> Gang:
    """Meet the other ranks at MASTER_ADDR:MASTER_PORT and connect to them.

    Raises:
        WorkerEndError: `port-taken` on rank 0; `rendezvous-timeout` naming the ranks that did not come.
    """
    deadline_s = time.monotonic() + rendezvous_timeout_s
    _choose_interface(place)
    # Ranks of another allocation that come to this port, late, have other names for everything.
    store = PrefixStore(place.allocation_id, _open_store(place, rendezvous_timeout_s))
    _await_all(place, store, deadline_s, rendezvous_timeout_s)
    backend = "cpu:gloo,cuda:nccl" if place.device == "cuda" else "gloo"
    peer_timeout = timedelta(seconds=peer_timeout_s)
    dist.init_process_group(
        backend, store=store, rank=place.rank, world_size=place.world_size, timeout=peer_timeout
    )
    store.set_timeout(peer_timeout)
    device = torch.device("cuda", 0) if place.device == "cuda" else torch.device("cpu")
    if place.device == "cuda":
        torch.cuda.set_device(device)
    pipeline, replicas = _groups(place)
    gang = Gang(place, store, pipeline, replicas, device)
    gang.barrier()
    return gang


def _open_store(place: Place, timeout_s: float) -> TCPStore:
    """The store that rank 0 hosts. It listens on the advertised address alone, where that is one of its own."""
    listener: int | None = None
    if place.leads:
        listener = _listen(place).detach()
    try:
        return TCPStore(
            place.master_address,
            place.master_port,
            place.world_size,
            is_master=place.leads,
            timeout=timedelta(seconds=timeout_s),
            wait_for_workers=False,
            master_listen_fd=listener,
        )
    except dist.DistError as error:
        raise WorkerEndError(
            Cause.RENDEZVOUS_TIMEOUT,
            f"rank {place.rank} of {place.world_size} could not reach rank 0 at "
            f"{place.master_address}:{place.master_port} within {timeout_s:g} s: {_first_line(error)}",
        ) from error


def _listen(place: Place) -> socket.socket:
    family, *_, address = _resolve(place)[0]
    listener = socket.socket(family, socket.SOCK_STREAM)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        try:
            listener.bind(address)
        except OSError as error:
            if error.errno != errno.EADDRNOTAVAIL:
                raise
            listener.bind(("", place.master_port))  # behind a translated address
        listener.listen(1024)
    except OSError as error:
        if error.errno not in (errno.EADDRINUSE, errno.EACCES):
            raise
        raise WorkerEndError(
            Cause.PORT_TAKEN,
            f"MASTER_PORT {place.master_port} on {place.master_address}: {error.strerror}; "
            "another process has it: the job must be given another port",
        ) from error
    return listener


def _resolve(place: Place) -> list[tuple[socket.AddressFamily, socket.SocketKind, int, str, tuple[str, int]]]:
    try:
        found = socket.getaddrinfo(place.master_address, place.master_port, type=socket.SOCK_STREAM)
    except OSError as error:
        raise WorkerEndError(
            Cause.RENDEZVOUS_TIMEOUT,
            f"MASTER_ADDR {place.master_address!r} cannot be resolved: {error.strerror}; "
            "it must be an address that all nodes of the job know",
        ) from error
    return found  # type: ignore[return-value]


def _await_all(place: Place, store: Store, deadline_s: float, timeout_s: float) -> None:
    """Wait until every rank has come to the store."""
    ranks = [f"joined/{rank}" for rank in range(place.world_size)]
    try:
        store.set(ranks[place.rank], "here")
        store.wait(ranks, timedelta(seconds=max(0.05, deadline_s - time.monotonic())))
    except dist.DistError as error:
        try:
            missing = [rank for rank, key in enumerate(ranks) if not store.check([key])]
        except dist.DistError:
            missing = [0]
        raise WorkerEndError(
            Cause.RENDEZVOUS_TIMEOUT,
            f"of {place.world_size} ranks these did not come within {timeout_s:g} s: "
            f"{', '.join(map(str, missing))} ({_first_line(error)})",
        ) from error


def _choose_interface(place: Place) -> None:
    """Let gloo use the interface that leads to rank 0, unless the agent named one.

    By itself gloo takes the address of the host's name, which inside a container or a network namespace is often
    one that nobody else can reach.
    """
    if "GLOO_SOCKET_IFNAME" in os.environ:
        return
    family, *_, address = _resolve(place)[0]
    with socket.socket(family, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(address)  # sends nothing: only asks the routing table
        except OSError:
            return
        own = probe.getsockname()[0]
    for name, addresses in psutil.net_if_addrs().items():
        if any(candidate.address == own for candidate in addresses):
            os.environ["GLOO_SOCKET_IFNAME"] = name


def _groups(place: Place) -> tuple[dist.ProcessGroup, dist.ProcessGroup | None]:
    """The pipeline of every replica and the replicas of every stage: all ranks create all groups, in order."""
    if place.data_size == 1:
        return _default_group(), None
    by_stage = [
        [stage * place.data_size + replica for replica in range(place.data_size)]
        for stage in range(place.stages)
    ]
    pipelines = [dist.new_group([ranks[replica] for ranks in by_stage]) for replica in range(place.data_size)]
    replicas = [dist.new_group(ranks) for ranks in by_stage]
    return pipelines[place.data_rank], replicas[place.stage]


def _default_group() -> dist.ProcessGroup:
    world = dist.group.WORLD
    if world is None:
        raise RuntimeError("there are no groups before init_process_group")
    return world


def _first_line(error: BaseException) -> str:
    return str(error).partition("\n")[0][:300]
