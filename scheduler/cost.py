"""What a placement draws and costs: the only place of these formulas, for planner, replay, service and report.

Energy is told in kWh, money in USD. Electricity, rent and egress are always told apart: an owner pays electricity
and egress, a renter rent and egress.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from scheduler.cluster import GpuType
from scheduler.errors import InvalidValueError
from scheduler.placement import Placement
from scheduler.price import PriceSeries

SECONDS_PER_HOUR = 3600.0
WATTS_PER_KILOWATT = 1000.0
BYTES_PER_GB = 1e9


def power_w(gpu: GpuType, busy_fraction: float) -> float:
    """Mean draw of one held GPU, watts before PUE: idle_w + (power_w − idle_w) × busy fraction.

    Linear between idle and full load, as measured for accelerators under training load; idle_w = power_w gives
    a constant draw. Raises InvalidValueError for a fraction outside [0, 1].
    """
    if not 0.0 <= busy_fraction <= 1.0:
        raise InvalidValueError("busy_fraction", busy_fraction, "a fraction between 0 and 1")
    return gpu.idle_w + (gpu.power_w - gpu.idle_w) * busy_fraction


def segment_powers_w(
    placement: Placement, busy_fraction: Sequence[float], gpu_types: Mapping[str, GpuType]
) -> tuple[float, ...]:
    """Mean draw of one GPU of each segment, watts before PUE, from the busy fraction of every stage.

    All stages of a segment have the same number of GPUs, so the mean over its stages is the mean over its GPUs.
    Raises InvalidValueError where there is not one fraction for each stage.
    """
    if len(busy_fraction) != placement.stages:
        raise InvalidValueError(
            "busy_fraction", len(busy_fraction), f"one for each of {placement.stages} stages"
        )
    powers, first = [], 0
    for segment in placement.segments:
        gpu, last = gpu_types[segment.gpu_type], first + segment.stages
        powers.append(power_w(gpu, math.fsum(busy_fraction[first:last]) / segment.stages))
        first = last
    return tuple(powers)


def facility_kw(gpus: int, gpu_power_w: float, pue: float) -> float:
    """What the meter of the region sees, kW: GPUs × draw of one GPU × PUE."""
    return gpus * gpu_power_w * pue / WATTS_PER_KILOWATT


def energy_kwh(kilowatts: float, duration_s: float) -> float:
    """Energy of a constant draw."""
    return kilowatts * duration_s / SECONDS_PER_HOUR


def electricity_usd(series: PriceSeries, start_s: float, end_s: float, kilowatts: float) -> float:
    """∫ price × draw dt: USD of a constant draw (after PUE) over [start_s, end_s], epoch seconds.

    `series` is in USD per kWh. Raises InvalidValueError where it does not cover the interval.
    """
    return kilowatts * series.integral(start_s, end_s) / SECONDS_PER_HOUR


def electricity_usd_per_hour(price_usd_per_kwh: float, kilowatts: float) -> float:
    """The rate at which a draw (after PUE) costs money while the price holds."""
    return price_usd_per_kwh * kilowatts


def rent_usd(gpus: int, duration_s: float, rent_usd_per_gpu_hour: float) -> float:
    """Rent of held GPUs."""
    return gpus * duration_s / SECONDS_PER_HOUR * rent_usd_per_gpu_hour


def egress_bytes_per_iteration(boundary_bytes: float, micro_batches: int) -> float:
    """Bytes that one cut sends in an iteration in *each* direction: activations forward, gradients backward.

    `boundary_bytes` is A: what crosses a stage boundary for one micro-batch and direction, all replicas together.
    """
    return boundary_bytes * micro_batches


def egress_usd(sent_bytes: float, egress_usd_per_gb: float) -> float:
    """What the sender pays for bytes that leave its region (1 GB = 1e9 bytes)."""
    return sent_bytes / BYTES_PER_GB * egress_usd_per_gb
