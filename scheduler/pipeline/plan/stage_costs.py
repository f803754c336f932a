"""What the stages of a job cost as a plan takes it: its profile, with the backward split into its two parts.

A matrix product takes as long in the gradient of its input as in that of its weights, attention itself has no weights
(Qi et al., arXiv 2401.10241, Table 1). So of a backward without recomputation, W takes half of what the products of the
layers are of the stage's FLOPs; the rest is I, the head's product among it, as its W would have to keep logits. With
full recompute the backward is left whole: what W is computed from takes far more than a micro-batch in flight keeps.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

from scheduler.cluster import GpuType
from scheduler.job import ModelShape, Recompute
from scheduler.parameters import active_parameters_of_layer
from scheduler.pipeline.plan.auto import SplitChain
from scheduler.pipeline.plan.ir import StageCost
from scheduler.pipeline.timeline import Chain
from scheduler.profile import Workload, in_flight_limit, profiles_of, split_layers

SPLITTING = 0.06
"""How much longer I and W take than one backward of both, as a part of it: what W is computed from is in no cache by
then. Measured on the built-in worker's layers by tests/perf/test_split_backward.py, 0.01 to 0.16."""


@lru_cache(maxsize=4096)
def stage_costs(work: Workload, gpus: tuple[GpuType, ...], *, split: bool = False) -> tuple[StageCost, ...]:
    """The stages in pipeline order; `gpus[i]` is the GPU type under stage i. With `split` I has what splitting takes.
    Raises InvalidValueError as `profile.stage_profiles` does."""
    profiles = profiles_of(work, gpus)
    costs = []
    for profile, share in zip(profiles, _weight_shares(work, len(gpus)), strict=True):
        weight_s = share * profile.backward_s
        costs.append(
            StageCost(
                profile.forward_s,
                profile.backward_s - weight_s + (SPLITTING * profile.backward_s if split else 0.0),
                weight_s,
                weight_bytes=profile.weight_bytes,
                inflight_bytes=profile.inflight_bytes,
                pending_bytes=profile.pending_share * profile.inflight_bytes,
            )
        )
    return tuple(costs)


def split_chain(work: Workload, gpus: tuple[GpuType, ...], chain: Chain) -> SplitChain:
    """The chain of a job's stages on these GPUs with the parts of its backwards, and its memory."""
    profiles = profiles_of(work, gpus)
    return SplitChain(
        chain,
        tuple(cost.weight_gradient_s for cost in stage_costs(work, gpus)),
        tuple(in_flight_limit(profile, gpu) for profile, gpu in zip(profiles, gpus, strict=True)),
        tuple(SPLITTING * backward_s for backward_s in chain.backward_s),
        tuple(profile.pending_share for profile in profiles),
    )


def _weight_shares(work: Workload, stages: int) -> Sequence[float]:
    """The share of W in the backward of each stage; 0 with full recompute."""
    if work.recompute is Recompute.FULL:
        return (0.0,) * stages
    model, first, shares = work.model, 0, []
    matrices = _matrix_parameters(model)
    for stage, layers in enumerate(split_layers(model, stages)):
        products = 6.0 * (matrices[first + layers] - matrices[first])
        head = 6.0 * model.vocab * model.hidden if stage == stages - 1 else 0.0
        shares.append(products / (products + head + 12.0 * model.hidden * model.seq_len * layers) / 2)
        first += layers
    return shares


@lru_cache(maxsize=1024)
def _matrix_parameters(model: ModelShape) -> tuple[int, ...]:
    """Parameters in matrix products of the first 0, 1, …, L layers, for one token."""
    sums = [0]
    for layer in range(model.layers):
        sums.append(sums[-1] + active_parameters_of_layer(model, layer))
    return tuple(sums)
