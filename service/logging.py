"""The server's log: one JSON object a line on standard error, with the request's id and without secrets."""

from __future__ import annotations

import logging
import re
import sys
from collections.abc import MutableMapping
from typing import Any

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
        structlog.stdlib.PositionalArgumentsFormatter(),
        structlog.processors.TimeStamper(fmt="iso", utc=True),
        structlog.processors.format_exc_info,
        hide_secrets,
    ]
    structlog.configure(
        processors=[*shared, structlog.stdlib.ProcessorFormatter.wrap_for_formatter],
        logger_factory=structlog.stdlib.LoggerFactory(),
        wrapper_class=structlog.stdlib.BoundLogger,
        cache_logger_on_first_use=True,
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
