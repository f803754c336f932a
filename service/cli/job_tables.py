"""Jobs, plans and explanations as people read them."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from typing import Any

from rich.console import RenderableType
from rich.text import Text

from scheduler.units import format_bandwidth, format_duration, format_time, format_usd
from service.cli.output import facts, heading, printable, table
from service.cli.states import state_text

Document = dict[str, Any]

CHAIN_COLOURS = ("cyan", "yellow", "magenta", "green", "blue", "red")
WAITING_STATES = frozenset({"queued", "rejected"})
FINAL_STATES = frozenset({"succeeded", "failed", "cancelled", "rejected"})


def jobs_table(documents: list[Document]) -> Iterator[RenderableType]:
    """The list of jobs, newest first as the server gives it."""
    yield table(
        ["ID", "NAME", "PROJECT", "STATE", ">STEPS", "CHAIN", ">AGE", ">ITERATION", ">COST", "REASON"],
        [
            [
                job["job_id"],
                job["name"],
                job["project"],
                state_text(job["state"]),
                f"{job['reported_steps']}/{job['declared_steps']}",
                chain_text(job["chain"]),
                format_duration(max(time.time() - job["submitted_at_s"], 0.0)),
                seconds(job["measured_iteration_s"] or job["predicted_iteration_s"]),
                format_usd(job["cost_usd"]["total"]),
                _main_reason(job),
            ]
            for job in documents
        ],
        empty="No jobs. `bace submit FILE` adds one.",
    )


def job_page(job: Document) -> Iterator[RenderableType]:
    """One job: where it is, its chain and why, what it has cost, and its generations."""
    yield Text.assemble((printable(job["name"]), "bold"), "  ", state_text(job["state"]))
    yield facts(_job_facts(job))
    if job["chain"]:
        yield heading("Chain")
        yield from chain_page(job["placement"], job["why"])
    if job["promised"]:
        yield heading("Goes on here when what it needs has been left")
        yield from chain_page(job["promised"]["placement"], job["promised"]["why"])
    if job["reasons"]:
        yield heading("Why it is not running" if job["state"] in WAITING_STATES else "Reasons")
        yield from reasons_page(job["reasons"])
    if job["energy_kwh"]["by_region"] or job["cost_usd"]["by_region"]:
        yield heading("Energy and cost so far")
        yield spent_table(job["energy_kwh"], job["cost_usd"])
        if job["cost_usd"]["unpriced_entries"]:
            yield "For a part of it no price was known; that part counts as $0 (`bace prices set`)."
    if job["allocations"]:
        yield heading("Generations")
        yield _generations(job["allocations"])
        yield from _stops(job["allocations"])


def _job_facts(job: Document) -> Iterable[tuple[str, object]]:
    yield "id", job["job_id"]
    yield "project", job["project"]
    yield "priority", job["priority"]
    yield "submitted", format_time(job["submitted_at_s"])
    if job["queue_position"] is not None:
        yield "in the queue", f"position {job['queue_position']}"
    yield "waited", seconds(job["queueing_s"])
    if job["reported_steps"] or job["state"] not in WAITING_STATES:
        yield "completion time", seconds(job["jct_s"])
    yield (
        "steps",
        f"{job['reported_steps']} of {job['declared_steps']}, checkpoint at {job['checkpoint_step']}",
    )
    yield "loss", _losses(job)
    yield "gradient norm", None if job["last_grad_norm"] is None else f"{job['last_grad_norm']:.3g}"
    yield "iteration", iteration_text(job["predicted_iteration_s"], job["measured_iteration_s"])
    yield "throughput", _throughput(job)
    yield "codec", codec_text(job["spec"])
    yield "updates", updates_text(job["spec"])
    yield "drift", lateness_text(job)
    yield "retries", job["retries"] or None
    yield "preempted", _times(job["preemptions"])
    yield "moved", _times(job["moves"])
    yield "stopped because", job["stop_cause"]
    yield "checkpoint", job["checkpoint_uri"]


def _throughput(job: Document) -> str | None:
    if job["tokens_per_s"] is None:
        return None
    used = "MFU –: the peak of its GPUs is not known" if job["mfu"] is None else f"{job['mfu']:.1%} MFU"
    return f"{job['tokens_per_s']:,.0f} tokens/s, {used}"


def codec_text(job: Document) -> str | None:
    """The codec that a completed job asks for, and that it is no mere matter of speed."""
    codec = job["parallelism"].get("codec")
    if codec is None:
        return None
    rank, hidden = codec["mapl"]["rank"], job["model"]["hidden"]
    return f"mapl, {rank} of {hidden} numbers a token between regions; it changes what is learned"


def updates_text(job: Document) -> str | None:
    """The rule of updates that a completed job asks for, what it does, and that it is no mere matter of speed."""
    updates = job["run"].get("updates")
    if updates is None:
        return None
    known = {
        "paci": "each backward multiplies with newer weights than its forward",
        "2bw": "each gradient is one update late",
        "prediction": "each forward sees weights that are guessed ahead",
        "stashing": "each gradient is late by what is in flight",
    }[updates["rule"]]
    every = "each micro-batch" if updates["every"] == 1 else f"each {updates['every']} micro-batches"
    return f"{updates['rule']}, {every}: {known}; it changes what is learned (docs/asynchrony.md)"


def lateness_text(told: Document) -> str | None:
    """`at most 3 updates between a forward and its backward (bound 5); 2 updates taken back`, of a job or a step."""
    if told["drift"] is None:
        return None
    drift = (
        f"at most {told['drift']} updates between a forward and its backward (bound {told['drift_bound']})"
    )
    return f"{drift}; {told['rolled_back']} updates taken back" if told["rolled_back"] else drift


def plan_page(plan: Document) -> Iterator[RenderableType]:
    """A dry run: what would happen to the job now."""
    if plan["decision"] == "start":
        when = "Would start now" if plan["at_once"] else "Would start when room has been made"
        yield Text.assemble((when, "bold green"), f"  (policy {printable(plan['policy'])})")
        yield from chain_page(plan["placement"], plan["why"])
        yield facts(_plan_facts(plan))
        if plan["displaces"]:
            yield heading("What it would do to other jobs")
            yield _displaced(plan["displaces"])
    else:
        words = {"hold": ("Would wait", "bold yellow"), "reject": ("Could never run", "bold red")}[
            plan["decision"]
        ]
        yield Text.assemble(words, f"  (policy {printable(plan['policy'])})")
        if plan["position"] is not None:
            yield f"Position {plan['position']} of {plan['queue_length']} in the queue."
        yield from reasons_page(plan["reasons"])
    yield from unheeded(plan["not_planned_by"])


def unheeded(limits: list[str]) -> Iterator[RenderableType]:
    """The limits of a job that the server's policy does not plan by."""
    if limits:
        told = (
            f"Not heeded by this server's policy: {', '.join(limits)}. horizon plans by them (docs/jobs.md)."
        )
        yield Text(told, style="yellow")


def _plan_facts(plan: Document) -> Iterable[tuple[str, object]]:
    yield "stages", f"{plan['stages']} on {plan['gpus']} GPUs"
    yield "codec", codec_text(plan["job"])
    yield "updates", updates_text(plan["job"])
    yield "iteration", seconds(plan["iteration_s"])
    yield "bubble", f"{plan['bubble_fraction']:.0%}" if plan["bubble_fraction"] is not None else None
    yield "duration", seconds(plan["duration_s"])
    yield "ends at", format_time(plan["finish_at_s"]) if plan["finish_at_s"] is not None else None
    yield "cost an hour", _spent(plan["usd_per_hour"])
    yield "cost in all", _spent(plan["cost_usd"])
    yield "energy", f"{plan['energy_kwh']['total']:.4g} kWh" if plan["energy_kwh"] else None
    yield "no price known for", ", ".join(plan["unpriced_regions"])


def _displaced(displaced: list[Document]) -> RenderableType:
    return table(
        ["JOB", "WOULD BE", "FROM", "TO", "WHY"],
        [
            [one["job_id"], one["effect"], one["from_chain"], one["to_chain"] or "the queue", one["why"]]
            for one in displaced
        ],
    )


def explanation_page(explanation: Document) -> Iterator[RenderableType]:
    """Why a job waits, and what would let it start."""
    head = Text.assemble(printable(explanation["job_id"]), "  ", state_text(explanation["state"]))
    if explanation["position"] is not None and explanation["queue_length"] is not None:
        head.append(f"  position {explanation['position']} of {explanation['queue_length']}")
    yield head
    if explanation["state"] not in WAITING_STATES:
        yield "It does not wait: `bace job` shows where it runs, what it has cost, and how it ended."
    yield from reasons_page(explanation["reasons"])
    if explanation["regions"]:
        yield heading("Regions")
        yield table(
            ["REGION", ">FREE GPUS", ">STAGES", "WHAT STANDS BETWEEN"],
            [
                [one["region"], one["free_gpus"], one["stages"], _verdict(one["reasons"])]
                for one in explanation["regions"]
            ],
        )
    if explanation["would_start"]:
        yield heading("It would start with one of")
        yield from (f"  {printable(fix)}" for fix in explanation["would_start"])
    if explanation["blocking_jobs"]:
        yield heading("Jobs that hold what it needs")
        yield from (f"  {printable(job_id)}" for job_id in explanation["blocking_jobs"])


def reasons_page(reasons: list[Document]) -> Iterator[RenderableType]:
    """Reason codes with what they say; of a failure also the last lines of the log."""
    if reasons:
        yield table(["REASON", "DETAIL"], [[reason["code"], reason["detail"]] for reason in reasons])
    for reason in reasons:
        if reason.get("last_lines"):
            where = "" if reason.get("stage") is None else f" of stage {reason['stage']}"
            yield heading(f"Last lines{where}")
            yield from (f"  {printable(line)}" for line in reason["last_lines"])


def chain_page(placement: Document | None, why: str | None) -> Iterator[RenderableType]:
    """The regions in pipeline order with their stages, the cuts between them, and why."""
    if placement is None:
        return
    rows: list[list[object]] = []
    cuts = iter(placement["cuts"])
    first = 0
    segments = placement["segments"]
    for index, segment in enumerate(segments):
        last = first + segment["stages"] - 1
        stages = f"{first}" if first == last else f"{first}–{last}"
        following = segments[index + 1] if index + 1 < len(segments) else None
        crossing = ""
        if following is not None and following["region"] != segment["region"]:
            cut = next(cuts)
            crossing = f"{format_bandwidth(cut['bandwidth_bps'])}, {seconds(cut['latency_s'])} → {cut['dst']}"
        gpus = segment["stages"] * segment["gpus_per_stage"]
        rows.append([segment["region"], stages, f"{gpus} × {segment['gpu_type']}", crossing])
        first = last + 1
    yield table(["REGION", "STAGES", "GPUS", "CUT"], rows)
    yield Text.assemble(("Schedule: ", "bold"), schedule_text(placement))
    if why:
        yield Text.assemble(("Why: ", "bold"), printable(why))


def schedule_text(placement: Document) -> str:
    """What the stages run, and that more than one part of the model stands on each."""
    parts = len(placement["window"]) // sum(segment["stages"] for segment in placement["segments"])
    more = f", {parts} parts of the model on every stage" if parts > 1 else ""
    return f"{printable(placement['schedule'])}{more}"


def chain_text(chain: list[Document]) -> Text:
    """`london·2 → paris·1`: the regions of a chain, each in its own colour."""
    text = Text("–" if not chain else "")
    for index, part in enumerate(chain):
        if index:
            text.append(" → ", style="dim")
        text.append(
            f"{printable(part['region'])}·{part['stages']}", style=CHAIN_COLOURS[index % len(CHAIN_COLOURS)]
        )
    return text


def spent_table(energy: Document, cost: Document) -> RenderableType:
    """Energy and dollars by region, with the total."""
    regions = sorted({*energy["by_region"], *cost["by_region"]})
    nothing = {"electricity": 0.0, "egress": 0.0, "rent": 0.0, "total": 0.0}
    rows = [
        _spent_row(region, energy["by_region"].get(region, 0.0), cost["by_region"].get(region, nothing))
        for region in regions
    ]
    rows.append(_spent_row("total", energy["total"], cost))
    return table(["REGION", ">ENERGY", ">ELECTRICITY", ">EGRESS", ">RENT", ">TOTAL"], rows)


def iteration_text(predicted_s: float | None, measured_s: float | None) -> str | None:
    """`840ms predicted, 880ms measured (+4.8 %)`."""
    if predicted_s is None:
        return None
    if not measured_s:
        return f"{format_duration(predicted_s)} predicted"
    difference = f"{measured_s / predicted_s - 1:+.1%}" if predicted_s > 0 else "–"
    return f"{format_duration(predicted_s)} predicted, {format_duration(measured_s)} measured ({difference})"


def seconds(duration_s: float | None) -> str | None:
    """A duration for people; nothing where it is not known."""
    return None if duration_s is None else format_duration(duration_s)


def useful_commands(job_id: str) -> Iterator[RenderableType]:
    """What one does next with a job."""
    yield heading("Useful commands")
    yield from (
        f"  bace {verb} {job_id}{rest}"
        for verb, rest in (("job", ""), ("logs", " --follow"), ("explain", ""), ("cancel", ""))
    )


def _generations(allocations: list[Document]) -> RenderableType:
    return table(
        [">GENERATION", "STATE", "CHAIN", ">FROM STEP", "STARTED", ">HELD"],
        [
            [
                allocation["generation"],
                state_text(allocation["state"]),
                chain_text(allocation["chain"]),
                allocation["first_step"],
                format_time(allocation["created_at_s"]),
                format_duration(
                    max((allocation["ended_at_s"] or time.time()) - allocation["created_at_s"], 0.0)
                ),
            ]
            for allocation in allocations
        ],
    )


def _stops(allocations: list[Document]) -> Iterator[RenderableType]:
    """Why each generation that was told to stop was."""
    for allocation in allocations:
        if allocation["stop_cause"]:
            why = allocation["stop_why"] or allocation["stop_cause"]
            yield printable(f"  {allocation['generation']}: {why}")


def _spent_row(name: str, energy_kwh: float, spent: Document) -> list[object]:
    amounts = [format_usd(spent[kind]) for kind in ("electricity", "egress", "rent", "total")]
    return [name, f"{energy_kwh:.4g} kWh", *amounts]


def _spent(spent: Document | None) -> str | None:
    if spent is None:
        return None
    parts = [f"{kind} {format_usd(spent[kind])}" for kind in ("electricity", "egress", "rent") if spent[kind]]
    return format_usd(spent["total"]) + (f"  ({', '.join(parts)})" if parts else "")


def _times(count: int) -> str | None:
    return f"{count} time{'' if count == 1 else 's'}" if count else None


def _losses(job: Document) -> str | None:
    if job["first_loss"] is None or job["last_loss"] is None:
        return None
    return f"{job['first_loss']:.4g} → {job['last_loss']:.4g}"


def _verdict(reasons: list[Document]) -> str:
    return "; ".join(f"{reason['code']}: {reason['detail']}" for reason in reasons) or "nothing"


def _main_reason(job: Document) -> str:
    return str(job["reasons"][0]["code"]) if job["reasons"] else ""
