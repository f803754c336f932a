"""What a study shows, as Markdown for a document, with its picture and its figures beside it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Final

from scheduler.bench.csv_files import write_few_figures
from scheduler.bench.entries import family_of
from scheduler.bench.frontier import Frontier, frontiers_of
from scheduler.bench.groups import groups_of
from scheduler.bench.picture import picture_of
from scheduler.bench.results import Row
from scheduler.bench.section import markdown_of
from scheduler.bench.standing import cells_of
from scheduler.bench.story import sections_of
from scheduler.errors import InvalidValueError

BEGIN: Final = "<!-- study: begin -->"
END: Final = "<!-- study: end -->"
"""Between these lines a document takes what a study shows; all else of it stays."""


def write_markdown(rows: Sequence[Row], path: Path, base: str) -> None:
    """Writes into the file, with an SVG and a CSV of its name beside it.

    Raises InvalidValueError for a file that is there and has no place for it, OSError where it cannot be written.
    """
    before, after = _around(path)
    cells = cells_of(rows)
    groups = groups_of(cells)
    frontiers = frontiers_of(groups, base)
    svg, figures = path.with_suffix(".svg"), path.with_suffix(".csv")
    parts = [
        _summary(rows, len(cells), figures.name),
        _frontier(frontiers, base, svg.name),
        *(markdown_of(section) for section in sections_of(cells, groups, base)),
    ]
    told = "\n\n".join(parts)
    path.write_text(f"{before}{BEGIN}\n\n{told}\n\n{END}\n{after}", encoding="utf-8")
    if frontiers:
        svg.write_text(picture_of(frontiers, base), encoding="utf-8")
    write_few_figures(cells, figures)


def _around(path: Path) -> tuple[str, str]:
    """What stands in the file before and behind the two lines; nothing where there is no file."""
    if not path.exists():
        return "", ""
    lines = path.read_text(encoding="utf-8").splitlines(keepends=True)
    bare = [line.strip() for line in lines]
    if bare.count(BEGIN) != 1 or bare.count(END) != 1 or bare.index(BEGIN) > bare.index(END):
        raise InvalidValueError(
            "--markdown", str(path), f"a new file, or one with one line {BEGIN} and one {END} after it"
        )
    return "".join(lines[: bare.index(BEGIN)]), "".join(lines[bare.index(END) + 1 :])


def _summary(rows: Sequence[Row], cells: int, figures: str) -> str:
    failed = sum(row.error is not None for row in rows)
    codes = len({row.code for row in rows})
    splits = " and ".join(sorted({row.split for row in rows}))
    versions = "one version" if codes == 1 else f"{codes} versions"
    return (
        f"{len(rows)} runs on {splits} draws of {cells} cells, {failed} failed, by {versions} of the planner. "
        f"[{figures}]({figures}) has a line for each cell and policy: means over draws with 95 % intervals, s and USD."
    )


def _frontier(frontiers: Sequence[Frontier], base: str, picture: str) -> str:
    title = "### The frontier"
    if not frontiers:
        return f"{title}\n\nThis study has no runs for it."
    knobs = sorted({point.label for each in frontiers for curve in each.curves for point in curve.points})
    turned = any(label != family_of(label) for label in knobs)
    curves = " A curve is a policy as its knob turns, the large dot the policy as it is." if turned else ""
    return (
        f"{title}\n\n![What is paid against mean JCT, over {base}]({picture})\n\n"
        f"Left is faster, below is cheaper, both over {base} on the same worlds, on logarithmic axes; crosses are 95 % "
        f"intervals.{curves}"
    )
