"""Nobody can give more than they have: accounts, their roles, and tokens that follow both."""

from __future__ import annotations

from typing import Any

import httpx
import pytest
from sqlalchemy import select
from sqlalchemy.orm import Session

from service import limits
from service.bookkeeping import Bookkeeping
from service.db.tables import Base
from tests.api_server import Server

DAY_S = 86_400.0


def status_and_code(answer: httpx.Response) -> tuple[int, str]:
    return answer.status_code, answer.json().get("code", "")


async def make_account(admin: httpx.AsyncClient, name: str, **body: Any) -> dict[str, Any]:
    answer = await admin.post("/v1/accounts", json={"name": name, "kind": "service", **body})
    assert answer.status_code == 201, answer.text
    made: dict[str, Any] = answer.json()
    return made


async def make_token(server: Server, by: httpx.AsyncClient, name: str, **body: Any) -> dict[str, Any]:
    """A token under that name among the server's; its document."""
    answer = await by.post("/v1/tokens", json={"name": name, **body})
    assert answer.status_code == 201, answer.text
    made: dict[str, Any] = answer.json()
    server.tokens[name] = made["token"]
    return made


async def who(server: Server, name: str) -> httpx.Response:
    async with server.client(name) as client:
        return await client.get("/v1/whoami")


async def test_a_token_follows_what_its_account_may_do(server: Server, admin: httpx.AsyncClient) -> None:
    await make_account(admin, "ci", role="submitter", project="nlp")
    await make_token(server, admin, "ci", role="submitter", project="nlp", account="ci")
    await make_token(server, admin, "ci-looks", role="viewer", project="nlp", account="ci")
    assert (await who(server, "ci")).json()["account"] == "ci"

    lowered = await admin.put("/v1/accounts/ci/roles/nlp", json={"role": "viewer"})
    assert lowered.json()["roles"] == [{"project": "nlp", "role": "viewer"}]
    assert ((await who(server, "ci")).status_code, (await who(server, "ci-looks")).status_code) == (401, 200)

    await admin.put("/v1/accounts/ci/roles/nlp", json={"role": "submitter"})
    assert (await who(server, "ci")).status_code == 200
    assert (await admin.post("/v1/accounts/ci/disable")).json()["disabled_at_s"] is not None
    assert ((await who(server, "ci")).status_code, (await who(server, "ci-looks")).status_code) == (401, 401)
    await admin.post("/v1/accounts/ci/enable")
    assert (await who(server, "ci")).status_code == 200
    await admin.put("/v1/accounts/ci/roles/nlp", json={"role": None})
    assert (await who(server, "ci-looks")).status_code == 401


@pytest.mark.parametrize(
    ("role", "project"), [("admin", None), ("agent", None), ("viewer", None), ("submitter", "vision")]
)
async def test_a_project_admin_gives_nothing_beyond_the_project(
    server: Server, role: str, project: str | None
) -> None:
    async with server.client("nlp-admin") as boss:
        more = {} if project is None else {"project": project}
        token = await boss.post("/v1/tokens", json={"name": "more", "role": role, **more})
        assert status_and_code(token) == (403, "forbidden")
        account = await boss.post(
            "/v1/accounts", json={"name": "more", "kind": "service", "role": role, **more}
        )
        assert status_and_code(account) == (403, "forbidden")
        path = f"/v1/accounts/admin/roles/{project or '*'}"
        assert status_and_code(await boss.put(path, json={"role": role})) == (403, "forbidden")
        assert status_and_code(await boss.put(path, json={"role": None})) == (403, "forbidden")


async def test_a_project_admin_runs_the_accounts_and_tokens_of_the_project(
    server: Server, admin: httpx.AsyncClient
) -> None:
    await make_account(admin, "zoe", kind="user")
    await make_account(admin, "stranger", role="submitter", project="vision")
    async with server.client("nlp-admin") as boss:
        person = await boss.post("/v1/accounts", json={"name": "joe", "kind": "user"})
        assert status_and_code(person) == (403, "forbidden")
        await make_account(boss, "nightly", role="submitter", project="nlp")
        assert (await boss.put("/v1/accounts/zoe/roles/nlp", json={"role": "viewer"})).status_code == 200
        seen = {account["name"] for account in (await boss.get("/v1/accounts")).json()["items"]}
        assert seen == {"nightly", "zoe"}

        made = await make_token(server, boss, "run", role="submitter", project="nlp", account="nightly")
        above = await boss.post(
            "/v1/tokens", json={"name": "x", "role": "submitter", "project": "nlp", "account": "zoe"}
        )
        assert status_and_code(above) == (422, "invalid_input")
        unseen = await boss.post(
            "/v1/tokens", json={"name": "x", "role": "viewer", "project": "nlp", "account": "stranger"}
        )
        assert status_and_code(unseen) == (404, "not_found")
        everlasting = await boss.post(
            "/v1/tokens", json={"name": "x", "role": "viewer", "project": "nlp", "never_expires": True}
        )
        assert status_and_code(everlasting) in {(403, "forbidden"), (422, "invalid_input")}

        listed = {token["token_id"] for token in (await boss.get("/v1/tokens")).json()["items"]}
        assert made["token_id"] in listed
        everything = (await admin.get("/v1/tokens")).json()["items"]
        [others] = [token["token_id"] for token in everything if token["project"] == "vision"]
        assert others not in listed
        for verb, body in (("revoke", None), ("rotate", {})):
            answer = await boss.post(f"/v1/tokens/{others}/{verb}", json=body)
            assert status_and_code(answer) == (404, "not_found")
        assert status_and_code(await boss.post("/v1/accounts/zoe/disable")) == (403, "forbidden")
        assert status_and_code(await boss.post("/v1/accounts/stranger/disable")) == (404, "not_found")
        assert (await boss.post("/v1/accounts/nightly/disable")).status_code == 200
    assert (await who(server, "run")).status_code == 401


async def test_what_a_project_admin_sees_of_an_account_is_its_own_project(
    server: Server, admin: httpx.AsyncClient
) -> None:
    await make_account(admin, "zoe", kind="user", role="submitter", project="nlp")
    await admin.put("/v1/accounts/zoe/roles/vision", json={"role": "project-admin"})
    async with server.client("nlp-admin") as boss:
        [zoe] = (await boss.get("/v1/accounts")).json()["items"]
    assert zoe["roles"] == [{"project": "nlp", "role": "submitter"}]


async def test_names_are_taken_once_and_roles_go_with_their_projects(admin: httpx.AsyncClient) -> None:
    await make_account(admin, "ci")
    again = await admin.post("/v1/accounts", json={"name": "ci", "kind": "user"})
    assert status_and_code(again) == (409, "conflict")
    for role, project in (("submitter", "*"), ("admin", "nlp"), ("agent", "nlp"), ("project-admin", "*")):
        answer = await admin.put(f"/v1/accounts/ci/roles/{project}", json={"role": role})
        assert status_and_code(answer) == (422, "invalid_input")
        assert answer.json()["errors"][0]["pointer"] == "/role"
    own = await admin.post("/v1/accounts/admin/disable")
    assert status_and_code(own) == (409, "conflict")


async def test_a_rotated_token_has_two_secrets_for_the_overlap_and_then_one(
    server: Server, admin: httpx.AsyncClient
) -> None:
    await make_token(server, admin, "old", role="submitter", project="nlp", expires_in_s=10 * DAY_S)
    server.world.clock.advance(5 * DAY_S)
    async with server.client("old") as holder:
        answer = await holder.post("/v1/tokens/mine/rotate", json={})
        assert status_and_code(answer) == (404, "not_found")
        token_id = (await holder.get("/v1/whoami")).json()["token_id"]
        answer = await holder.post(f"/v1/tokens/{token_id}/rotate", json={"overlap_s": 600.0})
    rotated = answer.json()
    assert (answer.status_code, answer.headers["Cache-Control"]) == (200, "no-store")
    now_s = server.world.clock.now()
    assert rotated["token_id"] == token_id
    assert rotated["expires_at_s"] == pytest.approx(now_s + 10 * DAY_S)
    assert rotated["previous_until_s"] == pytest.approx(now_s + 600.0)
    server.tokens["new"] = rotated["token"]

    assert [(await who(server, name)).status_code for name in ("old", "new")] == [200, 200]
    server.world.clock.advance(601.0)
    assert [(await who(server, name)).status_code for name in ("old", "new")] == [401, 200]

    async with server.client("new") as holder:
        at_once = (await holder.post(f"/v1/tokens/{token_id}/rotate", json={"overlap_s": 0.0})).json()
    server.tokens["newest"] = at_once["token"]
    assert [(await who(server, name)).status_code for name in ("old", "new", "newest")] == [401, 401, 200]

    await admin.post(f"/v1/tokens/{token_id}/revoke")
    assert (await who(server, "newest")).status_code == 401
    ended = await admin.post(f"/v1/tokens/{token_id}/rotate", json={})
    assert status_and_code(ended) == (409, "conflict")


async def test_others_tokens_are_not_there_to_rotate(server: Server, admin: httpx.AsyncClient) -> None:
    async with server.client("nlp-viewer") as viewer, server.client("nlp") as submitter:
        token_id = (await submitter.get("/v1/whoami")).json()["token_id"]
        answer = await viewer.post(f"/v1/tokens/{token_id}/rotate", json={})
    assert status_and_code(answer) == (404, "not_found")


async def test_what_people_and_programs_use_expires_by_default(
    server: Server, admin: httpx.AsyncClient
) -> None:
    settings, now_s = server.world.services.settings, server.world.clock.now()
    await make_account(admin, "ci", role="submitter", project="nlp")
    person = await make_token(server, admin, "person", role="viewer")
    program = await make_token(server, admin, "program", role="viewer", project="nlp", account="ci")
    agent = await make_token(server, admin, "node", role="agent")
    for_ever = await make_token(server, admin, "for-ever", role="viewer", never_expires=True)
    assert person["expires_at_s"] == pytest.approx(now_s + settings.token_lifetime_s)
    assert program["expires_at_s"] == pytest.approx(now_s + settings.service_token_lifetime_s)
    assert (agent["expires_at_s"], for_ever["expires_at_s"]) == (None, None)
    both = await admin.post(
        "/v1/tokens", json={"name": "x", "role": "viewer", "never_expires": True, "expires_in_s": 1.0}
    )
    assert status_and_code(both) == (422, "invalid_input")
    assert (await who(server, "person")).json()["expires_at_s"] == person["expires_at_s"]
    async with server.client("nlp-admin") as boss:
        for_ages = {"expires_in_s": settings.service_token_lifetime_s + 1.0}
        made = await boss.post(
            "/v1/tokens", json={"name": "x", "role": "viewer", "project": "nlp", **for_ages}
        )
        own = (await boss.get("/v1/whoami")).json()["token_id"]
        rotated = await boss.post(f"/v1/tokens/{own}/rotate", json=for_ages)
    assert [status_and_code(each) for each in (made, rotated)] == [(403, "forbidden")] * 2


async def test_the_last_use_is_told_to_some_minutes_and_not_written_with_every_request(
    server: Server, admin: httpx.AsyncClient
) -> None:
    made = await make_token(server, admin, "seldom", role="viewer")
    books = Bookkeeping(server.world.services, server.app.state.authenticator)
    writes = count_writes(server)

    async def last_used() -> float | None:
        listed = {token["token_id"]: token for token in (await admin.get("/v1/tokens")).json()["items"]}
        found: float | None = listed[made["token_id"]]["last_used_at_s"]
        return found

    assert await last_used() is None
    for _ in range(20):
        await who(server, "seldom")
        server.world.clock.advance(0.5)
    assert writes == []
    await books.write()
    await books.write()
    first_s = await last_used()
    assert first_s == pytest.approx(server.world.clock.now(), abs=1.0)
    assert len(writes) == 1
    for _ in range(20):
        await who(server, "seldom")
        server.world.clock.advance(limits.LAST_USED_GRAIN_S / 40)
        await books.write()
    assert await last_used() == first_s
    server.world.clock.advance(limits.LAST_USED_GRAIN_S)
    await who(server, "seldom")
    await books.write()
    second_s = await last_used()
    assert first_s is not None
    assert second_s is not None
    assert second_s > first_s


def count_writes(server: Server) -> list[str]:
    """Grows with every transaction that may write."""
    written: list[str] = []
    run = server.world.services.db.run

    async def counted(work: Any) -> Any:
        written.append(str(work))
        return await run(work)

    object.__setattr__(server.world.services.db, "run", counted)
    return written


async def test_no_secret_of_a_rotation_is_stored(server: Server, admin: httpx.AsyncClient) -> None:
    made = await make_token(server, admin, "one", role="viewer")
    rotated = (await admin.post(f"/v1/tokens/{made['token_id']}/rotate", json={})).json()
    with Session(server.world.engine) as session:
        stored = repr(
            [tuple(row) for table in Base.metadata.tables.values() for row in session.execute(select(table))]
        )
    assert made["token"] not in stored
    assert rotated["token"] not in stored


async def test_who_has_which_account_is_nothing_that_tenants_are_told(
    server: Server, admin: httpx.AsyncClient
) -> None:
    await make_account(admin, "secret-project-lead", kind="user")
    async with server.client("nlp") as nlp:
        answer = await nlp.get("/v1/whoami")
        assert answer.status_code == 200
    events = await server.world.events()
    assert any(event.data.get("name") == "secret-project-lead" for event in events)
    from service.db.repositories import events as event_rows
    from service.db.scope import Scope

    told = await server.world.run(lambda session: event_rows.after(session, Scope("nlp"), 0, 1000))
    assert not any(event.data.get("name") == "secret-project-lead" for event in told)


async def test_accounts_and_tokens_are_not_made_without_end(
    server: Server, admin: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "MAX_LIVE_TOKENS", 2)
    monkeypatch.setattr(limits, "MAX_ACCOUNTS", 3)
    async with server.client("nlp-admin") as boss:
        for number in range(3):
            await make_account(boss, f"ci-{number}", role="viewer", project="nlp")
        one_more = await boss.post("/v1/accounts", json={"name": "ci-9", "kind": "service"})
        assert status_and_code(one_more) == (409, "conflict")
        asked = {"role": "viewer", "project": "nlp", "account": "ci-0"}
        first = await make_token(server, boss, "first", **asked)
        await make_token(server, boss, "second", **asked)
        third = await boss.post("/v1/tokens", json={"name": "third", **asked})
        assert status_and_code(third) == (409, "conflict")
        await boss.post(f"/v1/tokens/{first['token_id']}/revoke")
        await make_token(server, boss, "third", **asked)
    for number in range(3):
        await make_token(server, admin, f"node-{number}", role="agent")
