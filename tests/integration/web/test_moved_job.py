"""A job that a plan has moved, as the dashboard shows it: where it goes on, and why its generations ended."""

from __future__ import annotations

import pytest
from playwright.sync_api import Page, expect

from service.api.schemas.placements import PROMISED
from tests.integration.web.conftest import Complaints
from tests.integration.web.fake_server import REGIONS, TOKEN, World

pytestmark = [pytest.mark.browser, pytest.mark.xdist_group("browser")]


def test_a_moved_job_shows_where_it_goes_on_and_why_it_was_stopped(
    page: Page, url: str, world: World, complaints: Complaints
) -> None:
    job = world.jobs[0]
    placement = {
        **PROMISED["placement"],
        "segments": [{"region": "london", "gpu_type": "cpu-slot", "stages": 3, "gpus_per_stage": 1}],
        "cuts": [],
    }
    why = "3 stages of at most 6 over london:3: <b>cheap</b> at night"
    (first,) = job["allocations"]
    stopped = {**first, "state": "stopping", "stop_cause": "moved", "stop_why": f"moved to london:3: {why}"}
    world.jobs[0] = {
        **job,
        "state": "stopping",
        "promised": {**PROMISED, "placement": placement, "why": why},
        "allocations": [stopped],
    }
    world.events.append(
        {**world.events[-1], "seq": 3, "kind": "job.promised", "data": {"chain": "london:3", "why": why}}
    )
    page.goto(f"{url}/#token={TOKEN}")
    expect(page.locator("[data-region]")).to_have_count(len(REGIONS))
    page.goto(f"{url}/#/jobs/{job['job_id']}")
    goes_on = page.get_by_role("region", name="Goes on here")
    expect(goes_on.locator("[data-chain]")).to_have_attribute("data-chain", "london:3")
    expect(goes_on).to_contain_text(why)
    expect(page.locator("[data-list=stops] li")).to_have_text([f"generation 1: moved to london:3: {why}"])
    expect(page.locator(".events")).to_contain_text("london:3")
    assert complaints == Complaints()
