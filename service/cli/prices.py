"""`bace prices`: the series and what holds now; `set` and `import` add to them, nothing is overwritten."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer

from scheduler.spec.csv_text import read_csv
from scheduler.spec.issues import SpecError
from scheduler.spec.prices import TIME_COLUMNS, Known, PriceTable, PriceUnit
from scheduler.units import format_time
from service.cli.api import Api
from service.cli.cluster_tables import prices_table
from service.cli.exits import CommandError, Exit, FieldNote
from service.cli.numbers import finite
from service.cli.output import Format, Output, emit


class Kind(StrEnum):
    """What a price is of."""

    ELECTRICITY = "electricity"
    RENT = "rent"
    EGRESS = "egress"
    CARBON = "carbon"


prices_app = typer.Typer(
    name="prices", help="Prices of electricity, rent, egress and carbon.", rich_markup_mode="rich"
)

GpuTypeOption = Annotated[str | None, typer.Option("--gpu-type", help="Of a rent: the GPU type.")]
DestinationOption = Annotated[str | None, typer.Option("--to", help="Of an egress: the other region.")]


@prices_app.callback(invoke_without_command=True)
def prices(context: typer.Context, output: Output = Format.TABLE) -> None:
    """List the price series and what holds now."""
    if context.invoked_subcommand is None:
        with Api() as api:
            emit({"items": api.pages("/v1/prices")}, output, lambda document: prices_table(document["items"]))


@prices_app.command("set", context_settings={"ignore_unknown_options": True})
def set_price(
    kind: Annotated[Kind, typer.Argument(metavar="KIND", help="electricity, rent, egress or carbon.")],
    region: Annotated[str, typer.Argument(metavar="REGION")],
    value: Annotated[float, typer.Argument(metavar="VALUE", help="USD per kWh, GPU-hour or GB; g per kWh.")],
    gpu_type: GpuTypeOption = None,
    destination: DestinationOption = None,
    unit: Annotated[str | None, typer.Option("--unit", help="Unit of VALUE, if not the series' own.")] = None,
    source: Annotated[str, typer.Option("--source", help="Where the figure is from.")] = "set by hand",
    output: Output = Format.TABLE,
) -> None:
    """Set a price from now on."""
    if (kind is Kind.EGRESS) != (destination is not None):
        raise CommandError("--to: an egress price needs the other region; no other kind has one.", Exit.USAGE)
    if (kind is Kind.RENT) != (gpu_type is not None):
        raise CommandError("--gpu-type: a rent needs the GPU type; no other kind has one.", Exit.USAGE)
    try:
        body = _subject(kind, region, gpu_type, destination, source) | {"value": finite(value)}
    except ValueError as error:
        raise CommandError(f"VALUE: {error}", Exit.USAGE) from None
    with Api() as api:
        series = api.request("PUT", "/v1/prices", document=body | ({"unit": unit} if unit else {}))
    emit(series, output, lambda document: prices_table([document]))


@prices_app.command("import")
def import_prices(
    file: Annotated[
        Path,
        typer.Argument(
            metavar="FILE",
            help=f"CSV: hours (UTC, their start) in a column {' or '.join(TIME_COLUMNS)}, prices in others.",
        ),
    ],
    region: Annotated[str, typer.Option("--region", help="The region that the prices are of.")],
    column: Annotated[
        str | None, typer.Option("--column", help="Its column of prices; by default the region's name.")
    ] = None,
    unit: Annotated[PriceUnit, typer.Option("--unit", help="Unit of the values.")] = PriceUnit.USD_PER_MWH,
    known: Annotated[
        Known,
        typer.Option("--known", help="day-ahead: from 12:00 UTC of the day before; real-time: when past."),
    ] = Known.DAY_AHEAD,
    output: Output = Format.TABLE,
) -> None:
    """Import hourly electricity prices from a CSV file."""
    try:
        series = PriceTable(read_csv(file)).series(column or region, unit, known)
    except SpecError as error:
        notes = tuple(FieldNote("", line) for line in error.lines())
        raise CommandError(
            f"{file} is not a price file.",
            Exit.USAGE,
            fields=notes,
            hint=_columns(column or region) if any(issue.line == 1 for issue in error.issues) else "",
        ) from None
    body = _subject(Kind.ELECTRICITY, region, None, None, file.name) | {
        "unit": PriceUnit.USD_PER_KWH.value,
        "points": [
            {"valid_from_s": valid, "known_at_s": published, "value": value}
            for valid, published, value in zip(
                series.valid_from_s, series.known_at_s, series.values, strict=True
            )
        ],
    }
    with Api() as api:
        done = api.post("/v1/prices/import", body)
    span = f"{format_time(series.valid_from_s[0])} … {format_time(series.end_s)}"
    emit(
        done,
        output,
        lambda document: [f"{document['new_points']} new of {document['points']} points, {span}"],
    )


def register(app: typer.Typer, panel: str) -> None:
    """Add the commands to `bace`."""
    app.add_typer(prices_app, rich_help_panel=panel)


def _columns(column: str) -> str:
    """What an import looks for in the header."""
    hours = " or ".join(TIME_COLUMNS)
    return f"Hours stand in a column {hours}, prices in the column {column}: --column names another."


def _subject(
    kind: Kind, region: str, gpu_type: str | None, destination: str | None, source: str
) -> dict[str, Any]:
    subject: dict[str, Any] = {"kind": kind.value, "region": region, "source": source}
    if gpu_type is not None:
        subject["gpu_type"] = gpu_type
    if destination is not None:
        subject["dst"] = destination
    return subject
