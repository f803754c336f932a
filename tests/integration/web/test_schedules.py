"""The what-if of schedules on a job's page: asked for, told, drawn, and refused in words."""

from __future__ import annotations

import pytest
from playwright.sync_api import Page, expect

from tests.integration.web.conftest import Complaints
from tests.integration.web.fake_server import REGIONS, TOKEN, World, compared_schedules

pytestmark = [pytest.mark.browser, pytest.mark.xdist_group("browser")]


def open_job(page: Page, url: str, world: World) -> None:
    page.goto(f"{url}/#token={TOKEN}")
    expect(page.locator("[data-region]")).to_have_count(len(REGIONS))
    page.goto(f"{url}/#/jobs/{world.jobs[0]['job_id']}")
    expect(page.get_by_role("region", name="Schedules")).to_be_visible()


def test_schedules_are_compared_when_asked_for_and_one_is_drawn(
    page: Page, url: str, world: World, complaints: Complaints
) -> None:
    world.schedules = compared_schedules()
    open_job(page, url, world)
    section = page.get_by_role("region", name="Schedules")
    expect(section.locator("table")).to_have_count(0)
    section.get_by_role("button", name="Compare schedules").click()
    rows = section.locator("tbody tr")
    expect(rows).to_have_count(3)
    # The fastest that fits first, what does not fit last, however fast it is.
    assert [row.split()[0] for row in rows.all_inner_texts()] == ["auto", "1f1b", "gpipe"]
    expect(rows.nth(0)).to_contain_text("−10.0 %")
    expect(rows.nth(1)).to_contain_text("asked for")
    expect(rows.nth(2)).to_contain_text("no")
    expect(section.locator("[data-list=notes]")).to_contain_text("a multiple of 6")
    expect(section.locator("[data-advice=paci]")).to_contain_text("weights up to 1.88 block updates late")
    expect(section.locator("[data-advice=paci]")).to_contain_text("do not hold the whole model")
    boxes = section.locator("[data-picture=auto] svg rect.box")
    expect(boxes).to_have_count(3 * 8 * 3)
    assert boxes.first.evaluate("node => getComputedStyle(node).fill") != "rgb(0, 0, 0)"
    section.get_by_role("button", name="1f1b").click()
    expect(section.locator("[data-picture='1f1b']")).to_be_visible()
    assert complaints == Complaints()


def test_a_picture_brings_nothing_but_shapes(page: Page, url: str, world: World) -> None:
    world.schedules = compared_schedules()
    evil = "<script>window.hacked=1</script><image href='x' onerror='window.hacked=1'/><a href='x'><text>a</text></a>"
    told = world.schedules["picture"]["svg"].replace("</svg>", f"{evil}<rect onclick='x()' x='1'/></svg>")
    world.schedules["picture"]["svg"] = told
    open_job(page, url, world)
    page.get_by_role("button", name="Compare schedules").click()
    drawn = page.locator("[data-picture] svg")
    expect(drawn).to_be_visible()
    assert drawn.locator("script, style, image, a").count() == 0
    assert drawn.locator("[onclick]").count() == 0
    assert page.evaluate("window.hacked") is None


def test_a_refusal_is_told_and_the_page_goes_on(page: Page, url: str, world: World) -> None:
    open_job(page, url, world)
    page.get_by_role("button", name="Compare schedules").click()
    expect(page.get_by_role("alert")).to_contain_text("Conflict")
    expect(page.get_by_text("37 of 120 steps")).to_be_visible()
    world.schedules = compared_schedules()
    page.get_by_role("button", name="Compare schedules").click()
    expect(page.locator("[data-picture] svg")).to_be_visible()


@pytest.mark.parametrize(("width", "scheme"), [(1280, "light"), (400, "dark")])
def test_nothing_hangs_over_the_edge(page: Page, url: str, world: World, width: int, scheme: str) -> None:
    world.schedules = compared_schedules()
    page.set_viewport_size({"width": width, "height": 800})
    page.emulate_media(color_scheme="dark" if scheme == "dark" else "light")
    open_job(page, url, world)
    page.get_by_role("button", name="Compare schedules").click()
    expect(page.locator("[data-picture] svg")).to_be_visible()
    assert page.evaluate("document.documentElement.scrollWidth") <= width
