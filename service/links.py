"""Links between regions: what they carry, what agents have measured of it, and what of it is held."""

from __future__ import annotations

from dataclasses import dataclass, replace

from service import topics
from service.access import Principal
from service.db.records import LinkEstimateRecord, LinkRecord, LinkTestRecord
from service.db.repositories import allocations, cluster, events, leader, link_tests
from service.db.session import Session
from service.db.tables import SHARED_PROJECT
from service.errors import FieldError, InvalidInputError, NotFoundError
from service.known_prices import price_now
from service.link_estimates import Figures, figures_of, measuring_of, why
from service.link_measurements import settle
from service.regions import check_version
from service.services import Services
from service.settings import LinkMeasuring, Settings


@dataclass(frozen=True, slots=True)
class LinkView:
    """A link as it was set and as it was measured, with what running jobs hold of it and its egress price now."""

    link: LinkRecord
    estimate: LinkEstimateRecord | None
    last_test: LinkTestRecord | None
    """The measurement that ended last."""
    reserved_bps: float
    egress_usd_per_gb: float | None
    measuring: LinkMeasuring
    capacity_why: str
    latency_why: str
    """Why planning goes by these figures."""
    now_s: float

    @property
    def figures(self) -> Figures:
        """What planning goes by."""
        return figures_of(self.link, self.estimate)

    @property
    def free_bps(self) -> float:
        return max(0.0, self.figures.capacity_bps - self.reserved_bps)


async def list_all(services: Services) -> list[LinkView]:
    """By source and destination."""
    now_s = services.clock.now()
    return await services.db.read(
        lambda session: _views(session, cluster.links(session), services.settings, now_s)
    )


def _views(session: Session, links: list[LinkRecord], settings: Settings, now_s: float) -> list[LinkView]:
    reserved = allocations.reserved_bps(session)
    egress = price_now(session, "egress", now_s)
    estimates, tests = link_tests.estimates(session), link_tests.newest_ended(session)
    views = []
    for link in links:
        key = (link.src, link.dst)
        views.append(
            LinkView(
                link,
                estimates.get(key),
                tests.get(key),
                reserved.get(key, 0.0),
                egress.get((link.src, "", link.dst)),
                measuring_of(link, settings),
                *why(link, estimates.get(key), settings, now_s),
                now_s,
            )
        )
    return views


async def put(
    services: Services, principal: Principal, wanted: LinkRecord, version: int | None
) -> tuple[LinkView, bool]:
    """Makes or changes a directed link; whether it was made. Less than is held keeps nobody from going on. What was
    measured before goes on to count, as far as it still may be measured.

    Raises NotFoundError for a region that is not known, PreconditionFailedError for another version.
    """
    now_s = services.clock.now()
    if wanted.src == wanted.dst:
        detail = "expected another region than src: inside a region there are no links"
        raise InvalidInputError(
            f"dst: {detail}", errors=(FieldError("/dst", detail, value=wanted.dst, where="path"),)
        )

    def work(session: Session) -> tuple[LinkView, bool]:
        known = {record.region for record in cluster.regions(session)}
        for end in (wanted.src, wanted.dst):
            if end not in known:
                raise NotFoundError(f"there is no region {end}: make it with PUT /v1/regions/{end} first")
        before = cluster.link(session, wanted.src, wanted.dst)
        check_version(f"link {wanted.src}->{wanted.dst}", before.version if before else None, version)
        if before is None:
            now = replace(wanted, version=1)
            cluster.add_link(session, now)
        else:
            cluster.change_link(
                session,
                before,
                capacity_bps=wanted.capacity_bps,
                latency_s=wanted.latency_s,
                capacity_is_limit=wanted.capacity_is_limit,
                measuring=wanted.measuring,
            )
            now = replace(wanted, version=before.version + 1)
        leader.capacity_changed(session)
        _tell(session, now, principal, now_s)
        settle(session, now, services.settings, principal.moment(now_s))
        [view] = _views(session, [now], services.settings, now_s)
        return view, before is None

    answer = await services.db.run(work)
    await services.bus.publish(topics.PLANNING)
    return answer


def _tell(session: Session, link: LinkRecord, principal: Principal, at_s: float) -> None:
    events.append(
        session,
        project=SHARED_PROJECT,
        at_s=at_s,
        kind="link.changed",
        object_kind="link",
        object_id=f"{link.src}->{link.dst}"[:64],
        actor=principal.token_id,
        data={
            "src": link.src,
            "dst": link.dst,
            "capacity_bps": link.capacity_bps,
            "latency_s": link.latency_s,
            "capacity_is_limit": link.capacity_is_limit,
            "measuring": link.measuring,
        },
    )
