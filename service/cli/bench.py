"""`bace bench`: the benchmark of the policies over its grids. It needs no server, but the folder of real data."""

from __future__ import annotations

import math
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import typer
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)

from scheduler.bench.comparison import BASE
from scheduler.bench.entries import entries_of
from scheduler.bench.plan import GRIDS, Selection
from scheduler.bench.report import write_report
from scheduler.bench.results import Results, Row
from scheduler.bench.sources import Sources
from scheduler.bench.study import OverProcesses, Spread, run_study
from scheduler.bench.worlds import Split
from scheduler.errors import SchedulerError
from service.cli.bench_report import study_document, study_tables
from service.cli.exits import CommandError, Exit
from service.cli.extras import lacking
from service.cli.output import Format, Output, emit, error_console

DATA = "BACE_DATA_DIR"


def bench(
    out: Annotated[Path, typer.Option("--out", help="Folder of the study; it goes on where it was.")] = Path(
        "bench-out"
    ),
    grid: Annotated[str, typer.Option("--grid", "-g", help=f"Grids, of {','.join(GRIDS)}.")] = ",".join(
        GRIDS
    ),
    cells: Annotated[
        str, typer.Option("--cells", help="Only cells whose name fits this pattern, such as 'kalos-x10*'.")
    ] = "*",
    policies: Annotated[
        str,
        typer.Option(
            "--policies", "-p", help="Policies, or all; with the weight of time: horizon@0.25; and bounds."
        ),
    ] = "all",
    split: Annotated[
        Split, typer.Option("--split", help="Draws to tune on, or those that are looked at once, at the end.")
    ] = Split.TUNING,
    seeds: Annotated[int | None, typer.Option("--seeds", min=1, help="At most so many draws a cell.")] = None,
    fraction: Annotated[
        float, typer.Option("--fraction", help="An even part of the draws of all cells, such as 0.1.")
    ] = 1.0,
    budget_minutes: Annotated[
        float | None,
        typer.Option(
            "--budget-minutes", min=0.0, help="Begin no run after so many minutes.", show_default="none"
        ),
    ] = None,
    processes: Annotated[
        int | None, typer.Option("--processes", min=1, help="Runs at once; by default one a core.")
    ] = None,
    ray: Annotated[
        bool,
        typer.Option(
            "--ray", help="Spread the runs over the Ray cluster of RAY_ADDRESS, or a local one (extra: ray)."
        ),
    ] = False,
    data: Annotated[
        Path | None, typer.Option("--data", envvar=DATA, help="Folder of the real data.", show_default=False)
    ] = None,
    output: Output = Format.TABLE,
) -> None:
    """Run policies over the grids of the benchmark, and report how they compare.

    Runs that are in OUT already are not run again. The first draws of all cells come first, so that a study may end at
    any time. Ctrl-C loses the runs in work and nothing else; --budget-minutes waits for them.
    """
    if data is None:
        raise CommandError(f"the real data is needed: set {DATA}, or give --data", Exit.USAGE)
    if not data.is_dir():
        raise CommandError(f"--data (or {DATA}): {str(data)!r} is not valid: expected a folder", Exit.USAGE)
    try:
        chosen = None if policies == "all" else entries_of([name.strip() for name in policies.split(",")])
        grids = tuple(name.strip() for name in grid.split(","))
        selection = Selection(grids, cells, split, chosen, seeds, fraction)
        results = Results(out)
        runs = selection.runs()
        if not runs:
            detail = f"--cells: {cells!r} is not valid: expected a pattern that some cell of {grid} matches"
            raise CommandError(detail, Exit.USAGE)
        with _watching(len(runs), len({run.key for run in runs} & results.done())) as watch:
            spread = _over_ray(processes) if ray else OverProcesses(processes or os.cpu_count() or 1)
            rows = run_study(runs, Sources(data), results, spread, watch, _clock(budget_minutes))
    except SchedulerError as error:
        raise CommandError(str(error), Exit.USAGE) from error
    write_report(rows, out)
    document = study_document(rows, out, BASE, left=len(runs) - len(rows))
    emit(document, output, study_tables)
    if document["failed"]:
        raise typer.Exit(int(Exit.FAILED))


def _clock(minutes: float | None) -> Callable[[], bool]:
    """Says yes for so long from now on; without minutes always."""
    end_s = math.inf if minutes is None else time.monotonic() + 60.0 * minutes
    return lambda: time.monotonic() < end_s


def _over_ray(cores: int | None) -> Spread:
    try:
        from scheduler.bench.over_ray import OverRay
    except ModuleNotFoundError as error:
        raise lacking(str(error.name), "ray") from None
    return OverRay(cores)


@contextmanager
def _watching(total: int, done: int) -> Iterator[Callable[[Row], None]]:
    """A progress bar on standard error, where that is a terminal; failures are told in any case."""
    console = error_console()
    columns = (
        TextColumn("runs"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
        TextColumn("{task.description}", markup=False),
    )
    with Progress(*columns, console=console, disable=not console.is_terminal, transient=True) as progress:
        task = progress.add_task("", total=total, completed=done)

        def watch(row: Row) -> None:
            progress.update(task, advance=1, description=f"{row.grid} {row.cell} · {row.policy}")
            if row.error is not None:
                console.print(
                    f"{row.grid} {row.cell}, draw {row.draw}, {row.policy}: {row.error}", markup=False
                )

        yield watch
