"""`bace nodes`, `regions`, `links`, `cordon`, `uncordon`, `drain`."""

from __future__ import annotations

from typing import Annotated

import typer

from service.cli.api import Api, segment
from service.cli.cluster_tables import drained_page, links_table, nodes_table, regions_table
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
    """List the links between regions and how much of them is held."""
    with Api() as api:
        emit({"items": api.pages("/v1/links")}, output, lambda document: links_table(document["items"]))


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
    for command in (nodes, regions, links, cordon, uncordon, drain):
        app.command(rich_help_panel=panel)(command)


def _node_action(node: str, action: str, output: Format) -> None:
    with Api() as api:
        emit(
            api.post(f"/v1/nodes/{segment(node)}/{action}"), output, lambda document: nodes_table([document])
        )
