"""The server's log: one JSON object a line on standard error, with the request's id and without secrets."""

from __future__ import annotations

import logging
import re
import sys
from collections.abc import MutableMapping
from functools import partial
from typing import Any, TextIO

import structlog

_SECRET_NAMES = re.compile(r"token|secret|password|authorization", re.IGNORECASE)
_SECRET_TEXT = re.compile(r"bace_[A-Za-z0-9_-]{20,}|(?<=://)[^\s:/@]+:[^\s@]+(?=@)")
HIDDEN = "***"


def configure() -> None:
    """Everything that structlog or the standard library logs from now on."""
    shared: list[structlog.types.Processor] = [
        structlog.contextvars.merge_contextvars,
        structlog.stdlib.add_logger_name,
        structlog.stdlib.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
        structlog.processors.format_exc_info,
        hide_secrets,
    ]
    # Our own lines, one for each request, go straight to the file: the standard library's way is twice as long.
    structlog.configure(
        processors=[*shared, structlog.processors.JSONRenderer()],
        logger_factory=partial(_NamedLogger, sys.stderr),
        wrapper_class=structlog.make_filtering_bound_logger(logging.INFO),
    )
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=shared,
            processors=[
                structlog.stdlib.ProcessorFormatter.remove_processors_meta,
                structlog.processors.JSONRenderer(),
            ],
        )
    )
    logging.basicConfig(handlers=[handler], level=logging.INFO, force=True)
    for noisy in ("uvicorn.access", "alembic.runtime.migration", "sse_starlette"):
        logging.getLogger(noisy).setLevel(logging.WARNING)


class _NamedLogger(structlog.WriteLogger):
    """Writes whole lines; `name` is the `logger` of each."""

    def __init__(self, file: TextIO, name: str = "") -> None:
        super().__init__(file)
        self.name = name


def hide_secrets(_logger: Any, _method: str, entry: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
    """Values under secret names, tokens, and passwords in URLs are not written."""
    for name, value in entry.items():
        if _SECRET_NAMES.search(name) and not name.endswith("_id"):
            entry[name] = HIDDEN
        elif isinstance(value, str):
            entry[name] = without_secrets(value)
    return entry


def without_secrets(text: str) -> str:
    """The text without tokens and without passwords in URLs."""
    return _SECRET_TEXT.sub(HIDDEN, text)
