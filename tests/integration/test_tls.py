"""A server with a certificate of its own is spoken to by those who trust its authority, and by nobody else."""

from __future__ import annotations

import contextlib
import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import httpx
import pytest
import trustme
from pydantic import ValidationError

from agents.client import ServerClient
from agents.errors import SettingsError, UnreachableError
from agents.protocol import GpuTypeOffer, JoinRequest, NodeOffer
from scheduler.errors import InvalidValueError
from service.cli.api import Api
from service.cli.exits import CommandError, Exit
from service.server import check_listening, serve
from service.settings import Settings

PATIENCE_S = 60.0


@dataclass(frozen=True)
class Certificate:
    """Files of a server's certificate, its key, and the authority that has signed it."""

    cert: Path
    key: Path
    authority: Path


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Certificate:
    folder = tmp_path_factory.mktemp("tls")
    authority = trustme.CA()
    issued = authority.issue_cert("127.0.0.1", "localhost")
    made = Certificate(folder / "cert.pem", folder / "key.pem", folder / "ca.pem")
    made.cert.write_bytes(b"".join(blob.bytes() for blob in issued.cert_chain_pems))
    made.key.write_bytes(issued.private_key_pem.bytes())
    made.key.chmod(0o600)
    authority.cert_pem.write_to_path(str(made.authority))
    return made


@pytest.fixture(scope="module")
def url(certificate: Certificate, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, Path]]:
    """`bace server` with that certificate: its address and its home."""
    home = tmp_path_factory.mktemp("home")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    environment = {
        **os.environ,
        "BACE_HOME": str(home),
        "BACE_TLS_CERT_FILE": str(certificate.cert),
        "BACE_TLS_KEY_FILE": str(certificate.key),
    }
    process = subprocess.Popen(
        [sys.executable, "-m", "service.cli.main", "server", "--port", str(port)],
        env=environment,
        stdin=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        deadline = time.monotonic() + PATIENCE_S
        while True:
            with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 1.0):
                break
            assert process.poll() is None, "the server has ended"
            assert time.monotonic() < deadline, "the server does not answer"
            time.sleep(0.05)
        yield f"https://127.0.0.1:{port}", home
    finally:
        process.terminate()
        process.wait(timeout=PATIENCE_S)


def test_the_command_line_and_agents_trust_the_authority_that_they_are_given(
    url: tuple[str, Path], certificate: Certificate, monkeypatch: pytest.MonkeyPatch
) -> None:
    address, home = url
    token = (home / "admin-token").read_text().strip()
    monkeypatch.setenv("BACE_CA_FILE", str(certificate.authority))
    with Api(address, token) as api:
        assert api.get("/v1/whoami")["role"] == "admin"
        agent_token = api.post("/v1/tokens", {"name": "gpus", "role": "agent"})["token"]
    gpu = GpuTypeOffer(
        name="cpu-slot", memory_bytes=8e9, power_w=20, idle_w=5, sustained_flops=2e10, measured_at_s=1.0
    )
    node = NodeOffer(
        node_id="n1", region="eu", gpu=gpu, gpus=1, address="10.0.0.1", port_first=29500, port_last=29509
    )
    request = JoinRequest(agent_id="a1", nodes=[node], agent_version="0.1.0", clock_s=1.0)
    with ServerClient(address, agent_token, ca_file=certificate.authority) as client:
        assert client.join(request).lease_s > 0


def test_who_does_not_know_the_authority_does_not_speak_to_it(
    url: tuple[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    address, _ = url
    monkeypatch.delenv("BACE_CA_FILE", raising=False)
    with Api(address, "bace_x") as api, pytest.raises(CommandError) as refusal:
        api.get("/v1/whoami")
    assert refusal.value.exit_code == Exit.UNREACHABLE
    assert "BACE_CA_FILE" in refusal.value.hint
    with ServerClient(address, "bace_x") as client, pytest.raises(UnreachableError, match="CERTIFICATE"):
        client.get("/healthz")


def test_nothing_is_answered_in_the_clear(url: tuple[str, Path]) -> None:
    with pytest.raises(httpx.TransportError):
        httpx.get(url[0].replace("https:", "http:") + "/healthz", trust_env=False)


def test_a_file_that_is_no_authority_is_told_by_its_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    wrong = tmp_path / "ca.pem"
    wrong.write_text("no certificate")
    monkeypatch.setenv("BACE_CA_FILE", str(wrong))
    with pytest.raises(CommandError, match="BACE_CA_FILE") as refusal:
        Api("https://127.0.0.1:1", "bace_x")
    assert refusal.value.exit_code == Exit.USAGE
    with pytest.raises(SettingsError, match="--ca-file"):
        ServerClient("https://127.0.0.1:1", "bace_x", ca_file=wrong)


@pytest.mark.parametrize("slip", ["no cert", "no key", "readable", "swapped"])
def test_a_server_does_not_begin_with_files_that_cannot_be_right(
    certificate: Certificate, tmp_path: Path, slip: str
) -> None:
    cert, key = certificate.cert, certificate.key
    if slip == "no cert":
        cert = tmp_path / "none"
    elif slip == "no key":
        key = tmp_path / "none"
    elif slip == "readable":
        key = tmp_path / "key.pem"
        key.write_bytes(certificate.key.read_bytes())
        key.chmod(0o644)
    else:
        cert = tmp_path / "swapped.pem"
        cert.write_bytes(certificate.authority.read_bytes())
    home = tmp_path / "untouched"
    settings = Settings(home=home, tls_cert_file=str(cert), tls_key_file=str(key))
    with pytest.raises(InvalidValueError, match="BACE_TLS_"):
        serve(settings)
    assert not home.exists()


def test_a_certificate_without_a_key_is_no_setting() -> None:
    for name in ("tls_cert_file", "tls_key_file"):
        with pytest.raises(ValidationError, match="BACE_TLS_"):
            Settings(**{name: "/etc/x.pem"})


def test_beyond_loopback_a_certificate_is_enough(certificate: Certificate, tmp_path: Path) -> None:
    from service.db import migrate
    from service.db.engine import make_engine

    engine = make_engine(f"sqlite:///{tmp_path / 'bace.db'}")
    migrate.upgrade(engine)
    settings = Settings(
        home=tmp_path,
        host="10.1.2.3",
        tls_cert_file=str(certificate.cert),
        tls_key_file=str(certificate.key),
    )
    with pytest.raises(InvalidValueError, match="no token"):
        check_listening(settings, engine)
    engine.dispose()
