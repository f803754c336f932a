"""Speaking to the server: every way it can go wrong is one of three, and says what to do."""

from __future__ import annotations

from collections.abc import Callable

import httpx
import pytest

from agents.client import ServerClient, is_loopback
from agents.errors import RejectedError, SettingsError, UnknownAgentError, UnreachableError
from agents.protocol import (
    ABILITIES_HEADER,
    ANSWERED_HEADER,
    PROTOCOL_HEADER,
    Heartbeat,
    HeartbeatReply,
)

BEAT = Heartbeat(agent_id="agent-1", boot_id="boot-1", clock_s=1.0)
REPLY = HeartbeatReply(reports_stored=7, heartbeat_interval_s=2, lease_s=60, server_time_s=1)


def client(answer: Callable[[httpx.Request], httpx.Response]) -> ServerClient:
    return ServerClient("http://bace.test/", "bace_token", transport=httpx.MockTransport(answer))


def answering(status: int, **response: object) -> ServerClient:
    return client(lambda request: httpx.Response(status, **response))  # type: ignore[arg-type]


def test_a_heartbeat_carries_token_and_protocol() -> None:
    def answer(request: httpx.Request) -> httpx.Response:
        assert request.url == "http://bace.test/agent/v1/heartbeat"
        assert request.headers["Authorization"] == "Bearer bace_token"
        assert request.headers[PROTOCOL_HEADER] == "1"
        assert Heartbeat.model_validate_json(request.content) == BEAT
        return httpx.Response(200, content=REPLY.model_dump_json())

    with client(answer) as server:
        assert server.heartbeat(BEAT) == REPLY


def test_no_connection_is_unreachable() -> None:
    def answer(request: httpx.Request) -> httpx.Response:
        raise httpx.ConnectTimeout("")

    with client(answer) as server, pytest.raises(UnreachableError, match=r"bace\.test: ConnectTimeout"):
        server.heartbeat(BEAT)


@pytest.mark.parametrize("status", [408, 425, 429, 500, 503])
def test_a_busy_server_is_unreachable_for_now(status: int) -> None:
    with answering(status, headers={"Retry-After": "17"}) as server, pytest.raises(UnreachableError) as busy:
        server.heartbeat(BEAT)
    assert busy.value.retry_after_s == 17.0


@pytest.mark.parametrize(
    ("status", "expected"),
    [
        (401, "the token is not valid"),
        (403, "bace node token create"),
        (422, "/boot_id: too long"),
        (301, "301"),
        (413, "413"),
    ],
)
def test_a_refusal_says_why(status: int, expected: str) -> None:
    problem = {"detail": "no", "errors": [{"pointer": "/boot_id", "detail": "too long"}]}
    with answering(status, json=problem) as server, pytest.raises(RejectedError, match=expected) as refused:
        server.heartbeat(BEAT)
    assert refused.value.status == status


@pytest.mark.parametrize("body", ["<html>", '{"reports_stored": -1}', '{"of": "another release"}', "[]"])
def test_an_answer_that_is_not_of_the_protocol_is_a_refusal(body: str) -> None:
    with answering(200, text=body) as server, pytest.raises(RejectedError, match="not of protocol 1"):
        server.heartbeat(BEAT)


@pytest.mark.parametrize("status", [404, 409, 410])
def test_an_unknown_agent_joins_again(status: int) -> None:
    with answering(status, json=["no problem document"]) as server, pytest.raises(UnknownAgentError):
        server.heartbeat(BEAT)


@pytest.mark.parametrize("url", ["bace.test", "ftp://bace.test", "http://", "http://[::1", ""])
def test_an_address_that_cannot_be_meant(url: str) -> None:
    with pytest.raises(SettingsError, match="--url"):
        ServerClient(url, "t")


def test_loopback() -> None:
    assert is_loopback("http://127.0.0.1:1")
    assert is_loopback("http://localhost")
    assert is_loopback("http://[::1]:80")
    assert not is_loopback("http://10.0.0.1")
    assert not is_loopback("https://localhost.example.org")


def test_what_an_agent_can_is_told_with_every_request_and_nothing_where_it_can_nothing() -> None:
    seen: list[httpx.Request] = []

    def answer(request: httpx.Request) -> httpx.Response:
        seen.append(request)
        return httpx.Response(503)

    for abilities in ((), ("link-tests",)):
        speaker = ServerClient("http://bace.test", "t", httpx.MockTransport(answer), abilities=abilities)
        with speaker, pytest.raises(UnreachableError):
            speaker.heartbeat(BEAT)
    assert [request.headers.get(ABILITIES_HEADER) for request in seen] == [None, "link-tests"]
    assert all(b"null" not in request.content for request in seen)


def test_a_heartbeat_says_which_answer_was_read_last() -> None:
    times_s, told = [1_790_000_000.123456, None, 1_790_000_002.5], []

    def answer(request: httpx.Request) -> httpx.Response:
        told.append(float(request.headers[ANSWERED_HEADER]))
        at_s = times_s[len(told) - 1]
        if at_s is None:
            return httpx.Response(503)
        return httpx.Response(200, content=REPLY.model_copy(update={"server_time_s": at_s}).model_dump_json())

    with client(answer) as server:
        server.heartbeat(BEAT)
        with pytest.raises(UnreachableError):
            server.heartbeat(BEAT)
        server.heartbeat(BEAT)
    assert told == [0.0, times_s[0], times_s[0]]
