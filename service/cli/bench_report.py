"""`bace bench-report`: what a study of the benchmark shows so far. It needs neither a server nor the real data."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import RenderableType

from scheduler.bench.comparison import BASE
from scheduler.bench.digest import HEADLINES, digest_of
from scheduler.bench.markdown import write_markdown
from scheduler.bench.pairs import Estimate
from scheduler.bench.report import REPORT, write_report
from scheduler.bench.results import Row, read_rows
from scheduler.bench.section import change
from scheduler.bench.standing import cells_of, policies_of
from scheduler.errors import InvalidValueError, SchedulerError
from service.cli.exits import CommandError, Exit
from service.cli.output import Format, Output, emit, heading, table


def bench_report(
    out: Annotated[Path, typer.Option("--out", help="Folder of the study.")] = Path("bench-out"),
    against: Annotated[str, typer.Option("--against", help="The policy that others are set against.")] = BASE,
    markdown: Annotated[
        Path | None,
        typer.Option(
            "--markdown",
            help="Also as Markdown into this file, with an SVG and a CSV of its name beside it.",
            show_default=False,
        ),
    ] = None,
    output: Output = Format.TABLE,
) -> None:
    """Report on the runs that are in OUT, of a whole study or of a part; one that still runs is not disturbed.

    A Markdown file that is there keeps all but what stands between its lines `study: begin` and `study: end`.
    """
    try:
        rows = read_rows(out)
        known = policies_of(cells_of(rows))
        if against not in known:
            raise InvalidValueError("--against", against, f"a policy of the study: {', '.join(known)}")
        write_report(rows, out, against)
        if markdown is not None:
            write_markdown(rows, markdown, against)
    except (SchedulerError, OSError) as error:
        raise CommandError(str(error), Exit.USAGE) from error
    emit(study_document(rows, out, against, left=0), output, study_tables)


def study_document(rows: Sequence[Row], out: Path, base: str, *, left: int) -> dict[str, Any]:
    """What a study comes to, as plain data; `left` is how many of its runs are not done."""
    return {
        "runs": len(rows),
        "left": left,
        "failed": sum(row.error is not None for row in rows),
        "report": str(out / REPORT),
        "groups": digest_of(rows, base),
    }


def study_tables(document: dict[str, Any]) -> Iterator[RenderableType]:
    """Each group: how every policy compares with the base, in per cent, with the 95 % interval."""
    for group in document["groups"]:
        yield heading(f"{group['group']} ({group['cells']} cells)")
        rows = [
            [
                entry["policy"],
                *(_change(entry["ratios"][figure]) for figure in HEADLINES),
                str(len(entry["cells_worse"]) or ""),
            ]
            for entry in group["policies"]
        ]
        bound = _change(group["bounds"]["jct_strict_s"])
        rows.append(["strict bound", bound, *[""] * len(HEADLINES)])
        yield table(["policy", *(f">{_title(figure)}" for figure in HEADLINES), ">worse cells"], rows)
    left = f", {document['left']} left" if document["left"] else ""
    yield f"\n{document['runs']} runs, {document['failed']} failed{left}. Report: {document['report']}"


def _title(figure: str) -> str:
    return figure.rsplit("_", 1)[0].replace("_", " ")


def _change(ratio: dict[str, Any] | None) -> str:
    return change(None if ratio is None else Estimate(**ratio))
