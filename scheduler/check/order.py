"""Whether the order that workers are told is the schedule that was asked for, and whole."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterator

from scheduler.check.rules import Begun, Rule, Violation


def order(start: Begun) -> Iterator[Violation]:
    """Where workers are told an order, all of them do the whole of every micro-batch."""
    spec, placement = start.spec, start.placement
    asked, given = spec.training.schedule, placement.schedule
    parts = placement.schedule.parts
    if asked.parts != parts or (parts > 1 and asked is not given):
        yield Violation(start.job_id, Rule.ORDER, f"{given} where {asked} was asked for")
    if parts > 1 and spec.model.layers % (parts * placement.stages):
        layers = f"{spec.model.layers} layers"
        yield Violation(
            start.job_id, Rule.ORDER, f"{layers} are not {parts} equal parts a stage of {placement.stages}"
        )
    if placement.order and not spec.training.splits_backward:
        yield Violation(start.job_id, Rule.ORDER, "its workers cannot be told an order")
    every = list(range(spec.training.micro_batches))
    for stage, text in enumerate(placement.order):
        told = _told(text)
        for forward, whole, split, rest in (tuple("FBIW"), tuple("fbiw"))[:parts]:
            backwards = told.pop(whole, [])
            done = told.pop(forward, []), backwards + told.pop(split, []), backwards + told.pop(rest, [])
            if any(sorted(each) != every for each in done):
                yield Violation(
                    start.job_id,
                    Rule.ORDER,
                    f"stage {stage} does not run {forward} and its backward once for each of {len(every)}",
                )
        if told:
            yield Violation(start.job_id, Rule.ORDER, f"stage {stage} is told {', '.join(sorted(told))}")


def _told(text: str) -> defaultdict[str, list[int]]:
    """For each letter of an order its micro-batches: as they are named, else the next; of W, the oldest without one."""
    told: defaultdict[str, list[int]] = defaultdict(list)
    following: Counter[str] = Counter()
    pending: defaultdict[str, list[int]] = defaultdict(list)
    for letter, number in computations(text):
        waiting = pending["w" if letter.islower() else "W"]
        if letter in "Ww":
            micro_batch = int(number) if number else next(iter(waiting), -1)
            waiting[:] = [each for each in waiting if each != micro_batch]
        else:
            turn = letter.replace("I", "B").replace("i", "b")
            micro_batch = int(number) if number else following[turn]
            following[turn] = micro_batch + 1
            if letter in "Ii":
                waiting.append(micro_batch)
        told[letter].append(micro_batch)
    return told


def computations(text: str) -> list[tuple[str, str]]:
    """The letters of an order, repeated as often as it says, each with the micro-batch that is named, if one is."""
    whole = re.sub(r"\[([A-Za-z]+)\](\d+)", lambda found: found[1] * int(found[2]), text)
    return re.findall(r"(\D)(\d*)", whole)
