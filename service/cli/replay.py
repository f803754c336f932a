"""`bace replay` and `bace compare`: simulations of a scenario under the planner's policies. They need no server."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace as with_changes
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import RenderableType
from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeElapsedColumn

from scheduler.errors import InvalidValueError, SchedulerError
from scheduler.objective import Objective
from scheduler.policies import MAIN, STUDIES, PolicyConfig
from scheduler.replay.compare import FIGURES, Compared
from scheduler.replay.compare import compare as compare_results
from scheduler.replay.errors import PricesEndError, ReplayError
from scheduler.replay.run import run_policies
from scheduler.spec.issues import SpecError
from scheduler.spec.scenario import Scenario, load_scenario
from scheduler.units import format_duration, format_usd
from service.cli.exits import CommandError, Exit
from service.cli.output import Format, Output, emit, error_console, table

HORIZON = "horizon"


def replay(
    scenario: Annotated[Path, typer.Argument(help="The scenario file (YAML).", show_default=False)],
    policy: Annotated[
        str,
        typer.Option(
            "--policy",
            "-p",
            help=f"Policies, separated by commas: {', '.join(MAIN)}; or all of these. For studies also "
            f"{', '.join(STUDIES)}.",
        ),
    ] = "bace",
    out: Annotated[Path, typer.Option("--out", help="Results go to OUT/<policy>/.")] = Path("replay-out"),
    seed: Annotated[int, typer.Option("--seed", min=0, help="Seed of the policies.")] = 0,
    strict: Annotated[
        bool, typer.Option("--strict", help="The job at the head of the queue blocks those behind it.")
    ] = False,
    objective: Annotated[
        float | None,
        typer.Option(
            "--objective",
            min=0,
            max=1,
            help="Weight of time against cost, for horizon: 0 cheapest, 1 fastest; else as the scenario says.",
        ),
    ] = None,
    cheapest_within: Annotated[
        float | None,
        typer.Option(
            "--cheapest-within",
            min=0,
            max=10,
            help="For horizon: cheapest within this part of the fastest (0.05: 5 %).",
        ),
    ] = None,
    processes: Annotated[
        int | None,
        typer.Option(
            "--processes", min=1, help="Policies replayed at once; by default one a core, if it pays."
        ),
    ] = None,
    output: Output = Format.TABLE,
) -> None:
    """Replay a scenario under one or more policies on a virtual clock, and write what came of it.

    OUT/<policy>/ holds jobs.csv, allocations.csv, links.csv, summary.json and report.html. A bad scenario ends with
    exit code 2 and writes nothing.
    """
    names = list(MAIN) if policy == "all" else [name.strip() for name in policy.split(",")]
    _refuse_unread(names, objective, cheapest_within)
    try:
        world = load_scenario(scenario)
        goal = _objective(world, objective, cheapest_within)
        configs = [PolicyConfig(name=name, strict=strict, seed=seed, objective=goal) for name in names]
        with _watching(names) as watch:
            summaries = run_policies(world, configs, out, watch, processes)
    except PricesEndError as error:
        raise CommandError(str(error), Exit.USAGE) from error
    except ReplayError as error:
        raise CommandError(str(error), Exit.FAILED) from error
    except InvalidValueError:
        raise
    except SchedulerError as error:
        raise _bad_input(error) from error
    except OSError as error:
        expected = f"a folder that can be written to ({error.strerror or error})"
        raise InvalidValueError("--out", str(out), expected) from error
    emit(
        summaries,
        output,
        lambda found: _tables(compare_results([out / entry["policy"] for entry in found]), out),
    )


def _refuse_unread(names: Sequence[str], weight_jct: float | None, cheapest_within: float | None) -> None:
    """Raises CommandError for what no policy would heed."""
    given = {"--objective": weight_jct, "--cheapest-within": cheapest_within}
    options = [option for option, value in given.items() if value is not None]
    if len(options) > 1:
        raise CommandError(f"{' and '.join(options)}: give one of them, the goal is one.", Exit.USAGE)
    if options and HORIZON not in names:
        told = f"{options[0]} is for --policy {HORIZON}: no other policy weighs time against cost."
        raise CommandError(told, Exit.USAGE)


def _objective(scenario: Scenario, weight_jct: float | None, cheapest_within: float | None) -> Objective:
    """What is told, else what the scenario says."""
    if weight_jct is not None:
        return Objective(weight_jct)
    told = scenario.objective
    return told if cheapest_within is None else with_changes(told, cheapest_within=cheapest_within)


def compare(
    folders: Annotated[
        list[Path],
        typer.Argument(metavar="DIR...", help="Result folders, or folders of them.", show_default=False),
    ],
    output: Output = Format.TABLE,
) -> None:
    """Compare results of replays: their figures, and in brackets each over that of the first."""
    try:
        compared = compare_results(folders)
    except SchedulerError as error:
        raise _bad_input(error) from error
    document = [
        {
            "folder": entry.folder,
            "scenario": entry.scenario,
            "policy": entry.policy,
            "figures": entry.figures,
            "ratios": entry.ratios,
        }
        for entry in compared
    ]
    emit(document, output, lambda _: _tables(compared, None))


def _bad_input(error: SchedulerError) -> CommandError:
    if isinstance(error, SpecError):
        lines = [f"  {line}" for line in error.lines()]
        return CommandError("\n".join(["the scenario cannot be replayed:", *lines]), Exit.USAGE)
    return CommandError(str(error), Exit.USAGE)


@contextmanager
def _watching(names: Sequence[str]) -> Iterator[Callable[[str, int, int, float], None]]:
    """A progress bar for each policy on standard error, where that is a terminal."""
    console = error_console()
    columns = (
        TextColumn("{task.description:>8}"),
        BarColumn(),
        TextColumn("{task.completed:.0f}/{task.total:.0f} jobs"),
        TextColumn("{task.fields[clock]}"),
        TimeElapsedColumn(),
    )
    with Progress(*columns, console=console, disable=not console.is_terminal, transient=True) as progress:
        tasks: dict[str, TaskID] = {
            name: progress.add_task(name, total=1, completed=0, start=False, clock="") for name in names
        }

        def watch(policy: str, done: int, total: int, now_s: float) -> None:
            progress.start_task(tasks[policy])
            progress.update(tasks[policy], completed=done, total=total, clock=f"day {now_s / 86400:.1f}")

        yield watch


def _tables(compared: Sequence[Compared], out: Path | None) -> Iterable[RenderableType]:
    several = len({entry.scenario for entry in compared}) > 1 or len(
        {entry.policy for entry in compared}
    ) < len(compared)
    headings = [entry.folder if several else entry.policy for entry in compared]
    rows: list[list[object]] = []
    for name, _ in FIGURES:
        cells = [
            _cell(name, entry.figures[name], entry.ratios[name], first=entry is compared[0])
            for entry in compared
        ]
        if any(entry.figures[name] for entry in compared):
            rows.append([_title(name), *cells])
    yield table(["", *(f">{heading}" for heading in headings)], rows)
    if len(headings) > 1:
        yield f"\nIn brackets: each figure over that of {headings[0]}."
    if out is not None:
        yield f"\nReports: {out}/<policy>/report.html"


def _title(name: str) -> str:
    for suffix in ("_s", "_usd"):
        name = name.removesuffix(suffix)
    return name.replace("_", " ")


def _cell(name: str, value: float | None, ratio: float | None, *, first: bool) -> str:
    if value is None:
        return "–"
    text = _figure(name, value)
    return text if first or ratio is None else f"{text} ({ratio:.3f})"


def _figure(name: str, value: Any) -> str:
    if name == "gpu_utilisation":
        return f"{value:.1%}"
    if name.endswith("_usd"):
        return format_usd(value)
    if name.endswith("_s"):
        return format_duration(value)
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"
