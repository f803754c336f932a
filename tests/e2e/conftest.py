"""A world of real processes for every test that asks for one."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e.world import REGIONS, World


@pytest.fixture
def world(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[World]:
    """A server that knows three regions, their links and prices; no agent yet. Settings by indirect parameter."""
    made = World(tmp_path, getattr(request, "param", {}))
    try:
        made.start_server()
        for region in REGIONS:
            made.put(f"/v1/regions/{region}", {"pue": 1.2, "uplink_bps": 40e9, "downlink_bps": 40e9})
        for src in REGIONS:
            for dst in REGIONS:
                if src != dst:
                    made.put(f"/v1/links/{src}/{dst}", {"capacity_bps": 25e9, "latency_s": 0.005})
                    made.put("/v1/prices", {"kind": "egress", "region": src, "dst": dst, "value": 0.02})
        for region in REGIONS:
            made.put("/v1/prices", {"kind": "electricity", "region": region, "value": 0.1})
        yield made
    finally:
        made.end()
