"""Nothing below the ports may look at the wall clock, draw from global randomness, or start a thread: it raises here.

Libraries that only measure or label with what they get are let through, by name.
"""

from __future__ import annotations

import contextlib
import os
import random
import sys
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from typing import Any

LIBRARIES = frozenset(
    {
        "http",  # whether a cookie is still good: there are none
        "httpx",  # how long a request took, for its own record
        "numba",  # names of the files of its cache
        "prometheus_client",  # when a counter was made
        "uuid",  # what it is asked for: who asks was looked at
        "sqlalchemy",  # when a connection was made
    }
)
FORBIDDEN: tuple[tuple[Any, tuple[str, ...]], ...] = (
    (
        time,
        (
            "time",
            "time_ns",
            "monotonic",
            "monotonic_ns",
            "perf_counter",
            "perf_counter_ns",
            "sleep",
            "clock_gettime",
        ),
    ),
    (
        random,
        (
            "random",
            "randint",
            "randrange",
            "uniform",
            "choice",
            "choices",
            "sample",
            "shuffle",
            "getrandbits",
            "expovariate",
        ),
    ),
    (os, ("urandom",)),
    (uuid, ("uuid1", "uuid4")),
    (threading.Thread, ("start",)),
)


class ForbiddenCallError(AssertionError):
    """Something under test went round its ports."""


@contextlib.contextmanager
def no_way_round_the_ports() -> Iterator[None]:
    """While it lasts, what is FORBIDDEN raises ForbiddenCallError unless one of the LIBRARIES calls it."""
    before = [(owner, name, getattr(owner, name)) for owner, names in FORBIDDEN for name in names]
    for owner, name, function in before:
        setattr(owner, name, _refusing(function, f"{getattr(owner, '__name__', owner)}.{name}"))
    try:
        yield
    finally:
        for owner, name, function in before:
            setattr(owner, name, function)


def _refusing(function: Callable[..., Any], name: str) -> Callable[..., Any]:
    def guarded(*arguments: Any, **more: Any) -> Any:
        caller = str(sys._getframe(1).f_globals.get("__name__", ""))
        if caller.partition(".")[0] in LIBRARIES:
            return function(*arguments, **more)
        raise ForbiddenCallError(f"{caller} calls {name}: that is for the adapters of a port")

    return guarded
