"""What a stage of a job costs on a GPU type: seconds, bytes of memory, bytes that leave it.

Either from the shape of the model and what the GPU sustains, or from what the user measured (`spec.profile`).
The formulas, with h hidden, s sequence length, b micro-batch, L layers, a heads, t tensor-parallel size:

- time of a micro-batch, forward + backward: b·s·(6N + 12·L·h·s) / (t × sustained FLOP/s), N the parameters that are
  active for a token (PaLM, arXiv 2204.02311, appendix B; non-causal, as MFU is published). Forward : backward is
  1 : 2; full recompute repeats the forward, hence 1 : 3 and 4/3 of the time;
- memory of a GPU: 18 bytes a parameter (bf16 weight 2, fp32 gradient 4, Adam's fp32 weight and two moments 12:
  Megatron-LM's figure without a sharded optimizer), and the activations of Korthikanti et al. (arXiv 2205.05198), or
  of the built-in worker's layers, for each micro-batch in flight; 5 % of the memory stays free.

Every function depends on its arguments alone; results are memoised in bounded caches.
"""

from scheduler.profile.fits import (
    USABLE_MEMORY,
    can_have,
    in_flight_limit,
    in_flight_room,
    k_min,
    least_window,
)
from scheduler.profile.memory import BYTES_PER_PARAMETER
from scheduler.profile.messages import (
    boundary_bytes,
    boundary_bytes_of,
    message_bytes_of,
    projector_bytes_of,
    widest_rank,
)
from scheduler.profile.stages import StageProfile, profiles_of, stage_profiles, stage_profiles_of
from scheduler.profile.times import flops_per_token, mfu, pace_s
from scheduler.profile.workload import Workload, layers_before, split_layers

__all__ = [
    "BYTES_PER_PARAMETER",
    "USABLE_MEMORY",
    "StageProfile",
    "Workload",
    "boundary_bytes",
    "boundary_bytes_of",
    "can_have",
    "flops_per_token",
    "in_flight_limit",
    "in_flight_room",
    "k_min",
    "layers_before",
    "least_window",
    "message_bytes_of",
    "mfu",
    "pace_s",
    "profiles_of",
    "projector_bytes_of",
    "split_layers",
    "stage_profiles",
    "stage_profiles_of",
    "widest_rank",
]
