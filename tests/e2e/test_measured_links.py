"""Real agents measure the link between their regions, and leave it alone while a job needs it."""

from __future__ import annotations

import pytest

from tests.e2e.world import Document, World, small_job

pytestmark = [pytest.mark.e2e, pytest.mark.xdist_group("e2e"), pytest.mark.timeout(240)]

MEASURING = {
    "BACE_LINK_MEASURING": "bandwidth",
    "BACE_LINK_BANDWIDTH_INTERVAL_S": "1",
    "BACE_LINK_LATENCY_INTERVAL_S": "1",
    "BACE_LINK_TEST_BYTES": "2000000",
}
ENDS = ("eu-west-2", "eu-west-3")


def links_of(world: World) -> list[Document]:
    """Both directions between the two regions that have agents."""
    return [link for link in world.get("/v1/links")["items"] if {link["src"], link["dst"]} == set(ENDS)]


def last_tests(world: World) -> list[Document]:
    return [link["last_test"] for link in links_of(world) if link["last_test"]]


@pytest.mark.parametrize("world", [MEASURING], indirect=True)
def test_links_are_measured_and_gone_by_and_left_alone_while_a_job_needs_them(world: World) -> None:
    for number, region in enumerate(ENDS):
        # All of 127.0.0.0/8 is this machine, and to agents these are two.
        world.start_agent(f"node-{number}", region, 2, address=f"127.0.0.{number + 2}")
    found = world.until(
        "both directions are measured",
        lambda: [
            test for test in last_tests(world) if (test["kind"], test["outcome"]) == ("bandwidth", "done")
        ][1:],
        120,
    )
    assert found[0]["sent_bytes"] == 2_000_000
    assert found[0]["is_floor"], "loopback is not full after so little"
    for link in links_of(world):
        assert link["planned"]["latency_from"] == "measured"
        assert link["planned"]["latency_s"] < link["latency_s"] == 0.005
        assert link["planned"]["capacity_from"] == "configured", "a floor is not gone by"

    job = small_job("wide", training={"steps": 100_000})
    job_id = world.post("/v1/jobs", job)["job_id"]
    world.until("it runs", lambda: world.job(job_id)["state"] == "running", 90)
    assert {part["region"] for part in world.job(job_id)["chain"]} == set(ENDS)
    world.until(
        "round trips alone are measured",
        lambda: [
            test for test in last_tests(world) if (test["kind"], test["outcome"]) == ("latency", "done")
        ],
        60,
    )
    world.post(f"/v1/jobs/{job_id}/cancel", {})
    world.until(
        "bytes are sent again",
        lambda: any(test["kind"] == "bandwidth" and test["age_s"] < 1.0 for test in last_tests(world)),
        90,
    )
