"""The description of a bed, its lines, and what the demonstration makes of a scenario."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from scheduler.spec.scenario import load_scenario
from service.cli import wan_demo
from service.cli.examples import example
from service.cli.exits import CommandError, Exit
from service.cli.testbed.network import Link, Network, NetworkError, network_from, network_from_file
from service.cli.testbed.relay import DelayLine

LINK = {"src": "a", "dst": "b", "latency_ms": 10, "mbps": 5}
BACK = {**LINK, "src": "b", "dst": "a"}


def test_a_file_gives_both_directions_of_a_link_their_own_figures(tmp_path: Path) -> None:
    path = tmp_path / "bed.yaml"
    path.write_text(
        "regions: [a, b]\n"
        "links:\n"
        "  - {src: a, dst: b, latency_ms: 10, mbps: 5}\n"
        "  - {src: b, dst: a, latency_ms: 20, mbps: 2.5}\n"
    )
    network = network_from_file(path)
    assert network.pairs == (
        (
            Link(src="a", dst="b", latency_ms=10, mbps=5),
            Link(src="b", dst="a", latency_ms=20, mbps=2.5),
        ),
    )


@pytest.mark.parametrize(
    ("document", "told"),
    [
        ({"regions": []}, "regions: .*at least 1"),
        ({"regions": ["a", "a"]}, "each name may stand there once"),
        ({"regions": ["a", "../b"]}, "regions.1: .*pattern"),
        ({"regions": ["a"], "links": [LINK, BACK]}, "a to b: a link joins two different ones"),
        ({"regions": ["a", "b"], "links": [LINK]}, "a to b has no link back"),
        ({"regions": ["a", "b"], "links": [LINK, LINK, BACK]}, "stands there twice"),
        ({"regions": ["a", "b"], "links": [{**LINK, "mbps": 0}, BACK]}, "links.0.mbps: .*got 0"),
        (
            {"regions": ["a", "b"], "links": [{**LINK, "latency_ms": -1}, BACK]},
            "links.0.latency_ms: .*got -1",
        ),
        ("nonsense", "document: .*got 'nonsense'"),
        (object(), "document: "),
    ],
)
def test_a_wrong_description_names_the_field_and_what_would_be_right(document: Any, told: str) -> None:
    with pytest.raises(NetworkError, match=told):
        network_from(document)


def test_a_line_keeps_order_bandwidth_and_latency(monkeypatch: pytest.MonkeyPatch) -> None:
    now_s = 100.0
    monkeypatch.setattr("service.cli.testbed.relay.time.monotonic", lambda: now_s)
    (source, giving), (taking, target) = pipe(), pipe()
    line = DelayLine(source, target, latency_s=0.5, seconds_a_byte=0.01)
    os.write(giving, b"x" * 100)
    line.take()  # occupies the line until 101, arrives at 101.5
    now_s = 100.2
    os.write(giving, b"y" * 50)
    line.take()  # waits for the line until 101, occupies it until 101.5, arrives at 102
    assert line.hand_on() == pytest.approx(101.5)
    now_s = 101.6
    assert line.hand_on() == pytest.approx(102.0)
    assert os.read(taking, 1000) == b"x" * 100
    now_s = 102.0
    assert line.hand_on() == float("inf")
    assert os.read(taking, 1000) == b"y" * 50
    for file in (source, giving, taking, target):
        os.close(file)


def pipe() -> tuple[int, int]:
    ends = os.pipe()
    os.set_blocking(ends[0], False)
    return ends


def test_the_demonstration_needs_root(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(wan_demo.os, "geteuid", lambda: 1000)
    with pytest.raises(CommandError, match=r"lacks .*root") as caught:
        wan_demo.run_wan_demo(None, None, tmp_path / "result.json")
    assert caught.value.exit_code is Exit.USAGE


def test_the_demonstration_builds_the_links_that_the_server_is_told() -> None:
    scenario = load_scenario(example(wan_demo.SCENARIO))
    network = wan_demo.network_of(scenario)
    assert {(link.src, link.dst) for link in network.links} == set(scenario.cluster.links)
    for link in network.links:
        told = scenario.cluster.links[link.src, link.dst]
        assert (link.latency_ms, link.mbps) == (told.latency_s * 1e3, told.capacity_bps / 1e6)


def test_links_carry_what_a_placement_was_granted_in_both_directions() -> None:
    class Recorder:
        network = Network(
            regions=("a", "b", "c"),
            links=tuple(
                Link(src=src, dst=dst, latency_ms=10, mbps=50) for src in "abc" for dst in "abc" if src != dst
            ),
        )
        changed: list[Link] = []  # noqa: RUF012

        def change(self, link: Link) -> None:
            self.changed.append(link)

    bed = Recorder()
    wan_demo.grant(bed, {"cuts": [{"src": "b", "dst": "a", "bandwidth_bps": 12_000_000}]})  # type: ignore[arg-type]
    assert bed.changed == [
        Link(src="a", dst="b", latency_ms=10, mbps=12),
        Link(src="b", dst="a", latency_ms=10, mbps=12),
    ]
