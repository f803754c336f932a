"""The least electricity of a job, by hand."""

from __future__ import annotations

from dataclasses import replace

import pytest

from scheduler.bench.alone import Option
from scheduler.bench.cheapest import cheapest_usd
from scheduler.bench.paper import paper_cluster, paper_scenario
from scheduler.bench.paper_jobs import drawn_jobs
from scheduler.bench.worlds import USUAL, Split
from scheduler.cluster import Region
from scheduler.errors import InvalidValueError
from scheduler.price import PriceSeries
from scheduler.replay.jobs import ReplayJob
from scheduler.spec.scenario import Scenario

HOUR_S = 3600.0
DEAR, CHEAP = "eu-west-1", "us-east-2"


def _scenario() -> Scenario:
    return paper_scenario("two", paper_cluster({DEAR: 16, CHEAP: 16}, 1.0, {}), USUAL, draw=0)


def _job(submit_s: float) -> ReplayJob:
    return replace(drawn_jobs(Split.TUNING, 0, 1, "all", USUAL)[0], submit_s=submit_s)


def test_with_static_prices_it_is_the_least_energy_in_the_cheapest_region() -> None:
    quick, sparing = Option(4, 1.5 * HOUR_S, 12.0), Option(2, 2 * HOUR_S, 10.0)
    usd = cheapest_usd(_scenario(), [_job(0.0), _job(100.0)], [(quick, sparing), (quick,)], 0.0)
    assert usd == pytest.approx((10.0 + 12.0) * 0.156)


def test_pue_counts() -> None:
    scenario = _scenario()
    regions = {DEAR: Region(DEAR), CHEAP: Region(CHEAP, pue=2.0)}
    scenario = replace(scenario, cluster=replace(scenario.cluster, regions=regions))
    usd = cheapest_usd(scenario, [_job(0.0)], [(Option(2, HOUR_S, 10.0),)], 0.0)
    assert usd == pytest.approx(10.0 * 0.295)


def test_it_may_wait_for_the_cheapest_hours() -> None:
    scenario = _scenario()
    hours = tuple(scenario.start_s + index * HOUR_S for index in range(6))
    prices = PriceSeries(hours, (0.5, 0.4, 0.1, 0.2, 0.9, 0.9), hours, hours[-1] + HOUR_S)
    scenario = replace(scenario, electricity={DEAR: prices, CHEAP: prices})
    option = Option(2, 2 * HOUR_S, 10.0)
    at_once = cheapest_usd(scenario, [_job(0.0)], [(option,)], 0.0)
    shifted = cheapest_usd(scenario, [_job(0.0)], [(option,)], 4 * HOUR_S)
    half_an_hour_in = cheapest_usd(scenario, [_job(HOUR_S / 2)], [(option,)], 0.0)
    assert at_once == pytest.approx(10.0 * (0.5 + 0.4) / 2)
    assert shifted == pytest.approx(10.0 * (0.1 + 0.2) / 2)
    assert half_an_hour_in == pytest.approx(10.0 * (0.5 / 2 + 0.4 + 0.1 / 2) / 2)
    with pytest.raises(InvalidValueError, match="prices"):
        cheapest_usd(scenario, [_job(0.0)], [(option,)], 5 * HOUR_S)
