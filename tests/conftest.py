"""What every test may ask for: the real data, a database of its own, a Redis, a browser, gangs of stage workers.

What is missing is skipped with its reason; under CI it fails instead, so that nothing is left out unseen.
"""

from __future__ import annotations

import os
import shutil
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import structlog

if TYPE_CHECKING:
    from tests.gangs import Gangs, Zygote

# Tests with processes of their own must not fight over the cores.
os.environ.setdefault("OMP_NUM_THREADS", "1")


@pytest.fixture(autouse=True)
def logging_of_its_own() -> Iterator[None]:
    """A command that sets up the log does so for its test alone: its standard error is gone afterwards."""
    before = structlog.get_config()
    yield
    structlog.configure(**before)


def missing(reason: str) -> None:
    """Skip, or fail where everything must run."""
    if os.environ.get("CI"):
        pytest.fail(reason)
    pytest.skip(reason)


@pytest.fixture(scope="session")
def data_dir() -> Path:
    """The folder with `data/`, `oracles/` and `scenarios/`: real data that the project does not ship."""
    folder = os.environ.get("BACE_DATA_DIR")
    if not folder:
        pytest.skip("BACE_DATA_DIR is not set: the real data are not here")
    return Path(folder)


@pytest.fixture
def postgres_url() -> Iterator[str]:
    """The URL of a fresh, empty PostgreSQL database, dropped afterwards."""
    server = os.environ.get("BACE_TEST_POSTGRES_URL")
    if not server:
        missing("BACE_TEST_POSTGRES_URL is not set: no PostgreSQL to test on")
    assert server is not None
    import sqlalchemy

    name = f"bace_test_{uuid.uuid4().hex[:12]}"
    admin = sqlalchemy.create_engine(server, isolation_level="AUTOCOMMIT", poolclass=sqlalchemy.NullPool)
    with admin.connect() as connection:
        connection.execute(sqlalchemy.text(f'CREATE DATABASE "{name}"'))
    try:
        yield sqlalchemy.engine.make_url(server).set(database=name).render_as_string(hide_password=False)
    finally:
        with admin.connect() as connection:
            connection.execute(sqlalchemy.text(f'DROP DATABASE IF EXISTS "{name}" WITH (FORCE)'))
        admin.dispose()


@pytest.fixture
def redis_url() -> str:
    """The URL of a Redis database that only tests of this process use: that which is named, or one that follows it."""
    url = os.environ.get("BACE_TEST_REDIS_URL")
    if not url:
        missing("BACE_TEST_REDIS_URL is not set: no Redis to test on")
    assert url is not None
    server, _, number = url.rpartition("/")
    process = int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw"))
    return f"{server}/{(int(number) + process) % 16}"


@pytest.fixture(scope="session")
def zygote() -> Iterator[Zygote]:
    """The process that forks the stage workers of all tests."""
    from tests.gangs import Zygote

    process = Zygote()
    yield process
    process.close()


@pytest.fixture
def gangs(zygote: Zygote, tmp_path: Path) -> Iterator[Gangs]:
    """Starts gangs of stage workers, and ends those that are left."""
    from tests.gangs import Gangs

    all_gangs = Gangs(zygote, tmp_path)
    yield all_gangs
    all_gangs.close()


@pytest.fixture(scope="session")
def chromium() -> str:
    """Path of a Chromium to look at pages with."""
    for name in ("chromium", "chromium-browser", "google-chrome"):
        path = shutil.which(name)
        if path:
            return path
    missing("no Chromium on the PATH: pages cannot be looked at")
    raise AssertionError


@pytest.fixture(scope="session")
def promtool() -> str:
    """Path of promtool, to test alert rules with."""
    path = shutil.which("promtool")
    if not path:
        missing("no promtool on the PATH (Debian's package prometheus): rules cannot be tested")
    assert path is not None
    return path
