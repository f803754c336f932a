"""A browser for all tests of the dashboard, and a fresh fake server for each."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass, field

import pytest
from playwright.sync_api import Browser, Page, sync_playwright

from tests.integration.web.fake_server import World, serving, training_world


@pytest.fixture(scope="module")
def browser(chromium: str) -> Iterator[Browser]:
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=chromium, args=["--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"]
        )
        yield browser
        browser.close()


@dataclass
class Complaints:
    """What a page wrote to the console as errors, and what it asked of other hosts."""

    errors: list[str] = field(default_factory=list)
    outside: list[str] = field(default_factory=list)


@pytest.fixture
def world() -> World:
    return training_world(time.time())


@pytest.fixture
def url(world: World) -> Iterator[str]:
    with serving(world) as address:
        yield address


@pytest.fixture
def complaints() -> Complaints:
    return Complaints()


@pytest.fixture
def page(browser: Browser, url: str, complaints: Complaints) -> Iterator[Page]:
    """A page at 1280 pixels, in a context of its own; everything it complains about is kept."""
    context = browser.new_context(viewport={"width": 1280, "height": 900}, color_scheme="light")
    page = context.new_page()
    page.set_default_timeout(20_000)
    page.on("console", lambda message: message.type == "error" and complaints.errors.append(message.text))
    page.on("pageerror", lambda error: complaints.errors.append(str(error)))
    page.on("request", lambda request: request.url.startswith(url) or complaints.outside.append(request.url))
    yield page
    context.close()
