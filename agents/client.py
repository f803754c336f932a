"""Speaks to the server: join and heartbeat, by HTTP, dialled out from here only.

Every way a call can go wrong is one of three: the server cannot be reached now (UnreachableError: try again
soon), it refuses (RejectedError: a person has to change something), or it does not know this agent
(UnknownAgentError: join again).
"""

from __future__ import annotations

import ipaddress
import ssl
from collections.abc import Iterable
from pathlib import Path
from types import TracebackType
from typing import Self, TypeVar

import httpx
from pydantic import BaseModel, ValidationError

from agents.errors import RejectedError, SettingsError, UnknownAgentError, UnreachableError
from agents.protocol import (
    ABILITIES_HEADER,
    ANSWERED_HEADER,
    PROTOCOL_HEADER,
    PROTOCOL_VERSION,
    Heartbeat,
    HeartbeatReply,
    JoinReply,
    JoinRequest,
)

JOIN_PATH = "/agent/v1/join"
HEARTBEAT_PATH = "/agent/v1/heartbeat"
TIMEOUT = httpx.Timeout(10.0, connect=5.0)

KEEP_ALIVE_S = 60.0
"""An idle connection is used again within this time: less than the server keeps it."""

Reply = TypeVar("Reply", bound=BaseModel)


class ServerClient:
    """One connection to one server, kept open between heartbeats."""

    def __init__(
        self,
        url: str,
        token: str,
        transport: httpx.BaseTransport | None = None,
        ca_file: Path | None = None,
        abilities: Iterable[str] = (),
    ) -> None:
        """`ca_file` holds an authority (PEM) to believe beside those of this machine; `abilities` are told with every
        request. Raises SettingsError."""
        self.url = checked_url(url)
        headers = {
            "Authorization": f"Bearer {token}",
            PROTOCOL_HEADER: str(PROTOCOL_VERSION),
            ANSWERED_HEADER: repr(0.0),
        }
        if told := sorted(abilities):
            headers[ABILITIES_HEADER] = ",".join(told)
        self._http = httpx.Client(
            base_url=self.url,
            headers=headers,
            timeout=TIMEOUT,
            limits=httpx.Limits(keepalive_expiry=KEEP_ALIVE_S),
            transport=transport,
            follow_redirects=False,  # a redirect would carry the token elsewhere
            trust_env=not is_loopback(self.url),
            verify=_trust(self.url, ca_file),
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def show(self, token: str) -> None:
        """Shows this token from now on."""
        self._http.headers["Authorization"] = f"Bearer {token}"

    def close(self) -> None:
        """Lets go of the connection."""
        self._http.close()

    def join(self, request: JoinRequest) -> JoinReply:
        """Tells the server who we are and what we offer."""
        return self._post(JOIN_PATH, request, JoinReply)

    def heartbeat(self, heartbeat: Heartbeat) -> HeartbeatReply:
        """One round trip: reports up, desired state down."""
        reply = self._post(HEARTBEAT_PATH, heartbeat, HeartbeatReply)
        self._http.headers[ANSWERED_HEADER] = repr(reply.server_time_s)
        return reply

    def get(self, path: str) -> httpx.Response:
        """A plain answer, whatever its status; for the doctor."""
        try:
            return self._http.get(path)
        except httpx.HTTPError as error:
            raise UnreachableError(f"{self.url}{path}: {_reason(error)}") from error

    def _post(self, path: str, body: BaseModel, reply: type[Reply]) -> Reply:
        try:
            response = self._http.post(
                # What is none is left out: a server of an older version knows no field of it.
                path,
                content=body.model_dump_json(exclude_none=True),
                headers={"Content-Type": "application/json"},
            )
        except httpx.HTTPError as error:
            raise UnreachableError(f"{self.url}: {_reason(error)}") from error
        _raise_for(response, path)
        try:
            return reply.model_validate_json(response.content)
        except ValidationError as error:
            raise RejectedError(
                response.status_code,
                f"the server's answer to {path} is not of protocol {PROTOCOL_VERSION}: is it bacepipe, and of the "
                f"same release as this agent? ({error.error_count()} errors; first: {error.errors()[0]['msg']})",
            ) from error


def checked_url(url: str) -> str:
    """The server's address without a trailing slash; SettingsError unless it is http or https with a host."""
    try:
        parsed = httpx.URL(url)
    except httpx.InvalidURL as error:
        raise SettingsError("--url", url, "an address such as https://bace.example.org:8642") from error
    if parsed.scheme not in ("http", "https") or not parsed.host:
        raise SettingsError("--url", url, "an address such as https://bace.example.org:8642")
    return url.rstrip("/")


def _trust(url: str, ca_file: Path | None) -> ssl.SSLContext | bool:
    """In httpx's terms. Authorities take longer to load than a heartbeat; nothing but https has use for them."""
    if not url.startswith("https:"):
        return False
    context = ssl.create_default_context()
    if ca_file is not None:
        try:
            context.load_verify_locations(ca_file)
        except (OSError, ssl.SSLError) as error:
            raise SettingsError(
                "--ca-file", str(ca_file), f"a file with certificates, PEM ({error})"
            ) from error
    return context


def is_loopback(url: str) -> bool:
    """Whether the address is on this machine."""
    host = httpx.URL(url).host
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _raise_for(response: httpx.Response, path: str) -> None:
    status = response.status_code
    if response.is_success:
        return
    detail = _problem(response)
    if status in (404, 409, 410) and path == HEARTBEAT_PATH:
        raise UnknownAgentError(status, f"the server does not know this agent: {detail}")
    if status == 401:
        raise RejectedError(
            status, f"the token is not valid ({detail}): get one from `bace node token create`"
        )
    if status == 403:
        raise RejectedError(
            status,
            f"the token may not do this ({detail}): get one for this node from `bace node token create`",
        )
    if status in (408, 425, 429) or status >= 500:
        raise UnreachableError(f"{response.url}: {status}, {detail}", _retry_after_s(response))
    raise RejectedError(status, f"{response.url}: {status}, {detail}")


def _problem(response: httpx.Response) -> str:
    """What a problem document says, with the fields it names; else the beginning of the body."""
    try:
        document = response.json()
    except ValueError:
        return response.text[:200] or response.reason_phrase
    if not isinstance(document, dict):
        return response.text[:200]
    errors = document.get("errors") or []
    fields = [f"{error.get('pointer')}: {error.get('detail')}" for error in errors if isinstance(error, dict)]
    return "; ".join(
        [str(document.get("detail") or document.get("title") or response.reason_phrase), *fields[:5]]
    )


def _retry_after_s(response: httpx.Response) -> float | None:
    value = response.headers.get("Retry-After", "")
    return float(value) if value.isdigit() else None


def _reason(error: httpx.HTTPError) -> str:
    return str(error) or type(error).__name__
