"""Every request that may change something and every denial leave a trace, and no trace holds a secret."""

from __future__ import annotations

from typing import Any

import httpx
import pytest
from sqlalchemy import select
from sqlalchemy.orm import Session

from service import limits
from service.api.access import ACCESS
from service.api.audit_trail import NOT_AUDITED, SAFE_METHODS
from service.audit import Attempt, AuditLog, Outcome
from service.bookkeeping import Bookkeeping
from service.control.prune import prune
from service.db.repositories import audit
from service.db.tables import AuditRow
from service.errors import UnavailableError
from tests.api_server import TOKENS, Server
from tests.control_world import job_document


async def write_books(server: Server) -> None:
    await Bookkeeping(server.world.services, server.app.state.authenticator).write()


def rows(server: Server) -> list[AuditRow]:
    with Session(server.world.engine) as session:
        return list(session.scalars(select(AuditRow).order_by(AuditRow.seq)))


async def test_there_are_as_many_rows_as_requests_that_may_change_something(server: Server) -> None:
    """Every unsafe route, by everybody, without a sensible body; then changes that succeed."""
    sent = 0
    unsafe = [key for key in ACCESS if key[0] not in SAFE_METHODS and key[1] not in NOT_AUDITED]
    for name in (*TOKENS, None):
        async with server.client(name) as client:
            for method, path in unsafe:
                address = path.replace("{", "no-").replace("}", "")
                for json in (None, {"unknown": 1}):
                    await client.request(method, address, json=json)
                    sent += 1
    async with server.client("nlp") as nlp, server.client() as admin:
        job_id = (await nlp.post("/v1/jobs", json=job_document())).json()["job_id"]
        answers = [
            await nlp.post("/v1/plans", json=job_document()),
            await nlp.post("/v1/jobs", json=job_document(), headers={"Idempotency-Key": "k"}),
            await nlp.post("/v1/jobs", json=job_document(), headers={"Idempotency-Key": "k"}),
            await nlp.post(f"/v1/jobs/{job_id}/cancel"),
            await nlp.post(f"/v1/jobs/{job_id}/cancel"),
            await admin.put("/v1/regions/eu", json={"pue": 1.1}),
            await admin.post("/v1/accounts", json={"name": "ci", "kind": "service"}),
            await admin.post("/v1/projects", json={"project": "nlp"}),
            await admin.post("/v1/tokens", json={"name": "x", "role": "viewer"}),
        ]
        assert all(answer.is_success for answer in answers), [answer.text for answer in answers]
        sent += 1 + len(answers)
        too_large = await admin.post("/v1/jobs", content=b"x" * (limits.MAX_BODY_BYTES + 1))
        unknown = await admin.post("/v1/nothing/there")
        assert (too_large.status_code, unknown.status_code) == (413, 404)
        sent += 2
    await write_books(server)
    assert sum(row.count for row in rows(server)) == sent


async def test_a_row_says_who_did_what_to_what_from_where(server: Server) -> None:
    async with server.client("nlp") as nlp, server.client() as admin:
        submitted = await nlp.post("/v1/jobs", json=job_document(), headers={"X-Request-Id": "trace-7"})
        job_id = submitted.json()["job_id"]
        await admin.post(f"/v1/jobs/{job_id}/cancel")
        token_id = (await nlp.get("/v1/whoami")).json()["token_id"]
    submit, cancel = rows(server)
    assert (submit.account, submit.token_id, submit.project) == ("admin", token_id, "nlp")
    assert (submit.action, submit.path) == ("POST /v1/jobs", "/v1/jobs")
    assert (submit.object_kind, submit.object_id, submit.outcome) == ("job", job_id, "done")
    assert (submit.address, submit.trace_id) == ("127.0.0.1", "trace-7")
    assert (cancel.action, cancel.project) == ("POST /v1/jobs/{job_id}/cancel", "nlp")


async def test_there_is_no_change_without_its_row(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*_: Any) -> None:
        raise UnavailableError("no room for the audit log")

    monkeypatch.setattr(audit, "add", fails)
    before = server.rows()
    async with server.client("nlp") as nlp:
        answer = await nlp.post("/v1/jobs", json=job_document())
    assert answer.status_code == 503
    assert server.rows() == before


async def test_denials_are_told_apart_by_their_cause_and_counted(server: Server) -> None:
    async with server.client("nlp") as nlp, server.client("vision") as vision, server.client(None) as nobody:
        job_id = (await nlp.post("/v1/jobs", json=job_document())).json()["job_id"]
        for _ in range(7):
            await vision.get(f"/v1/jobs/{job_id}")
        await vision.get("/v1/jobs/job-that-never-was")
        await vision.put("/v1/regions/eu", json={"pue": 1.0})
        for _ in range(3):
            await nobody.get("/v1/jobs")
    await write_books(server)
    denied = {(row.action, row.code): row for row in rows(server) if row.outcome == "denied"}
    assert {key: row.count for key, row in denied.items()} == {
        ("GET /v1/jobs/{job_id}", "not_found"): 8,
        ("PUT /v1/regions/{region}", "forbidden"): 1,
        ("GET /v1/jobs", "unauthenticated"): 3,
    }
    assert denied["GET /v1/jobs/{job_id}", "not_found"].path == f"/v1/jobs/{job_id}"
    assert denied["GET /v1/jobs", "unauthenticated"].account == ""
    assert denied["PUT /v1/regions/{region}", "forbidden"].account == "admin", (
        "whose token it was, not what it may"
    )
    exposition = server.world.services.metrics.exposition().decode()
    assert 'bace_denials_total{code="not_found"} 8.0' in exposition


async def test_a_storm_of_denials_is_bounded_and_none_is_uncounted(server: Server) -> None:
    log, db = AuditLog(), server.world.services.db
    for number in range(10 * limits.MAX_AUDIT_WAITING):
        attempt = Attempt("GET /v1/jobs", "/v1/jobs", f"10.0.{number // 256}.{number % 256}", "t", None, 1.0)
        log.note(attempt.entry(Outcome.DENIED, "unauthenticated"))
    assert await log.write(db) <= limits.MAX_AUDIT_WAITING + len(Outcome)
    assert sum(row.count for row in rows(server)) == 10 * limits.MAX_AUDIT_WAITING


async def test_what_could_not_be_stored_is_kept_for_the_next_time(server: Server) -> None:
    log, good = AuditLog(), server.world.services.db
    entry = Attempt("GET /v1/jobs", "/v1/jobs", "10.0.0.1", "t", None, 1.0).entry(Outcome.DENIED, "forbidden")

    class Away:
        async def run(self, work: Any) -> Any:
            log.note(entry)  # goes on meanwhile
            raise UnavailableError("away")

        read = run

        def close(self) -> None: ...

    log.note(entry)
    with pytest.raises(UnavailableError):
        await log.write(Away())
    assert await log.write(good) == 1
    assert [row.count for row in rows(server)] == [2]
    assert await log.write(good) == 0


async def test_project_admins_see_their_project_and_nobody_else_sees_any(server: Server) -> None:
    async with server.client("nlp") as nlp, server.client("vision") as vision, server.client() as admin:
        job_id = (await nlp.post("/v1/jobs", json=job_document())).json()["job_id"]
        await vision.post("/v1/jobs", json=job_document(project="vision"))
        await admin.post(f"/v1/jobs/{job_id}/cancel")
        await admin.put("/v1/regions/eu", json={"pue": 1.1})
        assert (await nlp.get("/v1/audit")).status_code == 403
        everything = (await admin.get("/v1/audit")).json()["items"]
    assert [entry["project"] for entry in everything] == ["*", "nlp", "vision", "nlp"]
    async with server.client("nlp-admin") as boss:
        seen = (await boss.get("/v1/audit")).json()["items"]
        assert [entry["action"] for entry in seen] == ["POST /v1/jobs/{job_id}/cancel", "POST /v1/jobs"]
        assert (await boss.get("/v1/audit", params={"project": "vision"})).json()["items"] == []


async def test_it_is_read_page_by_page_and_by_account_and_outcome(
    server: Server, admin: httpx.AsyncClient
) -> None:
    for number in range(5):
        await admin.post("/v1/projects", json={"project": f"p{number}"})
    await admin.post("/v1/projects", json={"project": "Not Valid"})
    await write_books(server)
    seen, cursor = [], None
    while True:
        page = (
            await admin.get("/v1/audit", params={"limit": 2} | ({"cursor": cursor} if cursor else {}))
        ).json()
        seen += [entry["seq"] for entry in page["items"]]
        cursor = page["next"]
        if cursor is None:
            break
    assert seen == [6, 5, 4, 3, 2, 1]
    refused = (await admin.get("/v1/audit", params={"outcome": "refused"})).json()["items"]
    assert [(entry["seq"], entry["code"]) for entry in refused] == [(6, "invalid_input")]
    assert (await admin.get("/v1/audit", params={"account": "nobody"})).json()["items"] == []
    for wrong in ({"cursor": "x"}, {"cursor": "9" * 30}, {"outcome": "maybe"}, {"account": "A B"}):
        assert (await admin.get("/v1/audit", params=wrong)).status_code == 422


async def test_a_token_in_an_address_is_not_kept(server: Server, admin: httpx.AsyncClient) -> None:
    secret = server.tokens["nlp"].replace("secret-", "secret")
    assert len(secret) > 25
    await admin.post(f"/v1/tokens/{secret}/revoke")
    await admin.post(f"/{secret}")
    await write_books(server)
    kept = [row.path for row in rows(server)]
    assert len(kept) == 2
    assert not any(secret in path for path in kept)


async def test_rows_go_when_their_time_is_over(server: Server) -> None:
    world = server.world
    keep_s, now_s = world.services.settings.audit_retention_s, world.clock.now()
    for path, age_s in (("/v1/old", keep_s + 1.0), ("/v1/young", keep_s - 1.0)):
        attempt = Attempt("POST /v1", path, "10.0.0.1", path, None, now_s - age_s)
        world.services.audit.note(attempt.entry(Outcome.REFUSED, "conflict"))
    await write_books(server)
    assert len(rows(server)) == 2
    await prune(world.services, world.leadership)
    assert [row.path for row in rows(server)] == ["/v1/young"]
