"""What leaves a stage: bytes over its boundaries."""

from __future__ import annotations

import math
from dataclasses import replace

from scheduler.job import JobSpec
from scheduler.pipeline.plan import laid_out
from scheduler.pipeline.plan.ir import LowRank
from scheduler.profile.workload import Workload

TOKEN_ID_BYTES = 4
PROJECTOR_ELEMENT_BYTES = 4


def boundary_bytes(spec: JobSpec) -> float:
    """A: bytes that cross a stage boundary per micro-batch and direction, all data replicas together.

    data × micro_batch × seq × hidden × bytes per element, or as measured. With a codec, that × rank / hidden and the
    ids of the tokens, in both directions alike though they only go forward; and of the projector, which goes forward
    once an iteration as its gradient does back, the part of one micro-batch. A pipeline that passes every rank twice
    crosses a boundary more than once.
    """
    return boundary_bytes_of(Workload.of(spec))


def boundary_bytes_of(work: Workload) -> float:
    """`boundary_bytes` of a workload."""
    messages = laid_out.messages_a_cut(work.schedule)
    return messages * message_bytes_of(work) + projector_bytes_of(work) / work.micro_batches


def message_bytes_of(work: Workload) -> float:
    """What one message of a micro-batch sends between regions, all data replicas together."""
    model, measured = work.model, work.measured
    uncoded = (
        work.data * work.micro_batch * model.seq_len * model.hidden * work.bytes_per_element
        if measured is None
        else measured.activation_bytes
    )
    if work.codec is None:
        return uncoded
    ids = work.data * work.micro_batch * model.seq_len * TOKEN_ID_BYTES
    return uncoded * work.codec.rank / model.hidden + ids


def projector_bytes_of(work: Workload) -> float:
    """What a codec sends over a boundary once an iteration, all data replicas together: hidden × rank in fp32, the
    gradient back and the new projector forward. 0 without a codec."""
    if work.codec is None:
        return 0.0
    return work.data * work.model.hidden * work.codec.rank * PROJECTOR_ELEMENT_BYTES


def widest_rank(spec: JobSpec, most_bytes: float) -> int:
    """The highest rank of a codec with which `boundary_bytes` comes to no more; below 1 where none does, and that of no
    codec where none is needed."""
    work = Workload.of(spec)
    rank_1, rank_2 = (boundary_bytes_of(replace(work, codec=LowRank(rank))) for rank in (1, 2))
    within = math.floor((most_bytes - rank_1) / (rank_2 - rank_1) * (1 + 1e-12)) + 1
    return min(within, work.model.hidden)
