"""What is run on the worlds: policies, the knobs of those that have one, and the bounds that no policy can beat."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from typing import Final

from scheduler.errors import InvalidValueError
from scheduler.objective import Objective
from scheduler.policies import POLICIES, PolicyConfig

KNOB_SEPARATOR: Final = "@"
VARIANT_SEPARATOR: Final = ":"
_CURVE: Final = (0.0, 0.1, 0.25, 0.75, 0.9, 1.0)
_WITH_KNOB: Final = ("horizon",)


@dataclass(frozen=True, slots=True)
class Entry:
    """A policy under a configuration; the bounds have none. `label` is what results call it."""

    label: str
    config: PolicyConfig | None

    @property
    def family(self) -> str:
        """The policy, whatever its knob says: what one curve of the frontier shows."""
        return family_of(self.label)

    @property
    def settings(self) -> str:
        """What of the configuration is not the default, as text: it decides results beside the label."""
        if self.config is None:
            return ""
        usual = PolicyConfig()
        told = (
            f"{field.name}={getattr(self.config, field.name)!r}"
            for field in fields(self.config)
            if getattr(self.config, field.name) != getattr(usual, field.name)
        )
        return ",".join(told)


BOUNDS: Final = Entry("bounds", None)


def family_of(label: str) -> str:
    """The policy of a label."""
    return label.split(KNOB_SEPARATOR, 1)[0]


def all_entries() -> tuple[Entry, ...]:
    """The bounds, every policy as it is, and the other settings of the knobs: what a whole study runs."""
    plain = [entry_of(name) for name in POLICIES]
    knobs = [
        entry_of(f"{name}{KNOB_SEPARATOR}{weight:g}")
        for name in _WITH_KNOB
        if name in POLICIES
        for weight in _CURVE
    ]
    return (BOUNDS, *plain, *knobs)


def entries_of(labels: Sequence[str]) -> tuple[Entry, ...]:
    """Entries by their labels, each once, in their order."""
    return tuple(entry_of(label) for label in dict.fromkeys(labels))


def entry_of(label: str) -> Entry:
    """`bounds`, the name of a policy, horizon without a mechanism: `horizon:no-ejection`, or a policy with the weight
    of time in its objective: `horizon@0.25`.

    Raises InvalidValueError that names what there is.
    """
    if label == BOUNDS.label:
        return BOUNDS
    family, separator, weight = label.partition(KNOB_SEPARATOR)
    name, _, variant = family.partition(VARIANT_SEPARATOR)
    if name not in POLICIES:
        raise InvalidValueError("--policies", label, f"one of bounds, {', '.join(POLICIES)}")
    config = PolicyConfig(name=name, variant=variant)
    if not separator:
        return Entry(family, config)
    if name not in _WITH_KNOB:
        raise InvalidValueError("--policies", label, f"{name} without a weight: it has no such knob")
    try:
        objective = Objective(weight_jct=float(weight))
    except ValueError as error:
        raise InvalidValueError("--policies", label, f"a weight between 0 and 1: {name}@0.25") from error
    return Entry(f"{family}{KNOB_SEPARATOR}{objective.weight_jct:g}", replace(config, objective=objective))
