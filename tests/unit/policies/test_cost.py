"""Energy and money, against figures worked out by hand."""

import pytest

from scheduler import cost
from scheduler.cluster import GpuType
from scheduler.errors import InvalidValueError
from scheduler.job import Schedule
from scheduler.placement import Cut, Placement, Segment
from scheduler.price import PriceSeries

A = GpuType("a", 1e12, 1e9, power_w=400.0, idle_w=60.0)
B = GpuType("b", 1e12, 1e9, power_w=300.0, idle_w=300.0)


def test_a_gpu_draws_idle_power_and_the_rest_by_how_busy_it_is():
    assert cost.power_w(A, 0.0) == 60.0
    assert cost.power_w(A, 0.5) == 230.0
    assert cost.power_w(A, 1.0) == 400.0
    assert cost.power_w(B, 0.2) == 300.0


@pytest.mark.parametrize("fraction", [-0.1, 1.1, float("nan")])
def test_a_busy_fraction_outside_0_to_1_is_refused(fraction):
    with pytest.raises(InvalidValueError, match="busy_fraction"):
        cost.power_w(A, fraction)


def test_a_segment_draws_the_mean_of_its_stages():
    placement = Placement(
        (Segment("x", "a", 2, 4), Segment("y", "b", 1, 4)),
        (Cut("x", "y", 1.0, 0.0),),
        Schedule.ONE_F_ONE_B,
        (3, 2, 1),
    )
    powers = cost.segment_powers_w(placement, (1.0, 0.5, 0.9), {"a": A, "b": B})
    assert powers == pytest.approx((315.0, 300.0))
    with pytest.raises(InvalidValueError, match="one for each of 3 stages"):
        cost.segment_powers_w(placement, (1.0, 0.5), {"a": A, "b": B})


def test_electricity_is_the_integral_of_the_price_over_the_hours_with_pue():
    hours = PriceSeries((0.0, 3600.0, 7200.0), (0.10, -0.05, 0.30), (0.0, 0.0, 0.0))
    kilowatts = cost.facility_kw(8, 400.0, 1.25)
    assert kilowatts == pytest.approx(4.0)
    # Half an hour at 0.10, an hour at −0.05, half an hour at 0.30.
    assert cost.electricity_usd(hours, 1800.0, 9000.0, kilowatts) == pytest.approx(
        4.0 * (0.5 * 0.10 - 1.0 * 0.05 + 0.5 * 0.30)
    )
    assert cost.energy_kwh(kilowatts, 7200.0) == pytest.approx(8.0)
    assert cost.electricity_usd_per_hour(0.1, kilowatts) == pytest.approx(0.4)


def test_rent_is_by_the_gpu_hour_and_egress_by_the_gigabyte():
    assert cost.rent_usd(16, 5400.0, 2.0) == pytest.approx(48.0)
    assert cost.egress_bytes_per_iteration(5e6, 64) == pytest.approx(3.2e8)
    assert cost.egress_usd(3.2e9, 0.09) == pytest.approx(0.288)
