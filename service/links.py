"""Links between regions: what they carry, and what of it is held."""

from __future__ import annotations

from dataclasses import dataclass, replace

from sqlalchemy.orm import Session

from service import topics
from service.access import Principal
from service.db.records import LinkRecord
from service.db.repositories import allocations, cluster, events, leader
from service.db.tables import SHARED_PROJECT
from service.errors import FieldError, InvalidInputError, NotFoundError
from service.known_prices import price_now
from service.regions import check_version
from service.services import Services


@dataclass(frozen=True, slots=True)
class LinkView:
    """A link with what running jobs hold of it and its egress price now."""

    link: LinkRecord
    reserved_bps: float
    egress_usd_per_gb: float | None

    @property
    def free_bps(self) -> float:
        return max(0.0, self.link.capacity_bps - self.reserved_bps)


async def list_all(services: Services) -> list[LinkView]:
    """By source and destination."""
    now_s = services.clock.now()

    def work(session: Session) -> list[LinkView]:
        reserved = allocations.reserved_bps(session)
        egress = price_now(session, "egress", now_s)
        return [
            LinkView(link, reserved.get((link.src, link.dst), 0.0), egress.get((link.src, "", link.dst)))
            for link in cluster.links(session)
        ]

    return await services.db.read(work)


async def put(
    services: Services, principal: Principal, wanted: LinkRecord, version: int | None
) -> tuple[LinkView, bool]:
    """Makes or changes a directed link; whether it was made. Less than is held keeps nobody from going on.

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
            figures = {"capacity_bps": wanted.capacity_bps, "latency_s": wanted.latency_s}
            cluster.change_link(session, before, **figures)
            now = replace(wanted, version=before.version + 1)
        leader.capacity_changed(session)
        _tell(session, now, principal, now_s)
        reserved = allocations.reserved_bps(session).get((now.src, now.dst), 0.0)
        egress = price_now(session, "egress", now_s).get((now.src, "", now.dst))
        return LinkView(now, reserved, egress), before is None

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
        },
    )
