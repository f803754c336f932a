"""What an agent is told: complete, free of contradictions, and every mistake named with what would be right."""

from __future__ import annotations

from pathlib import Path

import pytest

from agents.errors import SettingsError
from agents.settings import (
    NodeOptions,
    complete_nodes,
    node_options,
    nodes_from_file,
    parse_memory,
    parse_ports,
)

GENERAL = NodeOptions(region="eu", cpu_slots=2, address="10.0.0.1")


def test_nodes_of_one_agent_share_the_ports_out() -> None:
    nodes = complete_nodes(
        NodeOptions(region="eu", cpu_slots=2, ports="29500-29599"),
        [NodeOptions(name="a"), NodeOptions(name="b", ports="30000-30009"), NodeOptions(name="c")],
    )
    assert [(node.node_id, node.port_first, node.port_last) for node in nodes] == [
        ("a", 29500, 29549),
        ("b", 30000, 30009),
        ("c", 29550, 29599),
    ]


def test_a_node_overrides_what_was_said_for_all() -> None:
    (node,) = complete_nodes(GENERAL, [NodeOptions(name="a", region="us", memory="2GiB")])
    assert (node.region, node.options.cpu_slots, node.memory_bytes) == ("us", 2, 2 * 2**30)


@pytest.mark.parametrize(
    ("nodes", "named", "expected"),
    [
        ([NodeOptions(name="a"), NodeOptions(name="a")], "--node", "every node once"),
        (
            [NodeOptions(name="a", ports="2000-2010"), NodeOptions(name="b", ports="2010-2020")],
            "--ports",
            "apart",
        ),
        ([NodeOptions()], "--node", "a name for every node"),
        ([NodeOptions(name="a", devices=(0,))], "--cpu-slots", "either"),
        ([NodeOptions(name="a", power_w=5, idle_w=6)], "--idle-w", "at most the 5"),
        ([NodeOptions(name="a", memory="lots")], "--memory", "4GB"),
    ],
)
def test_contradictions_are_named(nodes: list[NodeOptions], named: str, expected: str) -> None:
    with pytest.raises(SettingsError, match=expected) as wrong:
        complete_nodes(GENERAL, nodes)
    assert wrong.value.option == named


def test_a_region_is_needed_and_so_are_ports_for_all() -> None:
    with pytest.raises(SettingsError, match="--region"):
        complete_nodes(NodeOptions(cpu_slots=1), [NodeOptions(name="a")])
    with pytest.raises(SettingsError, match="at least one port for each of the 3 nodes"):
        complete_nodes(
            NodeOptions(region="eu", cpu_slots=1, ports="2000-2001"), [NodeOptions(name=n) for n in "abc"]
        )


def test_two_nodes_never_share_a_gpu() -> None:
    apart = [NodeOptions(name="a", devices=(0, 1)), NodeOptions(name="b", devices=(2,))]
    assert len(complete_nodes(NodeOptions(region="eu"), apart)) == 2
    for devices in ((1, 2), None):
        with pytest.raises(SettingsError, match="GPUs of node b apart"):
            complete_nodes(NodeOptions(region="eu"), [apart[0], NodeOptions(name="b", devices=devices)])


@pytest.mark.parametrize("text", ["29500", "29600-29500", "80-90", "60000-70000", "a-b", ""])
def test_ports_that_cannot_be_meant(text: str) -> None:
    with pytest.raises(SettingsError, match="FIRST-LAST"):
        parse_ports(text)


@pytest.mark.parametrize(("text", "size"), [("4GB", 4e9), ("1.5 GiB", 1.5 * 2**30), ("1000", 1000.0)])
def test_memory(text: str, size: float) -> None:
    assert parse_memory(text) == size


@pytest.mark.parametrize("text", ["0", "-1GB", "1PB", "nan", "GB"])
def test_memory_that_cannot_be_meant(text: str) -> None:
    with pytest.raises(SettingsError, match="--memory"):
        parse_memory(text)


@pytest.mark.parametrize(
    ("field", "value"),
    [("name", "../x"), ("region", "EU West"), ("cpu_slots", 0), ("power_w", float("nan")), ("colour", "red")],
)
def test_a_field_that_cannot_be_meant_is_named(field: str, value: object) -> None:
    with pytest.raises(SettingsError, match=rf"nodes\[3\]\.{field}"):
        node_options({field: value}, "nodes[3]")


def test_a_file_of_nodes(tmp_path: Path) -> None:
    file = tmp_path / "nodes.yaml"
    file.write_text("nodes:\n- {name: a, devices: [0, 1]}\n- {name: b, region: us-1, ports: 2000-2010}\n")
    assert nodes_from_file(file) == [
        NodeOptions(name="a", devices=(0, 1)),
        NodeOptions(name="b", region="us-1", ports="2000-2010"),
    ]


@pytest.mark.parametrize(
    "content", ["", "nodes: []", "- a", "nodes: [1]", "a: [", "nodes: [{name: a}]\nmore: 1", "\xff"]
)
def test_a_file_that_cannot_be_meant_is_named(content: str, tmp_path: Path) -> None:
    file = tmp_path / "nodes.yaml"
    file.write_text(content, encoding="latin-1")
    with pytest.raises(SettingsError, match=str(file)):
        nodes_from_file(file)
