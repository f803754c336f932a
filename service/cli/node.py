"""`bace node token create`, `bace node revoke`: how nodes get in, and out."""

from __future__ import annotations

from typing import Annotated, Any

import typer
from rich.text import Text

from scheduler.units import format_time, parse_duration
from service.cli.api import Api, segment
from service.cli.cluster_tables import nodes_table
from service.cli.output import Format, Output, emit

node_app = typer.Typer(
    name="node", help="How nodes get in, and out.", no_args_is_help=True, rich_markup_mode="rich"
)
token_app = typer.Typer(
    name="token", help="Tokens that let a node join, once.", no_args_is_help=True, rich_markup_mode="rich"
)
node_app.add_typer(token_app)


@token_app.command("create")
def create(
    region: Annotated[str | None, typer.Option("--region", help="For a node in this region only.")] = None,
    ttl: Annotated[str, typer.Option("--ttl", help="How long it may be used, for example 15m.")] = "1h",
    name: Annotated[str, typer.Option("--name", help="What it is for.")] = "join",
    account: Annotated[
        str | None, typer.Option("--account", help="Whose the node's identity will be; by default yours.")
    ] = None,
    output: Output = Format.TABLE,
) -> None:
    """Make a token with which one node may join, once. Its text is shown this once."""
    body: dict[str, Any] = {"name": name, "expires_in_s": parse_duration(ttl, field="--ttl")}
    if region is not None:
        body["region"] = region
    if account is not None:
        body["account"] = account
    with Api() as api:
        emit(api.post("/v1/join-tokens", body), output, _made)


@node_app.command("revoke")
def revoke(
    node: Annotated[str, typer.Argument(metavar="NODE", help="The node's id, or the beginning of it.")],
    output: Output = Format.TABLE,
) -> None:
    """Make void what the node's agent can show; its workers end with its lease. It joins again with a new token."""
    with Api() as api:
        emit(api.post(f"/v1/nodes/{segment(node)}/revoke"), output, lambda document: nodes_table([document]))


def register(app: typer.Typer, panel: str) -> None:
    """Add the commands to `bace`."""
    app.add_typer(node_app, rich_help_panel=panel)


def _made(token: dict[str, Any]) -> list[Any]:
    where = f"in {token['region']}" if token["region"] else "in any region"
    return [
        Text.assemble((token["token"], "bold")),
        f"For one node {where}, until {format_time(token['expires_at_s'])}; it is not shown again. On the node:",
        f"BACE_TOKEN={token['token']} bace agent --region {token['region'] or 'REGION'}",
    ]
