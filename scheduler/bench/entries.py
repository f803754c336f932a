"""What is run on the worlds: policies, other settings of their knobs, and the bounds that no policy can beat.

The knob of horizon is the weight of time in its objective. That of the others is how far K may grow: from the stages
that a job names (0: cheap, as few GPUs are paid for) to K* (1: fast, and how they are compared).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from functools import cache
from typing import Final

from scheduler.errors import InvalidValueError
from scheduler.objective import Objective
from scheduler.policies import GROWING, POLICIES, STUDIES, PolicyConfig

KNOB_SEPARATOR: Final = "@"
VARIANT_SEPARATOR: Final = ":"
OWN_SCHEDULE: Final = "own-schedule"
_WEIGHING: Final = "horizon"
_WEIGHTS: Final = (0.0, 0.1, 0.25, 0.75, 0.9, 1.0)
_GROWTHS: Final = (0.0, 0.25, 0.5)
_RIVALS: Final = ("bace", "bace-elastic", "srpt", "marginal", "lcf", "ldf", "cr-lcf", "cr-ldf")
"""Those whose knob a whole study turns."""


@dataclass(frozen=True, slots=True)
class Entry:
    """A policy under a configuration; the bounds have none. `label` is what results call it."""

    label: str
    config: PolicyConfig | None
    chooses_schedule: bool = False
    """Its jobs leave the pipeline schedule to the planner, whatever the others' run with."""

    @property
    def family(self) -> str:
        """The policy, whatever its knob says: what one curve of the frontier shows."""
        return family_of(self.label)

    @property
    def is_turned(self) -> bool:
        """Whether it is a policy with its knob elsewhere than it usually is."""
        return self.label != self.family

    @property
    def rank(self) -> int:
        """How soon a study comes to it: 1 for horizon, for the bounds and for what queues, which takes hardly any time;
        2 for the rivals that change running jobs; 3 for turned knobs."""
        if self.is_turned:
            return 3
        config = self.config
        is_elastic_rival = config is not None and config.name in STUDIES and POLICIES[config.name].replans
        return 2 if is_elastic_rival else 1

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


def knob_of(label: str) -> float:
    """Where the knob of a policy stands, from cheap to fast."""
    family, turned, value = label.partition(KNOB_SEPARATOR)
    if turned:
        return float(value)
    return Objective().weight_jct if family == _WEIGHING else PolicyConfig().growth


@cache
def all_entries() -> tuple[Entry, ...]:
    """The bounds, every policy as it is, and the other settings of the knobs: what a whole study runs."""
    plain = [entry_of(name) for name in (*POLICIES, f"{_WEIGHING}{VARIANT_SEPARATOR}{OWN_SCHEDULE}")]
    turned = [(_WEIGHING, weight) for weight in _WEIGHTS]
    turned += [(name, growth) for name in _RIVALS for growth in _GROWTHS]
    return (BOUNDS, *plain, *(entry_of(f"{name}{KNOB_SEPARATOR}{value:g}") for name, value in turned))


def entries_of(labels: Sequence[str]) -> tuple[Entry, ...]:
    """Entries by their labels, each once, in their order."""
    return tuple(entry_of(label) for label in dict.fromkeys(labels))


def entry_of(label: str) -> Entry:
    """`bounds`, the name of a policy, horizon without a mechanism: `horizon:no-ejection`, a policy whose knob is
    turned: `horizon@0.25`, `bace@0.5`, or one that chooses the pipeline schedule of every job: `horizon:own-schedule`.

    Raises InvalidValueError that names what there is.
    """
    if label == BOUNDS.label:
        return BOUNDS
    family, separator, value = label.partition(KNOB_SEPARATOR)
    name, _, variant = family.partition(VARIANT_SEPARATOR)
    if name not in POLICIES:
        raise InvalidValueError("--policies", label, f"one of bounds, {', '.join(POLICIES)}")
    chooses = variant == OWN_SCHEDULE
    config = PolicyConfig(name=name, variant="" if chooses else variant)
    if not separator:
        return Entry(family, config, chooses)
    if name not in (*GROWING, _WEIGHING):
        raise InvalidValueError("--policies", label, f"{name} without a number: it has no knob")
    try:
        number = float(value)
        if name == _WEIGHING:
            config = replace(config, objective=Objective(weight_jct=number))
        else:
            config = replace(config, growth=number)
    except ValueError as error:
        raise InvalidValueError("--policies", label, f"a number between 0 and 1: {name}@0.25") from error
    return Entry(f"{family}{KNOB_SEPARATOR}{number:g}", config, chooses)
