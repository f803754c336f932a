"""The REST API as the commands call it: addresses, tokens, pages, streams, and errors told in words."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from http import HTTPStatus
from types import TracebackType
from typing import Any
from urllib.parse import quote

import httpx
from httpx_sse import EventSource, SSEError

from service.cli.exits import CommandError, Exit, FieldNote
from service.cli.home import server_token, server_url, trust

PAGE_LIMIT = 200
MOST_RETRIES = 5
MOST_PATIENCE_S = 60.0
"""A server that asks for more patience than that is told of."""
Document = dict[str, Any]


@dataclass(frozen=True, slots=True)
class StreamEvent:
    """One message of a stream: its kind, its document and the id from which the stream can be resumed."""

    kind: str
    data: Any
    event_id: str


class ProblemError(CommandError):
    """The server's refusal: its problem document (RFC 9457), whole, in `problem`."""

    def __init__(self, status: int, problem: Document) -> None:
        self.status = status
        self.problem = problem
        self.code = str(problem.get("code", ""))
        self.errors: list[Document] = problem.get("errors") or []
        fields = tuple(FieldNote(str(error.get("pointer", "")), told(error)) for error in self.errors)
        message = str(problem.get("detail") or problem.get("title") or f"the server answered {status}")
        super().__init__(message, _exit_code(status, self.code), fields=fields, hint=_hint(status, self.code))


class Api:
    """A connection to one server. Use it as a context manager."""

    def __init__(
        self,
        url: str | None = None,
        token: str | None = None,
        *,
        timeout_s: float = 30.0,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._sleep = sleep
        self.url = url or server_url()
        if not self.url.startswith(("http://", "https://")):
            raise _not_an_address(self.url, "it must begin with http:// or https://")
        self.token = token or server_token(self.url)
        self.verify = trust(self.url)
        headers = {"Accept": "application/json"}
        if self.token:
            headers["Authorization"] = f"Bearer {self.token}"
        try:
            # Proxies of the environment are for the outside world, not for a scheduler in the house.
            self._http = httpx.Client(
                base_url=self.url,
                headers=headers,
                timeout=httpx.Timeout(timeout_s, connect=5.0),
                trust_env=False,
                verify=self.verify,
            )
        except httpx.InvalidURL as error:
            raise _not_an_address(self.url, str(error)) from None

    def __enter__(self) -> Api:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close the connection."""
        self._http.close()

    def get(self, path: str, **params: Any) -> Any:
        """GET a document."""
        return self.request("GET", path, params=params)

    def post(self, path: str, document: Any = None, headers: Mapping[str, str] | None = None) -> Any:
        """POST a document; the answer's document."""
        return self.request("POST", path, document=document, headers=headers)

    def request(
        self,
        method: str,
        path: str,
        *,
        params: Mapping[str, Any] | None = None,
        document: Any = None,
        headers: Mapping[str, str] | None = None,
    ) -> Any:
        """One request; again, where the server says that it is busy and when to come back. Raises ProblemError for a
        refusal, CommandError (UNREACHABLE) where nobody answers."""
        given = {key: value for key, value in (params or {}).items() if value is not None}
        for attempt in range(MOST_RETRIES + 1):
            try:
                answer = self._http.request(method, path, params=given, json=document, headers=headers)
            except httpx.TransportError as error:
                raise unreachable(self.url, error) from None
            except ValueError as error:  # JSON knows neither infinity nor NaN
                raise CommandError(f"{method} {path}: {error}", Exit.USAGE) from None
            wait_s = _told_to_wait_s(answer)
            if wait_s is None or attempt == MOST_RETRIES:
                break
            self._sleep(wait_s)
        if answer.is_error or answer.is_redirect:
            raise _problem(answer.status_code, answer.text)
        return _json(answer.text) if answer.content else None

    def pages(self, path: str, *, by: str = "cursor", **params: Any) -> list[Document]:
        """All items of a list, page after page; `by` is the parameter that takes a page's `next`."""
        items: list[Document] = []
        while True:
            page = self.get(path, **params)
            items.extend(page["items"])
            if not page["next"]:
                return items
            params[by] = page["next"]

    def stream(self, path: str, *, last_event_id: str = "", **params: Any) -> Iterator[StreamEvent]:
        """The messages of a server-sent stream until it says that nothing follows. Raises ProblemError."""
        headers = {"Accept": "text/event-stream"} | (
            {"Last-Event-ID": last_event_id} if last_event_id else {}
        )
        given = {key: value for key, value in params.items() if value is not None}
        # The server sends a comment every few seconds: silence for longer means that it is gone.
        timeout = httpx.Timeout(60.0, connect=5.0)
        for attempt in range(MOST_RETRIES + 1):
            try:
                with self._http.stream("GET", path, params=given, headers=headers, timeout=timeout) as answer:
                    if answer.is_success:
                        yield from _messages(answer)
                        return
                    answer.read()
            except (httpx.TransportError, SSEError) as error:
                raise unreachable(self.url, error) from None
            wait_s = _told_to_wait_s(answer)
            if wait_s is None or attempt == MOST_RETRIES:
                raise _problem(answer.status_code, answer.text)
            self._sleep(wait_s)


def _messages(answer: httpx.Response) -> Iterator[StreamEvent]:
    for message in EventSource(answer).iter_sse():
        document = _json(message.data)
        if message.event == "end":
            return
        if message.event == "error":
            raise ProblemError(int(document.get("status", 500)), document)
        yield StreamEvent(message.event, document, message.id)


def segment(text: str) -> str:
    """A piece of a path, escaped: an id given by the user cannot reach another address."""
    if not text or text in {".", ".."}:
        raise CommandError(f"{text!r} is not an id", Exit.USAGE)
    return quote(text, safe="")


def told(error: Document, given: object = None) -> str:
    """What is wrong with a field of a problem. `given`: the value as it was sent; a text is told in quotes."""
    detail, value = str(error.get("detail", "")), error.get("value")
    if value is None or not detail.startswith("expected"):
        return detail
    return f"{repr(value) if isinstance(given, str) else value} is not valid: {detail}"


def unreachable(url: str, error: Exception) -> CommandError:
    """Nobody answers at the address."""
    hint = "Start one with `bace up`, or set BACE_URL to where yours listens."
    if "CERTIFICATE_VERIFY_FAILED" in str(error):
        hint = "Set BACE_CA_FILE to the certificate (PEM) of the authority that has signed the server's."
    return CommandError(
        f"No server answers at {url} ({str(error) or type(error).__name__}).", Exit.UNREACHABLE, hint=hint
    )


def _told_to_wait_s(answer: httpx.Response) -> float | None:
    """How long the server asks to wait: nothing was done then, so the request may be repeated. None: it does not."""
    if answer.status_code not in (HTTPStatus.TOO_MANY_REQUESTS, HTTPStatus.SERVICE_UNAVAILABLE):
        return None
    told = answer.headers.get("Retry-After", "")
    return float(told) if told.isdigit() and float(told) <= MOST_PATIENCE_S else None


def _not_an_address(url: str, reason: str) -> CommandError:
    return CommandError(
        f"BACE_URL: {url!r} is not an address: {reason}", Exit.USAGE, hint="Example: http://127.0.0.1:8642"
    )


def _json(text: str) -> Any:
    try:
        return json.loads(text)
    except json.JSONDecodeError:
        raise CommandError(
            "The answer is not JSON: is BACE_URL the address of a bacepipe server?", Exit.FAILED
        ) from None


def _problem(status: int, text: str) -> ProblemError:
    try:
        document = json.loads(text)
    except json.JSONDecodeError:
        document = None
    if not isinstance(document, dict):
        document = {"title": f"the server answered {status} without a problem document"}
    return ProblemError(status, document)


def _exit_code(status: int, code: str) -> Exit:
    if status in (401, 403):
        return Exit.UNAUTHORISED
    if status == 404 or code == "ambiguous_id":
        return Exit.NOT_FOUND
    if code == "idempotency_key_reused":
        return Exit.FAILED
    if status in (400, 413, 415, 422):
        return Exit.USAGE
    return Exit.FAILED


def _hint(status: int, code: str) -> str:
    if status == 401:
        return "Set BACE_TOKEN to a valid token. An administrator makes one with `bace token create`."
    if status == 403:
        return "This needs a token with another role: `bace token create --role …`."
    if code == "ambiguous_id":
        return "Give more characters of the id."
    if status == 429:
        return "Nothing was done. The server is asked too often: try again later."
    if status in (502, 503, 504):
        return "Nothing was stored. Try again."
    return ""
