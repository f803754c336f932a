"""`bace schedule`: what a job would come to under each pipeline schedule, asked of a server or of a scenario file."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import RenderableType
from rich.text import Text

from scheduler.errors import InvalidValueError, SchedulerError
from scheduler.units import format_bytes, format_duration, format_usd
from service.cli.api import Api, ProblemError
from service.cli.documents import JobFile, read_job_file
from service.cli.exits import CommandError, Exit, FieldNote
from service.cli.extras import lacking
from service.cli.output import Format, Output, emit, facts, heading, printable, table

if TYPE_CHECKING:
    from scheduler.spec.issues import SpecError

PATIENCE_S = 120.0
RUNS = {"asked": "yes", "not": "no"}
Document = dict[str, Any]


def schedule(
    file: Annotated[
        str, typer.Argument(metavar="FILE", help="A job file (YAML or JSON); - is standard input.")
    ],
    placement: Annotated[
        str | None,
        typer.Option(
            "--placement",
            help="The chain: regions with their stages in pipeline order, like us-east-1:3,eu-west-1:2 (or "
            "us-east-1/H100:3); else the policy's own choice.",
        ),
    ] = None,
    scenario: Annotated[
        Path | None,
        typer.Option(
            "--scenario", help="Regions, links and prices of a scenario file, in the place of a server."
        ),
    ] = None,
    policy: Annotated[
        str | None,
        typer.Option("--policy", help="With --scenario: who chooses the chain (bace). A server has its own."),
    ] = None,
    svg: Annotated[Path | None, typer.Option("--svg", help="Draw a timeline into this file.")] = None,
    picture: Annotated[
        str | None, typer.Option("--picture", help="The schedule that --svg draws (auto).")
    ] = None,
    output: Output = Format.TABLE,
) -> None:
    """Compare the pipeline schedules of a job: iteration time, bubble, memory, traffic and cost of each.

    Nothing is submitted. A bad file or chain ends with exit code 2, a job that fits nowhere with 1.
    """
    if policy is not None and scenario is None:
        raise CommandError("--policy is for --scenario FILE: a server has a policy of its own.", Exit.USAGE)
    if picture is not None and svg is None:
        raise CommandError("--picture is for --svg FILE, which it is drawn into.", Exit.USAGE)
    job_file = read_job_file(file)
    pictured = (picture or "auto") if svg is not None else None
    if scenario is None:
        document = _asked_of_server(job_file, placement, pictured)
    else:
        document = _asked_of_scenario(job_file, scenario, placement, pictured, policy or "bace")
    if svg is not None:
        _write(svg, document["picture"]["svg"])
    emit(document, output, comparison_page)
    if svg is not None and output is Format.TABLE:
        typer.echo(f"\nTimeline of {pictured}: {svg}")


def register(app: typer.Typer, panel: str) -> None:
    """Add the command to `bace`."""
    app.command(rich_help_panel=panel)(schedule)


def comparison_page(made: Document) -> Iterator[RenderableType]:
    """The chain, the schedules by how fast they are, those that do not fit last, and why others cannot be."""
    yield Text.assemble((printable(made["name"]), "bold"), f"  on {printable(made['chain'])}")
    yield facts(
        (
            ("why there", made["why"]),
            ("pipeline", f"{made['stages']} stages, {made['micro_batches']} micro-batches an iteration"),
            ("asks for", made["asked"]),
            ("updates", _updates(made)),
            ("no price known for", ", ".join(made["unpriced_regions"])),
        )
    )
    found = [each for each in made["schedules"] if each["available"]]
    found.sort(key=lambda each: (not each["fits"], each["iteration_s"]))
    asked_s = next((each["iteration_s"] for each in found if each["schedule"] == made["asked"]), None)
    columns = ["SCHEDULE", ">ITERATION", ">TO ASKED", ">BUBBLE", ">MEMORY OF A GPU", "FITS", ">LINKS"]
    yield heading("Schedules")
    yield table(
        [*columns, ">PER 1,000 STEPS", "RUNS"],
        [_row(each, made, asked_s) for each in found],
    )
    if made["advice"] is not None:
        yield from _advice(made["advice"])
    notes = [[each["schedule"], each["note"]] for each in made["schedules"] if each["note"]]
    if notes:
        yield heading("Notes")
        yield table(["SCHEDULE", ""], notes)
    yield Text(
        "\nMEMORY: the fullest rank. LINKS: sent between regions in an iteration. RUNS: whether this job can ask for "
        "it, by its name in training.schedule.",
        style="dim",
    )


def _updates(made: Document) -> str | None:
    """What updates within an iteration do to the times below; None where they come at its end."""
    if made["update_every"] is None:
        return None
    pace = (
        "iterations run one into the other, and are timed so"
        if made["keeps_full"]
        else "each iteration ends apart"
    )
    return f"every {made['update_every']} micro-batches: {pace}; only windows of whole backwards go with that"


def _row(each: Document, made: Document, asked_s: float | None) -> list[object]:
    is_asked = each["schedule"] == made["asked"]
    name = printable(each["schedule"])
    if each["comes_to"] != each["schedule"]:
        name += f" ({printable(each['comes_to'])})"
    fullest = max(range(made["stages"]), key=lambda rank: each["peak_bytes"][rank])
    return [
        Text(name, style="bold" if is_asked else ""),
        format_duration(each["iteration_s"]),
        "–" if asked_s is None else f"{100 * (each['iteration_s'] / asked_s - 1):+z.1f} %",
        f"{each['bubble_fraction']:.1%}",
        f"{format_bytes(each['peak_bytes'][fullest])} of {format_bytes(made['ranks'][fullest]['memory_bytes'])}",
        "yes" if each["fits"] else Text(f"no: {_too_full(each, made)}", style="red"),
        format_bytes(sum(use["sent_bytes"] for use in each["links"])),
        format_usd(each["usd_per_1000_steps"]["total"]),
        RUNS[each["runs"]],
    ]


def _advice(advice: Document) -> Iterator[RenderableType]:
    """How the stages might agree on their weights, and what is not known of it."""
    yield heading("Advice on updates")
    every, time = advice["per_update"], advice["micro_batches"]
    compared = f"an update every {every} micro-batches, in the time of {time:,} without bubbles"
    yield Text.assemble((printable(advice["training"]), "bold"), f"  has the lowest bound: {compared}")
    for bound in advice["bounds"]:
        yield Text(f"· {printable(bound['reason'])}")
    yield Text(" ".join(map(printable, advice["notes"])), style="dim")


def _too_full(each: Document, made: Document) -> str:
    full = [
        str(rank)
        for rank, (peak, where) in enumerate(zip(each["peak_bytes"], made["ranks"], strict=True))
        if peak > where["memory_bytes"]
    ]
    if not full:
        return "its updates allow fewer in flight"
    return f"rank {', '.join(full[:4])}{' …' if len(full) > 4 else ''}"


def _asked_of_server(job_file: JobFile, placement: str | None, pictured: str | None) -> Document:
    with Api(timeout_s=PATIENCE_S) as api:
        try:
            made: Document = api.request(
                "POST",
                "/v1/schedules",
                params={"placement": placement, "picture": pictured},
                document=job_file.document,
            )
        except ProblemError as problem:
            raise job_file.located(problem) from None
    return made


def _asked_of_scenario(
    job_file: JobFile, path: Path, placement: str | None, pictured: str | None, policy: str
) -> Document:
    """The same document as a server's, worked out here; it needs the planner."""
    try:
        from scheduler.pipeline.plan.comparison import compare
        from scheduler.pipeline.plan.where import chosen, named
        from scheduler.policies import PolicyConfig
        from scheduler.snapshot import Snapshot
        from scheduler.spec.issues import SpecError
        from scheduler.spec.job import parse_job
        from scheduler.spec.scenario import load_scenario
        from scheduler.spec.support import unknown_regions
        from scheduler.spec.updates import micro_batches_an_update
        from service.api.schemas.schedules import Comparison
    except ModuleNotFoundError as error:
        raise lacking(str(error.name), "planner") from None
    try:
        world = load_scenario(path)
    except SpecError as error:
        lines = "\n".join(f"  {line}" for line in error.lines())
        raise CommandError(f"the scenario cannot be read:\n{lines}", Exit.USAGE) from None
    try:
        job = parse_job(job_file.document, job_file.source)
        if refused := unknown_regions(job, world.cluster.regions):
            raise SpecError(refused, job_file.source)
    except SpecError as error:
        raise _located(job_file, error) from None
    spec = job.to_spec("job", job.project, world.start_s)
    prices = {region: series.known(world.start_s) for region, series in world.electricity.items()}
    snapshot = Snapshot(0, world.start_s, world.cluster, prices)
    try:
        config = PolicyConfig(name=policy, objective=world.objective)
        stand = chosen(spec, snapshot, config) if placement is None else named(placement, spec, snapshot)
        made = Comparison.of(compare(spec, snapshot, stand, pictured, micro_batches_an_update(job)))
    except InvalidValueError:
        raise
    except SchedulerError as error:
        nowhere = error.code == "no_placement"
        raise CommandError(str(error), Exit.FAILED if nowhere else Exit.USAGE) from None
    document: Document = made.model_dump(mode="json")
    return document


def _located(job_file: JobFile, error: SpecError) -> CommandError:
    """The refusal of a job, with the lines of its file."""
    notes = []
    for issue in error.issues:
        line = job_file.lines.get(issue.pointer)
        place = f"{job_file.source}:{line}: {issue.pointer}" if line is not None else issue.pointer
        notes.append(FieldNote(place, issue.describe()))
    return CommandError(f"{job_file.source} is not a job file.", Exit.USAGE, fields=tuple(notes))


def _write(path: Path, text: str) -> None:
    try:
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        expected = f"a file that can be written ({error.strerror or error})"
        raise InvalidValueError("--svg", str(path), expected) from None
