"""The dashboard in a real browser: it shows what the API tells, safely, at any width, from this server alone."""

from __future__ import annotations

import re

import pytest
from playwright.sync_api import Page, expect

from tests.integration.web.conftest import Complaints
from tests.integration.web.fake_server import REGIONS, TOKEN, World

pytestmark = [pytest.mark.browser, pytest.mark.xdist_group("browser")]


def sign_in(page: Page, url: str, path: str = "") -> None:
    page.goto(f"{url}/#token={TOKEN}")
    expect(page.locator("[data-region]")).to_have_count(len(REGIONS))
    if path:
        page.goto(f"{url}/{path}")


def job_path(world: World) -> str:
    return f"#/jobs/{world.jobs[0]['job_id']}"


def test_overview_shows_regions_prices_queue_and_jobs(page: Page, url: str, complaints: Complaints) -> None:
    sign_in(page, url)
    for name, value in REGIONS.items():
        card = page.locator(f"[data-region={name}]")
        expect(card).to_contain_text(f"${value:.4f}")
        expect(card.locator(".spark")).to_be_visible()
    expect(page.locator("[data-region=paris] .slots i.used")).to_have_count(2)
    queue = page.get_by_role("region", name="Queue")
    expect(queue).to_contain_text("GpusExhausted")
    expect(queue).to_contain_text("12 are needed")
    running = page.get_by_role("region", name="Running")
    expect(running.locator(".chain .block")).to_have_text(["paris · 2", "frankfurt · 1"])
    expect(page.locator(".gantt rect.span")).to_have_count(2)
    expect(page.locator(".network .flow")).to_have_count(1)
    assert complaints == Complaints()


def test_job_page_shows_chain_loss_step_time_cost_and_log(
    page: Page, url: str, world: World, complaints: Complaints
) -> None:
    sign_in(page, url, job_path(world))
    expect(page.locator("[data-chain]")).to_have_attribute("data-chain", "paris:2>frankfurt:1")
    expect(page.locator(".segment").first).to_contain_text("$0.0900 /kWh")
    crossing = page.locator(".crossing")
    expect(crossing).to_contain_text("2 Gbit/s")
    expect(crossing).to_contain_text("4.5 ms")
    expect(page.locator("[data-chart=loss] canvas")).to_be_visible()
    expect(page.locator("[data-chart=step-time] canvas")).to_be_visible()
    expect(page.get_by_role("region", name="Cost so far")).to_contain_text("frankfurt")
    expect(page.locator(".log")).to_contain_text("step 37 done")
    expect(page.get_by_text("840 ms", exact=True)).to_be_visible()
    assert complaints == Complaints()


def test_job_page_shows_the_gradient_norm_of_jobs_that_have_one(page: Page, url: str, world: World) -> None:
    sign_in(page, url, job_path(world))
    expect(page.locator("[data-chart=gradient-norm] canvas")).to_be_visible()
    expect(page.get_by_text("Gradient norm", exact=True)).to_have_count(2)
    expect(page.get_by_text("0.840", exact=True)).to_be_visible()

    world.jobs[0] |= {"last_grad_norm": None}
    world.steps = [{**step, "grad_norm": None} for step in world.steps]
    page.reload()

    expect(page.locator("[data-chart=loss] canvas")).to_be_visible()
    expect(page.get_by_text("Gradient norm")).to_have_count(0)


def test_job_page_tells_drift_where_stages_update_within_a_step(page: Page, url: str, world: World) -> None:
    sign_in(page, url, job_path(world))
    expect(page.get_by_text("Completion time")).to_be_visible()
    expect(page.get_by_text("Drift", exact=True)).to_have_count(0)

    world.jobs[0] |= {"drift": 3, "drift_bound": 5, "rolled_back": 2}
    page.reload()

    expect(page.get_by_text("Drift", exact=True)).to_be_visible()
    expect(page.get_by_text("3 of 5", exact=True)).to_be_visible()
    expect(page.get_by_text("updates between a forward and its backward · 2 taken back")).to_be_visible()


def test_what_happens_on_the_server_appears_without_reloading(page: Page, url: str, world: World) -> None:
    sign_in(page, url, job_path(world))
    expect(page.get_by_text("37 of 120 steps")).to_be_visible()
    job = world.jobs[0]
    world.jobs[0] = {**job, "state": "succeeded", "reported_steps": 120}
    world.events.append({**world.events[-1], "seq": 3, "kind": "job.succeeded"})
    expect(page.get_by_text("120 of 120 steps")).to_be_visible()
    expect(page.locator(".job-title .state-succeeded")).to_be_visible()
    expect(page.locator(".events")).to_contain_text("job.succeeded")


def test_failed_job_shows_its_reason_and_the_last_lines(page: Page, url: str) -> None:
    sign_in(page, url, "#/jobs/job-01failed")
    notice = page.locator(".notice")
    expect(notice).to_contain_text("stage 1 ended with exit code 1")
    expect(notice).to_contain_text("ValueError: no such corpus")


EVIL = "<img src=x onerror=window.hacked=1><script>window.hacked=1</script>"


@pytest.mark.parametrize("path", ["", "job", "#/timeline", "#/events"])
def test_text_of_users_and_workers_is_never_markup(page: Page, url: str, world: World, path: str) -> None:
    for job in world.jobs:
        job["name"] = EVIL
        job["why"] = EVIL
        job["reasons"] = [{"code": EVIL, "detail": EVIL, "stage": 0, "last_lines": [EVIL]}]
        for allocation in job["allocations"]:
            allocation["job_name"] = EVIL
    for line in world.log:
        line["text"] = EVIL
    world.events[0]["kind"] = EVIL.replace(" ", "")
    world.events[1]["data"] = {"from": EVIL, "to": EVIL}
    sign_in(page, url, job_path(world) if path == "job" else path)
    expect(page.locator("#main")).to_contain_text("<img src=x onerror=")
    assert page.evaluate("window.hacked") is None
    assert page.locator("#main img, #main script").count() == 0


def test_the_token_leaves_the_address_and_lives_in_this_tab_alone(page: Page, url: str) -> None:
    sign_in(page, url)
    assert TOKEN not in page.url
    assert page.evaluate("Object.values(localStorage)") == []
    assert page.evaluate("document.cookie") == ""
    page.reload()
    expect(page.locator("[data-region]")).to_have_count(len(REGIONS))
    page.get_by_role("button", name="Sign out").click()
    expect(page.get_by_role("heading", name="Sign in")).to_be_visible()
    assert page.evaluate("Object.values(sessionStorage)") == []


def test_a_wrong_token_is_refused_and_the_box_asks_again(page: Page, url: str) -> None:
    page.goto(url)
    page.get_by_label("Token").fill("bace_wrong")
    page.get_by_role("button", name="Sign in").click()
    expect(page.get_by_role("alert")).to_be_visible()
    page.get_by_label("Token").fill(TOKEN)
    page.get_by_role("button", name="Sign in").click()
    expect(page.locator("[data-region]")).to_have_count(len(REGIONS))


@pytest.mark.parametrize(("width", "scheme"), [(1280, "light"), (400, "dark")])
def test_nothing_hangs_over_the_edge(page: Page, url: str, world: World, width: int, scheme: str) -> None:
    page.set_viewport_size({"width": width, "height": 800})
    page.emulate_media(color_scheme="dark" if scheme == "dark" else "light")
    for path in ("", job_path(world), "#/jobs", "#/timeline", "#/events"):
        sign_in(page, url, path)
        expect(page.locator("#main > *").first).to_be_visible()
        assert page.evaluate("document.documentElement.scrollWidth") <= width
    assert page.evaluate("document.documentElement.dataset.theme") == scheme


def test_the_page_may_load_nothing_but_its_own_assets(page: Page, url: str) -> None:
    for path in ("/", "/assets/main.js", "/assets/vendor/uPlot.iife.min.js"):
        answer = page.request.get(url + path)
        assert answer.ok
        assert answer.headers["content-security-policy"].startswith("default-src 'self';")
        assert answer.headers["x-content-type-options"] == "nosniff"
    assert not re.search(r"<script(?![^>]*src=)|style=|https?://", page.request.get(url).text())
    assert page.request.get(url + "/assets/../router.py").status == 404


def test_a_full_link_is_a_warning_and_a_finished_job_is_not(page: Page, url: str, world: World) -> None:
    world.jobs[0] = {**world.jobs[0], "state": "succeeded", "reported_steps": 120, "finished_at_s": 1.8e9}
    world.links[0]["reserved_bps"] = world.links[0]["capacity_bps"]
    sign_in(page, url)
    expect(page.get_by_role("region", name="Lately ended")).to_contain_text("120/120")
    expect(page.get_by_role("region", name="Links").locator("rect.fill.high")).to_have_count(1)
    expect(page.locator("rect.fill.high")).to_have_count(1)
    page.goto(f"{url}/{job_path(world)}")
    expect(page.get_by_text("120 of 120 steps")).to_be_visible()
    expect(page.locator("rect.fill.high")).to_have_count(0)


def test_a_link_tells_what_was_set_and_measured_and_why_planning_goes_by_it(
    page: Page, url: str, world: World
) -> None:
    never = {**world.links[1], "measured": dict.fromkeys(world.links[1]["measured"])}
    never["planned"] = {**never["planned"], "capacity_why": "as set: not measured yet"}
    world.links[:] = [world.links[0], never]
    sign_in(page, url)
    links = page.get_by_role("region", name="Links")
    expect(links.get_by_title("measured 5.6 Gbit/s, 2h 33m ago; more was measured")).to_have_count(1)
    expect(links.get_by_title("set 5 Gbit/s; not measured; as set: not measured yet")).to_have_count(1)
    expect(links.get_by_title("set 10 ms")).to_have_count(2)
