"""`bace nodes`, `regions`, `links`, `link`, `cordon`, `uncordon`, `drain`."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, Any

import typer

from scheduler.units import parse_bandwidth, parse_duration
from service.cli.api import Api, segment
from service.cli.cluster_tables import drained_page, link_page, links_table, nodes_table, regions_table
from service.cli.exits import CommandError, Exit
from service.cli.output import Format, Output, emit

NodeId = Annotated[str, typer.Argument(metavar="NODE", help="The node's id, or the beginning of it.")]


def nodes(output: Output = Format.TABLE) -> None:
    """List the GPU nodes."""
    with Api() as api:
        emit({"items": api.pages("/v1/nodes")}, output, lambda document: nodes_table(document["items"]))


def regions(output: Output = Format.TABLE) -> None:
    """List the regions: GPUs used and free, price of power now, bounds."""
    with Api() as api:
        emit({"items": api.pages("/v1/regions")}, output, lambda document: regions_table(document["items"]))


def links(output: Output = Format.TABLE) -> None:
    """List the links between regions: what planning goes by, how much is held, what agents have measured."""
    with Api() as api:
        emit({"items": api.pages("/v1/links")}, output, lambda document: links_table(document["items"]))


class Measuring(StrEnum):
    """What agents may measure of a link; `server`: what the server's settings say."""

    OFF = "off"
    LATENCY = "latency"
    BANDWIDTH = "bandwidth"
    SERVER = "server"


def link(
    src: Annotated[str, typer.Argument(metavar="FROM", help="The region where it begins.")],
    dst: Annotated[str, typer.Argument(metavar="TO", help="The region where it ends.")],
    limit: Annotated[
        str | None,
        typer.Option("--limit", help="Its capacity, such as 25Gbps: never exceeded, whatever is measured."),
    ] = None,
    estimate: Annotated[
        str | None, typer.Option("--estimate", help="Its capacity as long as nothing is measured.")
    ] = None,
    latency: Annotated[
        str | None, typer.Option("--latency", help="One way, such as 5ms: half the round trip.")
    ] = None,
    measure: Annotated[
        Measuring | None, typer.Option("--measure", help="What agents may measure of it.")
    ] = None,
    output: Output = Format.TABLE,
) -> None:
    """Show a link, or say what it carries and what may be measured of it."""
    with Api() as api:
        known = next(
            (each for each in api.pages("/v1/links") if (each["src"], each["dst"]) == (src, dst)), None
        )
        if limit is estimate is latency is measure is None:
            if known is None:
                raise CommandError(f"There is no link from {src} to {dst}.", Exit.NOT_FOUND)
            emit(known, output, link_page)
            return
        body = _changed_link(known, limit, estimate, latency, measure)
        headers = {} if known is None else {"If-Match": f'"{known["version"]}"'}
        found = api.request("PUT", f"/v1/links/{segment(src)}/{segment(dst)}", document=body, headers=headers)
        emit(found, output, link_page)


def cordon(node: NodeId, output: Output = Format.TABLE) -> None:
    """Take a node out of planning; what runs on it goes on."""
    _node_action(node, "cordon", output)


def uncordon(node: NodeId, output: Output = Format.TABLE) -> None:
    """Give a cordoned node back to planning."""
    _node_action(node, "uncordon", output)


def drain(node: NodeId, output: Output = Format.TABLE) -> None:
    """Cordon a node and move its jobs elsewhere: those that may be restarted go on from their checkpoint."""
    with Api() as api:
        emit(api.post(f"/v1/nodes/{segment(node)}/drain"), output, drained_page)


def register(app: typer.Typer, panel: str) -> None:
    """Add the commands to `bace`."""
    for command in (nodes, regions, links, link, cordon, uncordon, drain):
        app.command(rich_help_panel=panel)(command)


def _changed_link(
    known: dict[str, Any] | None,
    limit: str | None,
    estimate: str | None,
    latency: str | None,
    measure: Measuring | None,
) -> dict[str, Any]:
    """The body of the change: the link as it is, with what was said now."""
    if limit is not None and estimate is not None:
        raise CommandError("--estimate: a capacity is a limit or an estimate, not both.", Exit.USAGE)
    fields = ("capacity_bps", "latency_s", "capacity_is_limit", "measuring")
    body = {} if known is None else {name: known[name] for name in fields}
    if limit is not None or estimate is not None:
        option = "--estimate" if limit is None else "--limit"
        body["capacity_bps"] = parse_bandwidth(limit or estimate, field=option)
        body["capacity_is_limit"] = limit is not None
    if latency is not None:
        body["latency_s"] = parse_duration(latency, field="--latency")
    if measure is not None:
        body["measuring"] = None if measure is Measuring.SERVER else measure.value
    if "capacity_bps" not in body or "latency_s" not in body:
        raise CommandError(
            "It is not known yet: give its capacity (--limit or --estimate) and --latency.", Exit.USAGE
        )
    return body


def _node_action(node: str, action: str, output: Format) -> None:
    with Api() as api:
        emit(
            api.post(f"/v1/nodes/{segment(node)}/{action}"), output, lambda document: nodes_table([document])
        )
