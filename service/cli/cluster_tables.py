"""Regions, nodes, links, prices and tokens as people read them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from rich.console import RenderableType
from rich.text import Text

from scheduler.units import format_bandwidth, format_bytes, format_duration, format_time, format_usd
from service.cli.output import printable, table
from service.cli.states import state_text

Document = dict[str, Any]


def regions_table(regions: list[Document]) -> Iterator[RenderableType]:
    """One line for every pool of every region; regions without a pool have one of their own."""
    rows: list[list[object]] = []
    for region in regions:
        shared = [
            _price(region["electricity_usd_per_kwh"]),
            f"{region['pue']:g}",
            _bound(region["uplink_bps"]),
            _bound(region["downlink_bps"]),
        ]
        for pool in region["pools"] or [None]:
            gpus = region["gpus"] if pool is None else pool["gpus"]
            kind = None if pool is None else pool["gpu_type"]
            owner = None if pool is None else _ownership(pool)
            counts = [gpus["used"], gpus["free"], gpus["unavailable"], gpus["total"]]
            rows.append([region["region"], kind, *counts, owner, *shared])
    yield table(
        [
            "REGION",
            "GPU",
            ">USED",
            ">FREE",
            ">UNAVAILABLE",
            ">TOTAL",
            "OWNERSHIP",
            ">$/KWH",
            ">PUE",
            ">UPLINK",
            ">DOWNLINK",
        ],
        rows,
        empty="No regions. An agent brings its own: `bace agent --region …`.",
    )


def nodes_table(nodes: list[Document]) -> Iterator[RenderableType]:
    """The hosts, what one of their GPUs sustains and how old that figure is, and when they were last heard of."""
    yield table(
        [
            "NODE",
            "REGION",
            "STATE",
            "GPU",
            ">USED",
            ">GPUS",
            ">SUSTAINED",
            ">MEASURED",
            ">HEARD",
            "ADDRESS",
            "PORTS",
        ],
        [
            [
                node["node_id"],
                node["region"],
                state_text(node["state"]),
                node["gpu_type"],
                node["used_gpus"],
                node["gpus"],
                format_flops(node["sustained_flops"]),
                _ago(node["measured_age_s"]),
                _ago(node["heartbeat_age_s"]),
                node["address"],
                f"{node['port_first']}–{node['port_last']}",
            ]
            for node in nodes
        ],
        empty="No nodes have joined. On a GPU node: `bace agent --region …`.",
    )


def drained_page(drained: Document) -> Iterator[RenderableType]:
    """A node that was drained, and what becomes of the jobs on it."""
    yield from nodes_table([drained["node"]])
    if drained["restarting"]:
        yield f"Restarting elsewhere from their checkpoints: {', '.join(drained['restarting'])}"
    if drained["staying"]:
        yield f"May not be restarted and stay until they end: {', '.join(drained['staying'])}"


def links_table(links: list[Document]) -> Iterator[RenderableType]:
    """The directed links as planning takes them and how much of them is held; below, what was set and measured of
    those that agents measure."""
    yield table(
        ["FROM", "TO", ">CAPACITY", ">HELD", ">USE", ">ONE WAY", ">EGRESS $/GB"],
        [
            [
                link["src"],
                link["dst"],
                format_bandwidth(planned["capacity_bps"]),
                format_bandwidth(link["reserved_bps"]),
                f"{link['reserved_bps'] / planned['capacity_bps']:.0%}" if planned["capacity_bps"] else None,
                format_duration(planned["latency_s"]),
                None if link["egress_usd_per_gb"] is None else f"{link['egress_usd_per_gb']:g}",
            ]
            for link in links
            for planned in [link["planned"]]
        ],
        empty="No links between regions.",
    )
    measured = [link for link in links if link["measuring_now"] != "off" or link["last_test"]]
    if any(link["last_test"] for link in measured):
        yield Text("\nMeasured by agents", "bold")
        yield _measured_table(measured)


def link_page(link: Document) -> Iterator[RenderableType]:
    """One link: what planning goes by and why, and the measurement that ended last."""
    yield from links_table([{**link, "last_test": None}])
    yield _measured_table([link])
    planned, test = link["planned"], link["last_test"]
    yield f"Capacity: {planned['capacity_why']}. One way: {planned['latency_why']}."
    yield f"Agents measure: {link['measuring_now']}."
    if test is not None:
        detail = "" if test["detail"] is None else f": {test['detail']}"
        sent = f", {format_bytes(test['sent_bytes'])} sent" if test["sent_bytes"] else ""
        yield f"Last measurement, {_ago(test['age_s'])}: {test['kind']}, {test['outcome']}{detail}{sent}."


def _measured_table(links: list[Document]) -> RenderableType:
    return table(
        [
            "FROM",
            "TO",
            ">SET",
            ">MEASURED",
            ">AGE",
            "PLANNED",
            ">ONE WAY SET",
            ">MEASURED",
            ">AGE",
            "PLANNED",
            "LAST",
        ],
        [
            [
                link["src"],
                link["dst"],
                ("≤ " if link["capacity_is_limit"] else "≈ ") + format_bandwidth(link["capacity_bps"]),
                _measured(measured["bandwidth_bps"], format_bandwidth),
                _measured(measured["bandwidth_age_s"], _age),
                link["planned"]["capacity_from"],
                format_duration(link["latency_s"]),
                _measured(measured["latency_s"], format_duration),
                _measured(measured["latency_age_s"], _age),
                link["planned"]["latency_from"],
                None if link["last_test"] is None else link["last_test"]["outcome"],
            ]
            for link in links
            for measured in [link["measured"]]
        ],
        empty="No links between regions.",
    )


def _measured(value: float | None, shown: Callable[[float], str]) -> str | None:
    return None if value is None else shown(value)


def prices_table(series: list[Document]) -> Iterator[RenderableType]:
    """The price series and what holds now."""
    yield table(
        ["KIND", "REGION", "OF", ">NOW", "UNIT", "SOURCE", "SERIES"],
        [
            [
                one["kind"],
                one["region"],
                one["gpu_type"] or (f"→ {one['dst']}" if one["dst"] else ""),
                None if one["value_now"] is None else f"{one['value_now']:g}",
                one["unit"],
                one["source"],
                one["series_id"],
            ]
            for one in series
        ],
        empty="No prices. `bace prices set electricity REGION VALUE` sets one.",
    )
    for one in series:
        if one["unused_because"]:
            yield Text(f"Nothing is billed by this rent: {printable(one['unused_because'])}.", style="yellow")


def tokens_table(tokens: list[Document]) -> Iterator[RenderableType]:
    """The tokens, without their text."""
    yield table(
        ["ID", "ACCOUNT", "NAME", "ROLE", "PROJECT", "BEGINS", "USED", "EXPIRES", "STATE"],
        [
            [
                token["token_id"],
                token["account"],
                token["name"],
                token["role"],
                token["project"],
                token["prefix"] + "…",
                "never" if token["last_used_at_s"] is None else format_time(token["last_used_at_s"]),
                "never" if token["expires_at_s"] is None else format_time(token["expires_at_s"]),
                Text("valid", "green") if token["revoked_at_s"] is None else Text("revoked", "dim"),
            ]
            for token in tokens
        ],
        empty="No tokens.",
    )


def accounts_table(accounts: list[Document]) -> Iterator[RenderableType]:
    """The accounts and their roles."""
    yield table(
        ["ACCOUNT", "KIND", "BELONGS TO", "ROLES", "STATE"],
        [
            [
                account["name"],
                account["kind"],
                account["project"],
                ", ".join(f"{held['role']} in {held['project']}" for held in account["roles"]) or "none",
                Text("active", "green") if account["disabled_at_s"] is None else Text("disabled", "dim"),
            ]
            for account in accounts
        ],
        empty="No accounts.",
    )


def projects_table(projects: list[Document]) -> Iterator[RenderableType]:
    """The projects with their shares, quotas and jobs."""
    yield table(
        ["PROJECT", ">SHARE", ">GPUS", ">OF", ">SPENT THIS MONTH", ">OF", "JOBS"],
        [
            [
                project["project"],
                None if project["share"] is None else f"{project['share']:g}",
                project["held_gpus"],
                "∞" if project["quota_gpus"] is None else project["quota_gpus"],
                format_usd(project["spent_usd_this_month"]),
                "∞" if project["quota_usd_per_month"] is None else format_usd(project["quota_usd_per_month"]),
                ", ".join(f"{count} {state}" for state, count in sorted(project["jobs"].items())) or "none",
            ]
            for project in projects
        ],
        empty="No projects. A submission makes its project by itself.",
    )


def format_flops(rate: float) -> str:
    """`9.1 GFLOP/s`."""
    for prefix, scale in (("P", 1e15), ("T", 1e12), ("G", 1e9), ("M", 1e6)):
        if rate >= scale:
            return f"{rate / scale:.3g} {prefix}FLOP/s"
    return f"{rate:.3g} FLOP/s"


def _ownership(pool: Document) -> str:
    rent = pool["rent_usd_per_gpu_hour"]
    return str(pool["ownership"]) + (
        f" at {format_usd(rent)}/h" if rent is not None and pool["ownership"] == "rented" else ""
    )


def _price(value: float | None) -> str | None:
    return None if value is None else f"{value:.4f}"


def _bound(bandwidth_bps: float | None) -> str:
    return "no bound" if bandwidth_bps is None else format_bandwidth(bandwidth_bps)


def _ago(age_s: float) -> str:
    return f"{_age(age_s)} ago"


def _age(age_s: float) -> str:
    return format_duration(max(round(age_s), 0))
