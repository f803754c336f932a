"""Regions, links, nodes and prices over REST: what is set is what planning sees."""

from __future__ import annotations

import httpx
import pytest

from tests.api_server import Server
from tests.control_world import START_S, job_document

HOUR_S = 3600.0


async def test_a_region_counts_its_gpus_by_use_and_tells_its_prices(
    server: Server, admin: httpx.AsyncClient
) -> None:
    await server.world.cluster_of("eu-north", "eu-west", slots=2)
    await admin.put("/v1/prices", json={"kind": "electricity", "region": "eu-west", "value": 0.21})
    await admin.post("/v1/jobs", json=job_document())
    await server.world.plan()
    regions = {entry["region"]: entry for entry in (await admin.get("/v1/regions")).json()["items"]}
    assert sum(region["gpus"]["used"] for region in regions.values()) == 3
    for region in regions.values():
        gpus = region["gpus"]
        assert gpus["total"] == 2 == gpus["used"] + gpus["free"] + gpus["unavailable"]
    assert regions["eu-west"]["electricity_usd_per_kwh"] == 0.21
    assert regions["eu-north"]["electricity_usd_per_kwh"] is None, "unknown, not zero"
    links = (await admin.get("/v1/links")).json()["items"]
    assert any(link["reserved_bps"] > 0 for link in links)
    assert all(link["free_bps"] == link["capacity_bps"] - link["reserved_bps"] for link in links)


async def test_putting_is_making_then_changing_and_respects_if_match(admin: httpx.AsyncClient) -> None:
    made = await admin.put("/v1/regions/eu-west", json={"pue": 1.2, "uplink_bps": 1e11})
    assert (made.status_code, made.headers["ETag"]) == (201, '"1"')
    stale = await admin.put("/v1/regions/eu-west", json={"pue": 1.3}, headers={"If-Match": '"9"'})
    assert stale.status_code == 412
    changed = await admin.put("/v1/regions/eu-west", json={"pue": 1.3}, headers={"If-Match": '"1"'})
    assert (changed.status_code, changed.headers["ETag"]) == (200, '"2"')
    assert (changed.json()["pue"], changed.json()["uplink_bps"]) == (1.3, None), (
        "the whole is put, not a part"
    )


async def test_a_cordoned_node_offers_nothing_until_it_is_uncordoned(
    server: Server, admin: httpx.AsyncClient
) -> None:
    await server.world.cluster_of("eu-north", slots=3)
    cordoned = await admin.post("/v1/nodes/node-eu/cordon")  # a prefix is enough
    again = await admin.post("/v1/nodes/node-eu-north/cordon")
    assert cordoned.json()["state"] == again.json()["state"] == "cordoned"
    assert cordoned.json()["version"] == again.json()["version"], "again changes nothing"
    await admin.post("/v1/jobs", json=job_document())
    await server.world.plan()
    assert (await admin.get("/v1/nodes/node-eu-north")).json()["used_gpus"] == 0
    assert (await admin.get("/v1/regions/eu-north")).json()["gpus"]["unavailable"] == 3
    assert (await admin.post("/v1/nodes/node-eu-north/uncordon")).json()["state"] == "ready"
    await server.world.plan()
    assert (await admin.get("/v1/nodes/node-eu-north")).json()["used_gpus"] == 3


async def test_draining_moves_what_may_be_stopped_and_leaves_the_rest(
    server: Server, admin: httpx.AsyncClient
) -> None:
    agents = await server.world.cluster_of("eu-north", slots=6)
    elastic = (await admin.post("/v1/jobs", json=job_document())).json()["job_id"]
    fixed = (await admin.post("/v1/jobs", json=job_document(elasticity="none"))).json()["job_id"]
    await server.world.plan()
    drained = (await admin.post("/v1/nodes/node-eu-north/drain")).json()
    assert (drained["restarting"], drained["staying"]) == ([elastic], [fixed])
    assert drained["node"]["state"] == "cordoned"
    spare = (await server.world.cluster_of("us-east", slots=3))[0]
    for _ in range(3):
        await server.world.beats([*agents, spare])
    await server.world.plan()
    job = (await admin.get(f"/v1/jobs/{elastic}")).json()
    assert (job["state"], job["retries"]) == ("starting", 0), "no retry is spent on a drain"
    assert [part["region"] for part in job["chain"]] == ["us-east"]
    assert (await admin.get(f"/v1/jobs/{fixed}")).json()["chain"][0]["region"] == "eu-north"


async def test_prices_are_a_series_in_one_unit_whose_past_is_never_overwritten(
    server: Server, admin: httpx.AsyncClient
) -> None:
    await admin.put("/v1/regions/eu-west", json={})
    now_s = START_S + server.world.clock.now() - START_S
    given = [{"valid_from_s": now_s + hour * HOUR_S, "value": 100.0 + hour} for hour in range(-2, 3)]
    body = {
        "kind": "electricity",
        "region": "eu-west",
        "unit": "usd_per_mwh",
        "source": "auction",
        "points": given,
    }
    first = (await admin.post("/v1/prices/import", json=body)).json()
    again = (await admin.post("/v1/prices/import", json=body)).json()
    assert (first["points"], first["new_points"], again["new_points"]) == (5, 5, 0)
    path = f"/v1/prices/{first['series_id']}"
    span = {"from": now_s, "to": now_s + HOUR_S}
    series = (await admin.get(path, params=span)).json()
    assert (series["unit"], series["value_now"]) == ("usd_per_kwh", 0.1)
    assert [point["value"] for point in series["points"]] == [0.1, 0.101]

    corrected = body | {"points": [{"valid_from_s": now_s, "value": 90.0}]}
    early = await admin.post("/v1/prices/import", json=corrected)
    assert early.status_code == 409, "two values of one moment, known at one time"
    server.world.clock.advance(10.0)
    assert (await admin.post("/v1/prices/import", json=corrected)).json()["new_points"] == 1
    series = (await admin.get(path, params=span)).json()
    assert series["value_now"] == 0.09
    assert [point["value"] for point in series["points"]] == [0.1, 0.09, 0.101], (
        "the first one stays on record"
    )


async def test_a_rent_is_stored_and_told_if_nothing_is_billed_by_it(
    server: Server, admin: httpx.AsyncClient
) -> None:
    await server.world.cluster_of("eu-west")

    async def unused_because(gpu_type: str) -> str | None:
        rent = {"kind": "rent", "region": "eu-west", "gpu_type": gpu_type, "value": 2.1}
        answer = await admin.put("/v1/prices", json=rent)
        assert (answer.status_code, answer.json()["value_now"]) == (200, 2.1)
        told: str | None = answer.json()["unused_because"]
        return told

    assert await unused_because("H100") == "no node in eu-west has H100; its GPU types are: cpu-slot"
    assert await unused_because("cpu-slot") == (
        "cpu-slot in eu-west are owned: rent counts only where GPUs are rented"
    )
    await admin.put("/v1/pools/eu-west/cpu-slot", json={"ownership": "rented"})
    assert await unused_because("cpu-slot") is None


async def test_an_hourly_csv_is_known_when_it_was_published(server: Server, admin: httpx.AsyncClient) -> None:
    await admin.put("/v1/regions/eu-west", json={})
    text = "timestamp_utc,west\n2026-01-02T00:00Z,-5.0\n2026-01-02T01:00Z,40\n"
    query = {
        "kind": "electricity",
        "region": "eu-west",
        "unit": "usd_per_mwh",
        "column": "west",
        "known": "day-ahead",
    }
    imported = await admin.post(
        "/v1/prices/import", params=query, content=text, headers={"Content-Type": "text/csv"}
    )
    assert imported.json()["new_points"] == 2
    first_s = 1_767_312_000.0  # 2026-01-02T00:00Z
    path = f"/v1/prices/{imported.json()['series_id']}"
    points = (await admin.get(path, params={"from": first_s, "to": first_s + HOUR_S})).json()["points"]
    noon_before_s = first_s - 12 * HOUR_S
    assert [(point["value"], point["known_at_s"]) for point in points] == [
        (-0.005, noon_before_s),
        (0.04, noon_before_s),
    ]


async def test_a_dry_run_tells_what_a_submission_then_does_and_stores_nothing(
    server: Server, admin: httpx.AsyncClient
) -> None:
    await server.world.cluster_of("eu-north", "eu-west", "us-east")
    for region, price in (("eu-north", 0.1), ("eu-west", 0.2)):
        await admin.put("/v1/prices", json={"kind": "electricity", "region": region, "value": price})
    await admin.put(
        "/v1/prices", json={"kind": "egress", "region": "eu-north", "dst": "eu-west", "value": 0.02}
    )
    before = server.rows()
    plan = (await admin.post("/v1/plans", json=job_document())).json()
    assert server.rows() == before
    assert plan["decision"] == "start"
    job_id = (await admin.post("/v1/jobs", json=job_document())).json()["job_id"]
    await server.world.plan()
    job = (await admin.get(f"/v1/jobs/{job_id}")).json()
    assert job["placement"] == plan["placement"]
    assert job["predicted_iteration_s"] == plan["iteration_s"]
    assert (job["why"], job["spec"]) == (plan["why"], plan["job"])
    assert plan["duration_s"] == pytest.approx(4 * plan["iteration_s"])
    assert 0 < plan["bubble_fraction"] < 1
    kwh = plan["energy_kwh"]["by_region"]
    assert plan["cost_usd"]["electricity"] == pytest.approx(0.1 * kwh["eu-north"] + 0.2 * kwh["eu-west"])
    hours = plan["duration_s"] / 3600
    assert plan["usd_per_hour"]["total"] * hours == pytest.approx(plan["cost_usd"]["total"])
    assert plan["unpriced_regions"] == ["us-east"]


async def test_a_dry_run_without_room_holds_with_reasons(server: Server, admin: httpx.AsyncClient) -> None:
    await server.world.cluster_of("eu-north")
    plan = (await admin.post("/v1/plans", json=job_document())).json()
    assert plan["decision"] in ("hold", "reject")
    assert plan["reasons"]
    assert (plan["placement"], plan["cost_usd"]) == (None, None)


async def test_a_quota_is_set_by_an_administrator_and_told_with_what_is_used(server: Server) -> None:
    async with server.client() as admin, server.client("nlp") as nlp, server.client("nlp-admin") as boss:
        made = await admin.put("/v1/projects/nlp/quota", json={"gpus": 2, "usd_per_month": None})
        assert made.status_code == 200
        for client in (nlp, boss):
            refused = await client.put("/v1/projects/nlp/quota", json={"gpus": 99, "usd_per_month": None})
            assert refused.status_code == 403
        [project] = (await nlp.get("/v1/projects")).json()["items"]
        assert (project["quota_gpus"], project["quota_usd_per_month"]) == (2, None)
        assert (project["held_gpus"], project["spent_usd_this_month"]) == (0, 0.0)
        job = (await nlp.post("/v1/jobs", json=job_document())).json()
        assert [reason["code"] for reason in job["reasons"]] == ["QuotaTooSmall"]
        for wrong in ({"gpus": -1, "usd_per_month": None}, {"gpus": 1}, {"gpus": 1.5, "usd_per_month": 1}):
            assert (await admin.put("/v1/projects/nlp/quota", json=wrong)).status_code == 422


async def test_a_link_tells_what_was_set_what_was_measured_and_what_planning_goes_by(
    server: Server, admin: httpx.AsyncClient
) -> None:
    await server.world.cluster_of("eu-north", "eu-west")
    body = {"capacity_bps": 5e9, "latency_s": 0.02, "capacity_is_limit": False, "measuring": "off"}
    put = await admin.put("/v1/links/eu-north/eu-west", json=body)
    assert put.status_code == 200
    told = put.json()
    assert {name: told[name] for name in body} == body
    assert (told["measuring_now"], told["last_test"]) == ("off", None)
    assert told["planned"]["capacity_from"] == told["planned"]["latency_from"] == "configured"
    assert told["planned"]["capacity_why"] == "as set: it is not measured"
    again = await admin.put("/v1/links/eu-north/eu-west", json={"capacity_bps": 5e9, "latency_s": 0.02})
    assert (again.json()["capacity_is_limit"], again.json()["measuring"]) == (True, None), (
        "the whole is put, not a part"
    )
    refused = await admin.put("/v1/links/eu-north/eu-west", json={**body, "measuring": "often"})
    assert (refused.status_code, refused.json()["errors"][0]["pointer"]) == (422, "/measuring")
