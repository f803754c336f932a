"""The commands, run in this process against a server that answers with canned documents."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from service.cli.main import app

Document = dict[str, Any]


@dataclass
class FakeServer:
    """Answers by (method, path); keeps what was asked."""

    url: str = ""
    answers: dict[tuple[str, str], tuple[int, Any]] = field(default_factory=dict)
    asked: list[Document] = field(default_factory=list)
    retry_after: str = ""
    """Of every answer that has one."""

    def answer(self, method: str, path: str, document: Any, status: int = 200) -> None:
        self.answers[(method, path)] = (status, document)

    def refuse(self, method: str, path: str, status: int, **problem: Any) -> None:
        self.answer(method, path, {"title": "Refused", "status": status, "detail": "no", **problem}, status)


@pytest.fixture
def server() -> Iterator[FakeServer]:
    fake = FakeServer()

    class Handler(BaseHTTPRequestHandler):
        def _serve(self) -> None:
            path, _, query = self.path.partition("?")
            length = int(self.headers.get("Content-Length") or 0)
            body = self.rfile.read(length)
            fake.asked.append(
                {
                    "method": self.command,
                    "path": path,
                    "query": query,
                    "headers": dict(self.headers),
                    "body": json.loads(body) if body else None,
                }
            )
            status, document = fake.answers.get((self.command, path), (404, {"detail": f"no {path}"}))
            stream = isinstance(document, str)
            content = document.encode() if stream else json.dumps(document).encode()
            self.send_response(status)
            self.send_header("Content-Type", "text/event-stream" if stream else "application/json")
            self.send_header("Content-Length", str(len(content)))
            if fake.retry_after:
                self.send_header("Retry-After", fake.retry_after)
            self.end_headers()
            self.wfile.write(content)

        do_GET = do_POST = do_PUT = _serve  # noqa: N815 - the names that http.server looks for

        def log_message(self, format: str, *arguments: object) -> None:
            """Say nothing."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as listening:
        listening.daemon_threads = True
        fake.url = f"http://127.0.0.1:{listening.server_port}"
        thread = threading.Thread(target=listening.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
        thread.start()
        yield fake
        listening.shutdown()
        thread.join()


@pytest.fixture
def bace(server: FakeServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Result]:
    """Run `bace` with arguments."""
    monkeypatch.setenv("BACE_URL", server.url)
    monkeypatch.setenv("BACE_TOKEN", "bace_test")
    monkeypatch.setenv("BACE_HOME", str(tmp_path / "home"))
    monkeypatch.chdir(tmp_path)
    runner = CliRunner()

    def run(*arguments: str, stdin: str | None = None) -> Result:
        return runner.invoke(app, list(arguments), input=stdin)

    return run
