"""Measurements of links between agents and database: what an agent is to measure now, and what it has measured.

The leader asks (`control/link_tests.py`); a heartbeat tells the agents, and brings what they found.

**Never during a critical transfer.** Bytes are sent over a link only while neither of its regions is critical: no live
allocation holds bandwidth of a link that begins or ends there (activations, gradients, data, checkpoints that travel),
no gang that stands there is starting or stopping, and no place there is promised to a job that is to begin. This is
looked at with every answer to an agent: one that is no longer told of a measurement breaks it off. Round trips alone
are a few bytes, and are measured always.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Sequence

from agents.protocol import LinkTest, LinkTestReport
from service import placements
from service.db.records import LinkEstimateRecord, LinkRecord, LinkTestRecord
from service.db.repositories import allocations, cluster, events, leader, link_tests, promises
from service.db.session import Session
from service.db.tables import SHARED_PROJECT
from service.lifecycle import Moment
from service.link_estimates import MEDIAN_OF, Sample, estimate_from, figures_of, measuring_of
from service.settings import LinkMeasuring, Settings

LATENCY, BANDWIDTH = "latency", "bandwidth"
DONE, FAILED, BROKEN_OFF, TIMED_OUT = "done", "failed", "broken-off", "timed-out"
STREAMS = 4
"""Connections of a measurement of bandwidth: one alone is held back by its window on a long way."""
MAX_TOLD = 16
"""Measurements that one agent is told of: one that stands in more regions comes to the others later."""
OPEN_S = 60.0
"""A listener waits for so long."""


def wanted(session: Session, agent_ids: Collection[str]) -> dict[str, list[LinkTest]]:
    """Agent → what it is to take part in now."""
    tests = link_tests.of_agents(session, agent_ids)
    if not tests:
        return {}
    critical = critical_regions(session) if any(test.kind == BANDWIDTH for test in tests) else frozenset()
    told: dict[str, list[LinkTest]] = defaultdict(list)
    for test in tests:
        if is_kept_from(test, critical):
            continue
        told[test.to_agent].append(_told(test, "listen"))
        if test.opened_at_s is not None:
            told[test.from_agent].append(_told(test, "connect"))
    return {agent_id: each[:MAX_TOLD] for agent_id, each in told.items()}


def may_measure(link: LinkRecord, kind: str, settings: Settings) -> bool:
    """Whether the operator lets this be measured. A link that was taken out of use is left alone."""
    allowed = {LinkMeasuring.OFF: (), LinkMeasuring.LATENCY: (LATENCY,)}
    return link.capacity_bps > 0 and kind in allowed.get(measuring_of(link, settings), (LATENCY, BANDWIDTH))


def is_kept_from(test: LinkTestRecord, critical: Collection[str]) -> bool:
    """Whether it may not go on while these regions are critical."""
    return test.kind == BANDWIDTH and (test.src in critical or test.dst in critical)


def critical_regions(session: Session) -> frozenset[str]:
    """Regions over whose links nothing may be sent that is not needed."""
    holding = {end for held in allocations.held_links(session) for end in (held.src, held.dst)}
    beginning = {
        segment.region
        for promise in promises.all_of_them(session)
        for segment in placements.from_document(promise.placement).segments
    }
    return frozenset(holding | beginning | allocations.regions_in_transition(session))


def store(
    session: Session, agent_id: str, reports: Iterable[LinkTestReport], settings: Settings, moment: Moment
) -> bool:
    """Store what an agent tells of its own measurements, each once; whether planning goes by something else now."""
    has_changed = False
    for report in reports:
        test = link_tests.get(session, report.test_id)
        if test is None or test.ended_at_s is not None:
            continue
        if report.state == "listening" and agent_id == test.to_agent:
            link_tests.change_running(session, test.test_id, opened_at_s=moment.at_s)
        elif report.state == "failed" and agent_id in (test.from_agent, test.to_agent):
            end(session, test.test_id, FAILED, moment.at_s, detail=_text(report.detail))
        elif report.state == "done" and agent_id == test.from_agent and test.opened_at_s is not None:
            _store_result(session, test, report, moment.at_s)
            has_changed |= _settle_ends(session, test, settings, moment)
    return has_changed


def end(session: Session, test_id: str, outcome: str, at_s: float, **values: object) -> bool:
    """It has ended so, unless it had ended before."""
    return link_tests.change_running(session, test_id, ended_at_s=at_s, outcome=outcome, token=None, **values)


def estimate_now(
    session: Session, link: LinkRecord, before: LinkEstimateRecord | None, settings: Settings, now_s: float
) -> LinkEstimateRecord:
    """What the measurements of a link come to now."""
    since_s = now_s - settings.link_max_age_s
    latencies = link_tests.latencies(session, link.src, link.dst, since_s, MEDIAN_OF)
    bandwidths = link_tests.bandwidths(session, link.src, link.dst, since_s, MEDIAN_OF)
    return estimate_from(
        link,
        before,
        [Sample(test.latency_s, test.ended_at_s) for test in latencies if test.latency_s and test.ended_at_s],
        [
            Sample(test.bandwidth_bps, test.ended_at_s)
            for test in bandwidths
            if test.bandwidth_bps and test.ended_at_s
        ],
        settings,
        now_s,
    )


def settle(session: Session, link: LinkRecord, settings: Settings, moment: Moment) -> bool:
    """Store what the measurements of a link come to; whether planning goes by something else now.

    Where it does, plans of before are stale, as after a change by the operator.
    """
    before = link_tests.estimate(session, link.src, link.dst)
    now = estimate_now(session, link, before, settings, moment.at_s)
    if now == before:
        return False
    link_tests.put_estimate(session, now)
    figures = figures_of(link, now)
    if figures == figures_of(link, before):
        return False
    leader.capacity_changed(session)
    events.append(
        session,
        project=SHARED_PROJECT,
        at_s=moment.at_s,
        kind="link.measured",
        object_kind="link",
        object_id=f"{link.src}->{link.dst}"[:64],
        actor=moment.actor,
        data={
            "src": link.src,
            "dst": link.dst,
            "capacity_bps": figures.capacity_bps,
            "capacity_from": figures.capacity_from,
            "latency_s": figures.latency_s,
            "latency_from": figures.latency_from,
        },
    )
    return True


def _store_result(session: Session, test: LinkTestRecord, report: LinkTestReport, at_s: float) -> None:
    has_bandwidth = test.kind == BANDWIDTH
    end(
        session,
        test.test_id,
        DONE,
        at_s,
        latency_s=report.latency_s,
        bandwidth_bps=report.bandwidth_bps if has_bandwidth else None,
        is_floor=report.is_floor and has_bandwidth,
        sent_bytes=min(report.sent_bytes, test.max_bytes),
    )


def _settle_ends(session: Session, test: LinkTestRecord, settings: Settings, moment: Moment) -> bool:
    """A round trip goes both ways, so it tells of both links."""
    both: Sequence[tuple[str, str]] = ((test.src, test.dst), (test.dst, test.src))
    links = [cluster.link(session, src, dst) for src, dst in both]
    changed = [settle(session, link, settings, moment) for link in links if link is not None]
    return any(changed)


def _told(test: LinkTestRecord, role: str) -> LinkTest:
    return LinkTest.model_validate(
        {
            "test_id": test.test_id,
            "role": role,
            "address": test.address,
            "port": test.port,
            "token": test.token,
            "streams": STREAMS if test.kind == BANDWIDTH else 0,
            "max_bytes": test.max_bytes,
            "max_s": test.max_s,
            "open_s": OPEN_S,
        }
    )


def _text(detail: str | None) -> str | None:
    # PostgreSQL has no NUL in texts.
    return None if detail is None else detail.replace("\x00", "\N{REPLACEMENT CHARACTER}")
