"""Checkpoints of real gangs in a bucket: of an S3 server whose address and keys stand in a file of the node."""

from __future__ import annotations

import hashlib
import json
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import boto3  # type: ignore[import-untyped]
import httpx
import pytest

from agents.worker.checkpoint.store import MANIFEST
from tests.gangs import free_port, until

pytestmark = pytest.mark.xdist_group("stage-workers")

TOLERANCE = 1e-4
ENDLESS = 100_000
NAME = "checkpoints"


@dataclass(frozen=True)
class Bucket:
    """A bucket, and what a worker is told of its server."""

    client: Any
    config: Path
    uri: str
    prefix: str

    @property
    def env(self) -> dict[str, str]:
        return {"AWS_CONFIG_FILE": str(self.config), "AWS_EC2_METADATA_DISABLED": "true"}

    def keys(self, within: str = "") -> list[str]:
        """Of the objects below the checkpoints' address."""
        pages = self.client.get_paginator("list_objects_v2").paginate(
            Bucket=NAME, Prefix=f"{self.prefix}/{within}"
        )
        return [
            each["Key"].removeprefix(f"{self.prefix}/") for page in pages for each in page.get("Contents", [])
        ]

    def read(self, key: str) -> bytes:
        content: bytes = self.client.get_object(Bucket=NAME, Key=f"{self.prefix}/{key}")["Body"].read()
        return content

    def write(self, key: str, content: bytes) -> None:
        self.client.put_object(Bucket=NAME, Key=f"{self.prefix}/{key}", Body=content)

    def remove(self, key: str) -> None:
        self.client.delete_object(Bucket=NAME, Key=f"{self.prefix}/{key}")

    def complete(self) -> list[int]:
        """Steps that have a manifest."""
        manifests = [key for key in self.keys() if key.endswith(f"/{MANIFEST}")]
        return sorted(int(key.partition("/")[0].removeprefix("step-")) for key in manifests)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of an S3 server: a process of its own, as MinIO would be."""
    port = free_port()
    log = tmp_path_factory.mktemp("s3") / "log.txt"
    command = [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(port)]
    with log.open("wb") as output:
        process = subprocess.Popen(command, stdout=output, stderr=output)
    url = f"http://127.0.0.1:{port}"

    def answers() -> bool:
        assert process.poll() is None, log.read_text()
        try:
            return httpx.get(f"{url}/moto-api/data.json", trust_env=False).is_success
        except httpx.TransportError:
            return False

    try:
        until(answers, "the S3 server")
        yield url
    finally:
        process.terminate()
        process.wait()


@pytest.fixture
def bucket(server: str, tmp_path: Path) -> Bucket:
    config = tmp_path / "aws-config"
    config.write_text(
        f"[default]\nregion = us-east-1\nendpoint_url = {server}\n"
        "aws_access_key_id = node\naws_secret_access_key = secret\n"
    )
    client = boto3.client(
        "s3", endpoint_url=server, region_name="us-east-1",
        aws_access_key_id="node", aws_secret_access_key="secret",
    )  # fmt: skip
    client.create_bucket(Bucket=NAME)
    return Bucket(client, config, f"s3://{NAME}/{tmp_path.name}", tmp_path.name)


def run(gangs: Any, bucket: Bucket, stages: int, **changes: Any) -> list[Any]:
    plan = gangs.plan(stages, checkpoint_uri=bucket.uri, **changes)
    workers: list[Any] = gangs.start(plan, stages, env=bucket.env)
    assert [worker.exit_code() for worker in workers] == [0] * stages, workers[0].log.read_text()
    return workers


def test_the_last_ones_stay_and_another_cut_goes_on_from_the_newest(gangs: Any, bucket: Bucket) -> None:
    first = run(gangs, bucket, 2, steps=9, checkpoint_every=3, checkpoint_keep=2)

    assert bucket.complete() == [6, 9]
    assert not bucket.keys("step-00000003"), "nothing is left of what was dropped"
    told = [(line["step"], line["uri"]) for line in first[0].reports("checkpoint")]
    assert told == [(step, f"{bucket.uri}/step-{step:08d}") for step in (3, 6, 9)]

    resumed = run(gangs, bucket, 1, steps=12, checkpoint_every=3, resume_step=9, checkpoint_keep=2)

    assert bucket.complete() == [9, 12]
    (undisturbed,) = gangs.start(gangs.plan(1, steps=12), 1)
    assert undisturbed.exit_code() == 0
    assert first[1].losses | resumed[0].losses == pytest.approx(undisturbed.losses, abs=TOLERANCE)


def test_a_stopped_gang_leaves_a_checkpoint_to_go_on_from(gangs: Any, bucket: Bucket) -> None:
    plan = gangs.plan(2, steps=ENDLESS, checkpoint_every=ENDLESS, checkpoint_uri=bucket.uri)
    workers = gangs.start(plan, 2, env=bucket.env)
    gangs.until(lambda: len(workers[1].losses) >= 3, "three steps")
    workers[1].send(signal.SIGTERM)
    assert [worker.exit_code() for worker in workers] == [0, 0], workers[0].log.read_text()

    last = max(workers[1].losses)
    assert bucket.complete() == [last]
    resumed = run(gangs, bucket, 2, steps=last + 2, resume_step=last)
    assert list(resumed[1].losses) == [last + 1, last + 2]


def test_a_damaged_object_is_found_and_written_again(gangs: Any, bucket: Bucket) -> None:
    first = run(gangs, bucket, 2, steps=6, checkpoint_every=3)
    (head,) = (key for key in bucket.keys("step-00000006") if key.endswith("/head.safetensors"))
    content = bytearray(bucket.read(head))
    content[-1] ^= 1
    bucket.write(head, bytes(content))

    resumed = run(gangs, bucket, 2, steps=8, checkpoint_every=3, resume_step=6)

    assert list(resumed[1].losses) == [4, 5, 6, 7, 8]
    again = {step: resumed[1].losses[step] for step in (4, 5, 6)}
    assert again == pytest.approx({step: first[1].losses[step] for step in (4, 5, 6)}, abs=TOLERANCE)
    (told,) = resumed[0].reports("checkpoint-damaged")
    assert told["step"] == 6
    assert head in told["detail"]
    assert "SHA-256" in told["detail"]
    manifest = json.loads(bucket.read(f"step-00000006/{MANIFEST}"))
    anew = bucket.read(f"step-00000006/{manifest['folder']}/head.safetensors")
    assert hashlib.sha256(anew).hexdigest() == manifest["files"]["head.safetensors"]["sha256"]


@pytest.mark.parametrize("torn", [MANIFEST, "layer-0001.safetensors"])
def test_a_torn_upload_counts_for_nothing_and_is_removed(gangs: Any, bucket: Bucket, torn: str) -> None:
    """What a gang that was killed leaves: objects without a manifest; or a manifest without one of its objects."""
    run(gangs, bucket, 2, steps=4, checkpoint_every=2)
    for key in bucket.keys("step-00000004"):
        if key.endswith(f"/{torn}"):
            bucket.remove(key)
    left = bucket.keys("step-00000004")
    assert left

    resumed = run(gangs, bucket, 2, steps=6, checkpoint_every=2, checkpoint_keep=1, resume_step=4)

    assert list(resumed[1].losses) == [3, 4, 5, 6]
    assert bucket.complete() == [6]
    assert not bucket.keys("step-00000004")


def test_killed_while_it_trains_it_goes_on_from_what_is_complete(gangs: Any, bucket: Bucket) -> None:
    plan = gangs.plan(2, steps=ENDLESS, checkpoint_every=2, checkpoint_uri=bucket.uri)
    workers = gangs.start(plan, 2, env=bucket.env)
    gangs.until(lambda: len(workers[0].reports("checkpoint")) >= 2, "two checkpoints")
    for worker in workers:
        worker.send(signal.SIGKILL)
    for worker in workers:
        worker.exit_code()
    told = workers[0].reports("checkpoint")[-1]["step"]
    complete = max(bucket.complete())
    assert complete >= told, "what was told of is there"

    resumed = run(gangs, bucket, 2, steps=complete + 2, checkpoint_every=2, resume_step=complete)

    assert list(resumed[1].losses) == [complete + 1, complete + 2]


@pytest.mark.parametrize(
    ("config", "address", "told"),
    [
        pytest.param("", f"s3://{NAME}", "Unable to locate credentials", id="no-credentials"),
        pytest.param(None, "s3://chekpoints", "bucket does not exist", id="no-such-bucket"),
    ],
)
def test_what_cannot_be_written_ends_the_gang_with_the_reason(
    gangs: Any, bucket: Bucket, config: str | None, address: str, told: str
) -> None:
    if config is not None:
        bucket.config.write_text(config)

    (worker,) = gangs.start(gangs.plan(1, steps=4, checkpoint_uri=f"{address}/x"), 1, env=bucket.env)

    assert worker.exit_code() == 18, worker.log.read_text()
    assert worker.end["cause"] == "checkpoint-unwritable"
    assert told in worker.end["detail"]
    assert [each["Name"] for each in bucket.client.list_buckets()["Buckets"]] == [NAME]
