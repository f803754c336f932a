"""Hostile or broken inputs: each is answered by a problem that names the field, and nothing is stored."""

from __future__ import annotations

import asyncio
import json
from dataclasses import dataclass, field
from typing import Any

import pytest

from service import limits
from tests.api_server import Server
from tests.control_world import job_document

JSON = {"Content-Type": "application/json"}


def _text(document: Any) -> bytes:
    return json.dumps(document).encode()


def _job(**changes: Any) -> bytes:
    return _text(job_document(**changes))


def _without(name: str) -> bytes:
    document = job_document()
    del document[name]
    return _text(document)


def _with_text(old: str, new: str) -> bytes:
    """The job's JSON text with a piece replaced: for what json.dumps would not write."""
    text = json.dumps(job_document())
    assert old in text
    return text.replace(old, new, 1).encode()


@dataclass(frozen=True)
class Hostile:
    """A request, and what the problem must name."""

    body: bytes
    pointer: str
    path: str = "/v1/jobs"
    method: str = "POST"
    status: int = 422
    where: str = "body"
    headers: dict[str, str] = field(default_factory=lambda: dict(JSON))


def _put(path: str, document: Any, pointer: str, **more: Any) -> Hostile:
    return Hostile(_text(document), pointer, path, "PUT", **more)


def _model(**changes: Any) -> bytes:
    return _job(model={**job_document()["model"], **changes})


def _command(**run: Any) -> bytes:
    return _job(run={"command": ["train"], **run})


PRICE = {"kind": "electricity", "region": "eu-west", "value": 0.2}
LINK = {"capacity_bps": 1e9, "latency_s": 0.01}

CASES: dict[str, Hostile] = {
    # a job that cannot be meant
    "unknown field": Hostile(_job(colour="red"), "/colour"),
    "unknown field below": Hostile(_job(training={"stepps": 3}), "/training/stepps"),
    "zero steps": Hostile(_job(training={"steps": 0}), "/training/steps"),
    "negative GPUs": Hostile(_job(parallelism={"tensor": -4}), "/parallelism/tensor"),
    "stages above the layers": Hostile(_job(parallelism={"stages": 7}), "/parallelism/stages"),
    "a stage range upside down": Hostile(_job(parallelism={"stages": "8..2"}), "/parallelism/stages"),
    "a region no one has": Hostile(_job(placement={"regions": ["atlantis"]}), "/placement/regions/0"),
    "a missing model": Hostile(_without("model"), "/model"),
    "an unknown preset": Hostile(_job(model={"preset": "gpt-9000"}), "/model/preset"),
    "heads that do not divide": Hostile(_model(kv_heads=3), "/model/kv_heads"),
    "a wrong type": Hostile(_job(training={"steps": "many"}), "/training/steps"),
    "a boolean for a number": Hostile(_job(priority=True), "/priority"),
    "../ in the name": Hostile(_job(name="../../etc/passwd"), "/name"),
    "../ in the project": Hostile(_job(project="../nlp"), "/project"),
    "../ in the corpus": Hostile(
        _job(run={"builtin": "gpt", "corpus": "/data/../../etc/shadow"}), "/run/corpus"
    ),
    "a corpus elsewhere": Hostile(_job(run={"builtin": "gpt", "corpus": "http://x/y"}), "/run/corpus"),
    "a checkpoint elsewhere": Hostile(_job(checkpoint={"uri": "gopher://x/y"}), "/checkpoint/uri"),
    "control characters": Hostile(_job(name="a\u001b[2Jb"), "/name"),
    "a right-to-left override": Hostile(_job(name="a\u202eb"), "/name"),
    "a newline in the name": Hostile(_job(name="a\nb"), "/name"),
    "an empty command": Hostile(_job(run={"command": []}), "/run/command"),
    "a variable that loads code": Hostile(_command(env={"LD_PRELOAD": "/tmp/x.so"}), "/run/env/LD_PRELOAD"),
    "a variable that the agent sets": Hostile(_command(env={"PATH": "/tmp"}), "/run/env/PATH"),
    "a variable of the agent's": Hostile(_command(env={"LD_PRELOAD\u0000": "x"}), "/run/env/LD_PRELOAD\x00"),
    "the rank as a variable": Hostile(_command(env={"RANK": "7"}), "/run/env/RANK"),
    "a secret in the clear": Hostile(_command(secrets={"KEY": "hunter2"}), "/run/secrets/KEY"),
    "a long field": Hostile(_job(name="n" * 500_000), "/name"),
    "a deadline without a zone": Hostile(_job(deadline="2030-01-01T00:00:00"), "/deadline"),
    # what this version cannot honour
    "an image": Hostile(_command(image="docker.io/x"), "/run/image"),
    "more grace than a lease allows": Hostile(_job(stop={"grace": "3000s"}), "/stop/grace"),
    # what is no JSON, or not ours
    "an empty body": Hostile(b"", ""),
    "no JSON": Hostile(b"name: yaml", ""),
    "a list": Hostile(b"[]", ""),
    "no UTF-8": Hostile(b'{"name": "\xff"}', ""),
    "deep nesting": Hostile(b"[" * 100_000 + b"]" * 100_000, ""),
    "nesting in a field": Hostile(_job(model=json.loads("[" * 60 + "]" * 60)), "/model" + "/0" * 31),
    "a duplicate key": Hostile(_with_text('"name": "tiny"', '"name": "tiny", "name": "other"'), "/name"),
    "NaN": Hostile(_with_text('"steps": 4', '"steps": NaN'), ""),
    "infinity by exponent": Hostile(_with_text('"steps": 4', '"steps": 1e999'), "/training/steps"),
    "a huge number": Hostile(_with_text('"steps": 4', '"steps": ' + "9" * 5000), "/training/steps"),
    "beyond 2^53": Hostile(_with_text('"steps": 4', f'"steps": {2**53 + 1}'), "/training/steps"),
    "a NUL character": Hostile(_job(name="a\u0000b"), "/name"),
    "a lone surrogate": Hostile(_with_text('"name": "tiny"', '"name": "\\ud800"'), "/name"),
    "10 MB": Hostile(_job(name="n" * 10_000_000), "", status=413),
    "a form": Hostile(b"name=x", "", headers={"Content-Type": "application/x-www-form-urlencoded"}),
    # other objects
    "NaN bandwidth": Hostile(
        b'{"capacity_bps": NaN, "latency_s": 0}', "", "/v1/links/eu-west/eu-north", "PUT"
    ),
    "negative bandwidth": _put("/v1/links/eu-west/eu-north", LINK | {"capacity_bps": -1}, "/capacity_bps"),
    "a link into itself": _put("/v1/links/eu-west/eu-west", LINK, "/dst", where="path"),
    "a link to nowhere": _put("/v1/links/eu-west/atlantis", LINK, "", status=404),
    "a PUE below 1": _put("/v1/regions/eu-west", {"pue": 0.5}, "/pue"),
    "../ in a region": _put("/v1/regions/%2e%2e%2fetc", {"pue": 1.1}, "", status=404),
    "a region in capitals": _put("/v1/regions/EU", {"pue": 1.1}, "/region", where="path"),
    "a price of nowhere": _put("/v1/prices", PRICE | {"region": "atlantis"}, "/region"),
    "a price in another unit": _put("/v1/prices", PRICE | {"unit": "usd_per_gb"}, "/unit"),
    "a rent without a GPU type": _put("/v1/prices", PRICE | {"kind": "rent"}, "/gpu_type"),
    "times out of order": Hostile(
        _text(
            {"kind": "electricity", "region": "eu-west"}
            | {"points": [{"valid_from_s": 7200, "value": 1}, {"valid_from_s": 3600, "value": 1}]}
        ),
        "/points/1/valid_from_s",
        "/v1/prices/import",
    ),
    "a CSV with a gap": Hostile(
        b"timestamp_utc,eu-west\n2026-01-01T00:00Z,1\n2026-01-01T02:00Z,1\n",
        "/timestamp_utc",
        "/v1/prices/import?kind=electricity&region=eu-west",
        headers={"Content-Type": "text/csv"},
    ),
    "a role nobody has": Hostile(_text({"name": "x", "role": "root"}), "/role", "/v1/tokens"),
    "a submitter of no project": Hostile(_text({"name": "x", "role": "submitter"}), "/project", "/v1/tokens"),
    "a page without end": Hostile(b"", "/limit", "/v1/jobs?limit=1000000", "GET", where="query"),
    "a forged cursor": Hostile(b"", "/cursor", "/v1/jobs?cursor=e30", "GET", where="query"),
    "a state nobody has": Hostile(b"", "/state/0", "/v1/jobs?state=asleep", "GET", where="query"),
    "a key with spaces": Hostile(
        _job(), "/idempotency-key", headers=JSON | {"Idempotency-Key": "a b"}, where="header"
    ),
    "a version that is none": Hostile(
        b"", "/if-match", "/v1/jobs/job-0/cancel", headers={"If-Match": "banana"}, where="header"
    ),
}


@pytest.fixture(scope="module")
def hostile_world(standing: Server) -> Server:
    """Two regions, and otherwise nothing: whatever comes, its rows stay as they are."""

    async def regions() -> None:
        async with standing.client() as client:
            for region in ("eu-west", "eu-north"):
                assert (await client.put(f"/v1/regions/{region}", json={})).status_code == 201

    asyncio.run(regions())
    return standing


@pytest.mark.parametrize("name", CASES)
async def test_a_hostile_input_is_refused_by_name_and_nothing_is_stored(
    hostile_world: Server, name: str
) -> None:
    case, server = CASES[name], hostile_world
    server.stand()
    before = server.rows()
    async with server.client() as client:
        answer = await client.request(case.method, case.path, content=case.body, headers=case.headers)
    after = server.rows()
    assert answer.status_code == case.status, answer.text
    assert answer.headers["Content-Type"] == "application/problem+json"
    problem = answer.json()
    assert (problem["status"], problem["instance"][:4]) == (case.status, "/v1/")
    assert problem["code"]
    assert problem["detail"]
    assert problem["trace_id"] == answer.headers["X-Request-Id"]
    if case.status == 422:
        named = {(error["where"], error["pointer"]) for error in problem["errors"]}
        assert (case.where, case.pointer) in named, named
        assert all(error["detail"] for error in problem["errors"])
    assert len(answer.content) < 8_000, "a refused value comes back shortened"
    assert after == before


async def test_a_key_used_with_another_body_stores_nothing(server: Server) -> None:
    async with server.client("nlp") as client:
        headers = {"Idempotency-Key": "once"}
        assert (await client.post("/v1/jobs", json=job_document(), headers=headers)).status_code == 201
        before = server.rows()
        answer = await client.post("/v1/jobs", json=job_document(priority=1), headers=headers)
        assert answer.status_code == 422
        assert "Idempotency-Key" in answer.json()["detail"]
        assert server.rows() == before


async def test_a_body_that_lies_about_its_length_is_cut_off(server: Server) -> None:
    async def endless() -> Any:
        for _ in range(limits.MAX_BODY_BYTES // 65_536 + 2):
            yield b" " * 65_536

    async with server.client() as client:
        answer = await client.post("/v1/jobs", content=endless(), headers=JSON)
    assert (answer.status_code, answer.json()["code"]) == (413, "too_large")


@pytest.mark.parametrize(
    ("method", "path", "status", "code"),
    [("GET", "/v1/nothing", 404, "not_found"), ("DELETE", "/v1/jobs", 405, "method_not_allowed")],
)
async def test_the_frameworks_refusals_are_problems_too(
    server: Server, method: str, path: str, status: int, code: str
) -> None:
    async with server.client() as client:
        answer = await client.request(method, path)
    assert (answer.status_code, answer.json()["code"]) == (status, code)
    assert answer.headers["Content-Type"] == "application/problem+json"


async def test_a_defect_is_a_problem_without_its_insides(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: Any, **__: Any) -> None:
        raise RuntimeError("secret insides")

    monkeypatch.setattr("service.jobs.list_page", broken)
    client = server.client(raise_app_exceptions=False)
    async with client:
        answer = await client.get("/v1/jobs")
    assert (answer.status_code, answer.json()["code"]) == (500, "internal_error")
    assert "secret insides" not in answer.text
    assert answer.json()["trace_id"] == answer.headers["X-Request-Id"]
