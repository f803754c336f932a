"""What horizon can be told, and its defaults: one configuration for every cluster."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class StageChoice(StrEnum):
    """Which numbers of stages a job may be given."""

    ANY = "any"
    """All that are worth having, from the least that fits to K*."""
    NAMED = "named"
    """The number that the job names."""
    MOST = "most"
    """As many as there is room for, up to K*."""


@dataclass(frozen=True, slots=True)
class HorizonConfig:
    """Parameters of the policy; those of a mechanism that is switched off are not read.

    Weights are relative: `electricity_weight` 1 means that as much is thought of doubling all electricity bills as of
    doubling all completion times (both at an equal weight of time and cost), `egress_weight` the same for egress.
    """

    electricity_weight: float = 6.0
    egress_weight: float = 3.0
    idle_part: float = 0.03
    """Part of these weights that holds while the cluster is idle."""
    full_pressure: float = 0.5
    """Part of the GPUs that is held or asked for from which on they hold whole."""
    most_slower: float = 0.3
    """What electricity a job can save by fewer stages is worth at most this part of its shortest time."""
    most_slower_egress: float = 0.15
    """What the egress of one cut costs a job is worth at most this part of its shortest time."""
    estimate_sigma: float = 0.5
    """How far declared steps are from the truth: σ of the logarithm of their ratio."""
    shortest_first: bool = True
    """Of one priority the shortest expected run starts first; else whoever came first."""
    aging: float = 0.1
    """Seconds by which a second of waiting makes a job count as shorter."""
    patience_s: float = 1800.0
    """A job that has waited for so long, and …"""
    patience_runs: float = 1.0
    """… for so many times what it would run alone, may have a place kept for it."""
    drains_after: float = 4.0
    """After so many times that long it comes before all that came later, and nobody who starts is believed to have
    ended when it begins."""
    crowding: float = 1.0
    """How much a held GPU-second is thought to take from the others, of (other jobs) / (GPUs)."""
    forecasts: bool = True
    """Prices to come are forecast; else those of now are taken to go on."""
    stages: StageChoice = StageChoice.ANY
    most_regions: int | None = None
    """Regions that a job may stand in at once; None leaves it to the job."""
    migrates: bool = True
    """Jobs that have run may go on in other regions than those where their state lies."""
    resizes: bool = True
    """Running jobs may change their stages and regions."""
    ejects: bool = True
    """A job that fits nowhere may push a longer one aside."""
    candidates_for_ejection: int = 6
    ejection_margin: float = 1.2
    """A job is pushed aside where that costs it less than one part in so many of what it saves the other."""
    settle_s: float = 300.0
    """A job is left alone for so long after its first step."""
    least_remaining_s: float = 600.0
    """A job that has less left is left alone."""
    gain_part: float = 0.03
    """A job is moved where its score falls by this part …"""
    gain_restarts: float = 0.3
    """… and by this many of its restarts."""
    search_nodes: int = 4000
    """Nodes that one search for a chain may visit."""
    rollout_jobs: int = 24
    """Up to so many jobs the portfolio is played out; with more, the main way decides alone."""
    rollout_events: int = 60
    """Ends of jobs that a rollout looks ahead."""
    rollout_electricity: float = 0.8
    """What a part saved of electricity, or rent, is worth beside the same part of completion times, …"""
    rollout_egress: float = 0.5
    """… and what one of egress is, counted with the electricity."""
    rollout_hair: float = 0.01
    """By how much a way must be better than those before it."""
    rollout_hurry: float = 1.5
    """How often completion times count once more where twice `full_pressure` is asked for."""
    idle_part_saving: float = 0.15
    """`idle_part` on the way that saves most, which is gone only where it is no slower than BACE-Pipe's."""
    stays_apart: bool = True
    """The portfolio plays the main way without new chains as well."""
    later_improved: int = 4
    """Running jobs that a rollout tries to improve at each end, the shortest first."""
    joint_jobs: int = 6
    """Up to so many jobs, none of which may be moved, get their places all at once."""
    joint_limit: float = 0.2
    """Deterministic time of the solver for that (about as many seconds)."""
