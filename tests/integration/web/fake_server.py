"""The dashboard over canned documents: every one of them passes the API's own schema before it is sent."""

from __future__ import annotations

import asyncio
import math
import threading
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import uvicorn
from fastapi import FastAPI, Header, HTTPException, Query
from fastapi.responses import StreamingResponse

from scheduler.pipeline.plan.layouts import line
from scheduler.pipeline.plan.order_run import run_order
from scheduler.pipeline.plan.picture import svg
from scheduler.pipeline.plan.split_orders import zb_h1
from service.api.schemas.cluster import LINK, NODE, REGION, Link, Node, Region
from service.api.schemas.events import Event
from service.api.schemas.jobs import JOB, LOG_LINE, STEP, Job, LogLine, Step
from service.api.schemas.prices import SERIES, PriceHistory, PriceSeries
from service.api.schemas.schedules import COMPARISON, SCHEDULE, Comparison
from service.web import mount
from tests.plans import UNIT, links_between, pipeline_of

TOKEN = "bace_viewer"
REGIONS = {"frankfurt": 0.2, "london": 0.28, "paris": 0.09}
DAY_S = 86400.0

Document = dict[str, Any]


@dataclass
class World:
    """What the fake server tells."""

    jobs: list[Document] = field(default_factory=list)
    steps: list[Document] = field(default_factory=list)
    log: list[Document] = field(default_factory=list)
    events: list[Document] = field(default_factory=list)
    regions: list[Document] = field(default_factory=list)
    nodes: list[Document] = field(default_factory=list)
    links: list[Document] = field(default_factory=list)
    prices: list[Document] = field(default_factory=list)
    schedules: Document = field(default_factory=dict)
    """What is told of the schedules of every job; without any it is refused."""

    def page(self, items: list[Document]) -> Document:
        return {"items": items, "next": None}


def training_world(now_s: float) -> World:
    """Three regions; one job that runs over two of them, one that waits, one that has failed."""
    world = World()
    for name, value in REGIONS.items():
        used = {"frankfurt": 1, "paris": 2}.get(name, 0)
        gpus = {"total": 2, "used": used, "free": 2 - used, "unavailable": 0}
        pool = {**REGION["pools"][0], "region": name, "gpus": gpus}
        region = {**REGION, "region": name, "gpus": gpus, "pools": [pool], "electricity_usd_per_kwh": value}
        world.regions.append(_as(Region, region))
        world.nodes.append(_as(Node, {**NODE, "node_id": f"{name}-1", "region": name, "gpus": 2}))
        series = {**SERIES, "series_id": f"price-{name}", "region": name, "value_now": value}
        midnight_s = now_s - now_s % DAY_S
        points = [
            {
                "valid_from_s": midnight_s + hour * 3600,
                "known_at_s": 0.0,
                "value": value * (1 + 0.4 * math.sin(hour / 24 * 6.28)),
            }
            for hour in range(24)
        ]
        world.prices.append(_as(PriceHistory, {**series, "points": points}))
    for src in REGIONS:
        for dst in REGIONS:
            if src != dst:
                held = 2e9 if {src, dst} == {"paris", "frankfurt"} else 0.0
                world.links.append(
                    _as(Link, {**LINK, "src": src, "dst": dst, "reserved_bps": held, "free_bps": 5e9 - held})
                )
    world.jobs = [_as(Job, job) for job in (_running(now_s), _waiting(now_s), _failed(now_s))]
    for step in range(1, 38):
        world.steps.append(
            _as(Step, {**STEP, "step": step, "loss": 5.5 * math.exp(-step / 60), "at_s": now_s - 38 + step})
        )
        line = {**LOG_LINE, "seq": step, "line": step, "text": f"step {step} done", "at_s": now_s}
        world.log.append(_as(LogLine, line))
    world.events = [
        _event(1, "job.submitted", world.jobs[0], now_s - 60, {"name": world.jobs[0]["name"]}),
        _event(2, "job.running", world.jobs[0], now_s - 40, {"from": "starting", "to": "running"}),
    ]
    return world


def _running(now_s: float) -> Document:
    cut = {"src": "paris", "dst": "frankfurt", "bandwidth_bps": 2e9, "latency_s": 0.0045}
    segments = [
        {"region": "paris", "gpu_type": "cpu-slot", "stages": 2, "gpus_per_stage": 1},
        {"region": "frankfurt", "gpu_type": "cpu-slot", "stages": 1, "gpus_per_stage": 1},
    ]
    chain = [
        {"region": "paris", "gpu_type": "cpu-slot", "stages": 2, "gpus": 2},
        {"region": "frankfurt", "gpu_type": "cpu-slot", "stages": 1, "gpus": 1},
    ]
    placement = {**JOB["placement"], "segments": segments, "cuts": [cut]}
    allocation = {
        **JOB["allocations"][0],
        "placement": placement,
        "chain": chain,
        "created_at_s": now_s - 45,
        "running_at_s": now_s - 40,
    }
    energy = {"total": 0.002, "by_region": {"paris": 0.0014, "frankfurt": 0.0006}}
    spent = {"electricity": 0.0002, "egress": 0.0, "rent": 0.0, "total": 0.0002}
    return {
        **JOB,
        "submitted_at_s": now_s - 60,
        "first_started_at_s": now_s - 45,
        "placement": placement,
        "chain": chain,
        "allocations": [allocation],
        "energy_kwh": energy,
        "cost_usd": {**spent, "by_region": {"paris": spent, "frankfurt": spent}, "unpriced_entries": 0},
    }


def _waiting(now_s: float) -> Document:
    nothing = {"total": 0.0, "electricity": 0.0, "egress": 0.0, "rent": 0.0}
    return {
        **JOB,
        "job_id": "job-01waiting",
        "name": "llama-7b",
        "state": "queued",
        "submitted_at_s": now_s - 300,
        "first_started_at_s": None,
        "queue_position": 1,
        "reported_steps": 0,
        "checkpoint_step": 0,
        "chain": [],
        "placement": None,
        "why": None,
        "allocations": [],
        "predicted_iteration_s": None,
        "measured_iteration_s": None,
        "tokens_per_s": None,
        "mfu": None,
        "first_loss": None,
        "last_loss": None,
        "last_grad_norm": None,
        "reasons": [{"code": "GpusExhausted", "detail": "8 GPUs are free in 3 regions, 12 are needed"}],
        "cost_usd": {**nothing, "by_region": {}, "unpriced_entries": 0},
        "energy_kwh": {"total": 0.0, "by_region": {}},
    }


def _failed(now_s: float) -> Document:
    return {
        **_waiting(now_s),
        "job_id": "job-01failed",
        "name": "broken",
        "state": "failed",
        "queue_position": None,
        "finished_at_s": now_s - 100,
        "jct_s": 200.0,
        "reasons": [
            {
                "code": "StageFailed",
                "detail": "stage 1 ended with exit code 1",
                "stage": 1,
                "last_lines": ["Traceback", "ValueError: no such corpus"],
            }
        ],
    }


def compared_schedules() -> Document:
    """Three schedules that can be, of which one does not fit, and one that cannot; with a true picture of one."""
    layout = line(3)
    regions = ["paris", "paris", "frankfurt"]
    pipeline = pipeline_of(layout, UNIT, regions, links_between(regions, 0.4, 0.2))
    order = zb_h1(3, 8)
    gpipe = {**SCHEDULE, "schedule": "gpipe", "comes_to": "gpipe", "fits": False, "iteration_s": 0.5}
    strict = {**SCHEDULE, "schedule": "1f1b", "comes_to": "1f1b", "iteration_s": 1.0}
    auto = {**SCHEDULE, "schedule": "auto", "comes_to": "zb-h1", "iteration_s": 0.9}
    never = {
        **SCHEDULE, "schedule": "zb-v", "available": False, "comes_to": None, "iteration_s": None,
        "bubble_fraction": None, "peak_bytes": [], "fits": None, "links": [], "usd_per_1000_steps": None,
        "runs": "not", "note": "model.layers is 7, it needs a multiple of 6",
    }  # fmt: skip
    picture = {"schedule": "auto", "svg": svg("gpt-small: auto", pipeline, run_order(pipeline, order))}
    made = {**COMPARISON, "schedules": [gpipe, strict, never, auto], "picture": picture}
    return _as(Comparison, made)


def _event(seq: int, kind: str, job: Document, at_s: float, data: Document) -> Document:
    event = {
        "seq": seq,
        "project": "nlp",
        "at_s": at_s,
        "kind": kind,
        "object_kind": "job",
        "object_id": job["job_id"],
        "actor": "server",
        "data": data,
    }
    return _as(Event, event)


def _as(model: Any, document: Document) -> Document:
    shown: Document = model.model_validate(document).model_dump(mode="json")
    return shown


def make_app(world: World) -> FastAPI:
    """The dashboard and the routes that it reads."""
    app = FastAPI()

    def check(authorization: str | None) -> None:
        if authorization != f"Bearer {TOKEN}":
            raise HTTPException(401)

    def listing(path: str, items: list[Document]) -> None:
        @app.get(path)
        def read(authorization: str | None = Header(None)) -> Document:
            check(authorization)
            return world.page(items)

    listing("/v1/regions", world.regions)
    listing("/v1/nodes", world.nodes)
    listing("/v1/links", world.links)
    listing("/v1/prices", [_as(PriceSeries, one) for one in world.prices])

    @app.get("/v1/jobs")
    def jobs(authorization: str | None = Header(None)) -> Document:
        check(authorization)
        return world.page(world.jobs)

    @app.get("/v1/allocations")
    def allocations(authorization: str | None = Header(None)) -> Document:
        check(authorization)
        return world.page([one for job in world.jobs for one in job["allocations"]])

    @app.get("/v1/prices/{series_id}")
    def history(series_id: str, authorization: str | None = Header(None)) -> Document:
        check(authorization)
        return next(one for one in world.prices if one["series_id"] == series_id)

    @app.get("/v1/jobs/{job_id}")
    def job(job_id: str, authorization: str | None = Header(None)) -> Document:
        check(authorization)
        for one in world.jobs:
            if one["job_id"] == job_id:
                return one
        raise HTTPException(404)

    @app.get("/v1/jobs/{job_id}/steps")
    def steps(job_id: str, after: int = Query(0), authorization: str | None = Header(None)) -> Document:
        check(authorization)
        mine = job_id == world.jobs[0]["job_id"]
        return world.page([one for one in world.steps if mine and one["step"] > after])

    @app.get("/v1/jobs/{job_id}/logs")
    def logs(job_id: str, after: int = Query(0), authorization: str | None = Header(None)) -> Document:
        check(authorization)
        mine = job_id == world.jobs[0]["job_id"]
        return world.page([one for one in world.log if mine and one["seq"] > after])

    @app.get("/v1/jobs/{job_id}/schedules")
    def schedules(job_id: str, picture: str, authorization: str | None = Header(None)) -> Document:
        check(authorization)
        if not world.schedules:
            raise HTTPException(409)
        told = world.schedules["picture"]
        return {**world.schedules, "picture": {**told, "schedule": picture}}

    @app.get("/v1/events")
    def events(authorization: str | None = Header(None)) -> StreamingResponse:
        check(authorization)
        return StreamingResponse(_messages(world), media_type="text/event-stream")

    mount(app)
    return app


async def _messages(world: World) -> AsyncIterator[str]:
    sent = 0
    while True:
        for event in world.events[sent:]:
            yield f"id: {event['seq']}\nevent: {event['kind']}\ndata: {Event(**event).model_dump_json()}\n\n"
        sent = len(world.events)
        await asyncio.sleep(0.1)


@contextmanager
def serving(world: World) -> Iterator[str]:
    """The address of a running fake server."""
    config = uvicorn.Config(
        make_app(world), host="127.0.0.1", port=0, log_level="error", timeout_graceful_shutdown=0
    )
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    deadline = time.monotonic() + 30
    while not server.started:
        assert time.monotonic() < deadline, "the server has not started"
        time.sleep(0.01)
    port = server.servers[0].sockets[0].getsockname()[1]
    try:
        yield f"http://127.0.0.1:{port}"
    finally:
        server.should_exit = True
        server.force_exit = True
        thread.join(timeout=10)
