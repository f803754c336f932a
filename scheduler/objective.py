"""What a cluster is to be good at: one knob between the cheapest and the fastest."""

from __future__ import annotations

from dataclasses import dataclass

from scheduler.errors import InvalidValueError


@dataclass(frozen=True, slots=True)
class Objective:
    """`weight_jct` is the weight of completion times, 1 − weight_jct that of cost: 0 is cheapest, 1 is fastest.

    `cheapest_within`, where given, asks for the cheapest plan whose mean completion time is at most this part above
    that of the fastest plan (0.05: five per cent); `weight_jct` then counts for nothing.
    """

    weight_jct: float = 0.5
    cheapest_within: float | None = None

    def __post_init__(self) -> None:
        if not 0.0 <= self.weight_jct <= 1.0:
            raise InvalidValueError("objective.weight_jct", self.weight_jct, "a number between 0 and 1")
        if self.cheapest_within is not None and not 0.0 <= self.cheapest_within <= 10.0:
            raise InvalidValueError(
                "objective.cheapest_within", self.cheapest_within, "a part such as 0.05, at most 10"
            )
