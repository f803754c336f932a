"""The loop that has links measured: on a budget, one measurement a region at a time, never during a critical transfer.

1. end    what took too long, and what a region that has become critical does not bear
2. let go what has grown too old, or may not be measured any more
3. ask    for what is due: an agent of the one region, an agent of the other, at addresses that they advertise
"""

from __future__ import annotations

import hashlib
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

import structlog

from service import topics
from service.capacity import used_by_node
from service.control.leader import Leadership
from service.db.control_queries import ports_held_at
from service.db.records import LinkRecord, LinkTestRecord, NodeRecord
from service.db.repositories import cluster, link_tests
from service.db.session import Session
from service.lifecycle import Moment, NodeState
from service.link_estimates import is_outdated
from service.link_measurements import (
    BANDWIDTH,
    BROKEN_OFF,
    LATENCY,
    OPEN_S,
    TIMED_OUT,
    critical_regions,
    end,
    is_kept_from,
    may_measure,
    settle,
)
from service.services import Services
from service.settings import Settings

ACTOR = "links"
BEATS_A_TEST = 4.0
"""So many heartbeats of an agent are waited for: to hear of it, and to tell of it."""
SESSION_S = 60.0
"""For connections, round trips and what is under way, beside the time of the streams."""
DAY_S = 86_400.0
JITTER = 0.2
"""Part of an interval by which the intervals of links differ, so that they do not all come at one moment."""

MAX_TRIED = 16
"""Nodes of a region among which two of different machines are looked for."""

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Due:
    """What a round found to do."""

    ending: tuple[tuple[LinkTestRecord, str, str], ...]
    """Test, outcome, detail."""
    fading: tuple[LinkRecord, ...]
    asking: tuple[tuple[LinkRecord, str, NodeRecord, NodeRecord], ...]
    """Link, kind, node in src, node in dst."""

    @property
    def is_nothing(self) -> bool:
        return not (self.ending or self.fading or self.asking)


async def measure_links(services: Services, leadership: Leadership) -> Due:
    """One round. Raises FencedError where another instance leads."""
    settings, now_s = services.settings, services.clock.now()
    interval_s = services.pace.interval_s(settings)
    due = await services.db.read(lambda session: look(session, settings, interval_s, now_s))
    if due.is_nothing:
        return due
    keys = [(services.ids.new("linktest"), services.ids.secret()) for _ in due.asking]
    moment = Moment(now_s, ACTOR)

    def work(session: Session) -> bool:
        for test, outcome, detail in due.ending:
            end(session, test.test_id, outcome, now_s, detail=detail)
        has_changed = [settle(session, link, settings, moment) for link in due.fading]
        for (link, kind, src, dst), (test_id, token) in zip(due.asking, keys, strict=True):
            port = _port(session, dst)
            if port is not None:
                link_tests.add(session, _test(link, kind, src, dst, port, test_id, token, settings, now_s))
        return any(has_changed)

    if await leadership.write(work):
        await services.bus.publish(topics.PLANNING)
    for test, outcome, detail in due.ending:
        log.info(
            "link_test_ended", src=test.src, dst=test.dst, kind=test.kind, outcome=outcome, detail=detail
        )
    return due


def look(session: Session, settings: Settings, interval_s: float, now_s: float) -> Due:
    """What there is to do."""
    agents = link_tests.agents_that_measure(session)
    estimates, running = link_tests.estimates(session), link_tests.running(session)
    if not (agents or estimates or running):
        return Due((), (), ())
    links = {(link.src, link.dst): link for link in cluster.links(session)}
    critical = critical_regions(session)
    ending = tuple(
        (test, *verdict)
        for test in running
        if (verdict := _verdict(test, links.get((test.src, test.dst)), critical, settings, interval_s, now_s))
    )
    fading = tuple(
        links[key] for key, known in estimates.items() if is_outdated(links[key], known, settings, now_s)
    )
    ended = {test.test_id for test, _, _ in ending}
    engaged = {region for test in running if test.test_id not in ended for region in (test.src, test.dst)}
    due = _due(session, links.values(), critical, settings, now_s) if agents else []
    candidates = _candidates(session, agents, settings, now_s) if due else {}
    asking = []
    for link, kind in due:
        if engaged.isdisjoint((link.src, link.dst)):
            pair = _pair(candidates.get(link.src, []), candidates.get(link.dst, []))
            if pair is not None:
                asking.append((link, kind, *pair))
                engaged |= {link.src, link.dst}
    return Due(ending, fading, tuple(asking))


def _verdict(
    test: LinkTestRecord,
    link: LinkRecord | None,
    critical: Collection[str],
    settings: Settings,
    interval_s: float,
    now_s: float,
) -> tuple[str, str] | None:
    """How and why a measurement ends now; None while it may go on."""
    if is_kept_from(test, critical):
        return BROKEN_OFF, "a job needs the links of these regions"
    if link is None or not may_measure(link, test.kind, settings):
        return BROKEN_OFF, "this is not measured any more"
    if now_s > test.asked_at_s + OPEN_S + test.max_s + SESSION_S + BEATS_A_TEST * interval_s:
        return TIMED_OUT, "its agents did not tell how it ended"
    return None


def _due(
    session: Session, links: Iterable[LinkRecord], critical: frozenset[str], settings: Settings, now_s: float
) -> list[tuple[LinkRecord, str]]:
    """Links to measure now, those that wait longest first. A round trip tells of both directions, so it is due by the
    later of the two; what bandwidth is measured of tells its round trip as well."""
    asked = link_tests.last_asked(session)
    sent = link_tests.sent_since(session, now_s - DAY_S)
    found: list[tuple[float, LinkRecord, str]] = []
    for link in links:
        key = (link.src, link.dst)
        if not may_measure(link, LATENCY, settings):
            continue
        last_s = asked.get((*key, BANDWIDTH), 0.0)
        has_budget = sent.get(key, 0) + settings.link_test_bytes <= settings.link_bytes_per_day
        if (
            may_measure(link, BANDWIDTH, settings)
            and has_budget
            and not critical & {*key}
            and _is_over(last_s, settings.link_bandwidth_interval_s, key, now_s)
        ):
            found.append((last_s, link, BANDWIDTH))
            continue
        last_s = max(
            asked.get((*ends, kind), 0.0) for ends in (key, key[::-1]) for kind in (LATENCY, BANDWIDTH)
        )
        if _is_over(last_s, settings.link_latency_interval_s, key, now_s):
            found.append((last_s, link, LATENCY))
    found.sort(key=lambda each: (each[0], each[1].src, each[1].dst))
    return [(link, kind) for _, link, kind in found]


def _is_over(last_s: float, interval_s: float, key: tuple[str, str], now_s: float) -> bool:
    """Whether the link's own interval since then is over."""
    own = 1.0 + JITTER * (_draw(f"{key}{last_s}") - 0.5)
    return now_s >= last_s + own * interval_s


def _candidates(
    session: Session, agents: Collection[str], settings: Settings, now_s: float
) -> Mapping[str, list[NodeRecord]]:
    """Region → nodes that may measure: those on which nothing runs first, and others every time."""
    heard = {
        agent.agent_id
        for agent in cluster.agents(session)
        if agent.agent_id in agents and now_s - agent.heartbeat_at_s < settings.lease_s
    }
    used = used_by_node(session)
    found: dict[str, list[NodeRecord]] = defaultdict(list)
    for node in cluster.nodes(session):
        if node.state == NodeState.READY and node.agent_id in heard:
            found[node.region].append(node)
    for nodes in found.values():
        nodes.sort(key=lambda node: (used[node.node_id] > 0, _draw(f"{node.node_id}{now_s}")))
    return found


def _pair(
    sources: Sequence[NodeRecord], targets: Sequence[NodeRecord]
) -> tuple[NodeRecord, NodeRecord] | None:
    """A node at each end. Two at one address are one machine: between them is no link."""
    return next(
        (
            (src, dst)
            for src in sources[:MAX_TRIED]
            for dst in targets[:MAX_TRIED]
            if src.address != dst.address and src.agent_id != dst.agent_id
        ),
        None,
    )


def _port(session: Session, node: NodeRecord) -> int | None:
    """The highest of the node's ports that nobody holds: rendezvous begin at the lowest."""
    taken = ports_held_at(session, node.address)
    return next((port for port in range(node.port_last, node.port_first - 1, -1) if port not in taken), None)


def _test(
    link: LinkRecord,
    kind: str,
    src: NodeRecord,
    dst: NodeRecord,
    port: int,
    test_id: str,
    token: str,
    settings: Settings,
    now_s: float,
) -> LinkTestRecord:
    max_bytes = settings.link_test_bytes if kind == BANDWIDTH else 0
    return LinkTestRecord(
        test_id=test_id,
        src=link.src,
        dst=link.dst,
        kind=kind,
        from_agent=src.agent_id,
        to_agent=dst.agent_id,
        address=dst.address,
        port=port,
        token=token,
        max_bytes=max_bytes,
        max_s=settings.link_test_s if kind == BANDWIDTH else 0.0,
        asked_at_s=now_s,
        sent_bytes=max_bytes,
    )


def _draw(text: str) -> float:
    """In [0, 1): the same for the same text."""
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:4], "big") / 2**32
