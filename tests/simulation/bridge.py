"""Runs the agent's blocking code as it is, inside the event loop: whenever it would wait, it steps aside.

The daemon is one thread that blocks in its calls to the server. Here that thread is a greenlet: `aside(awaitable)`,
called from its depths, hands the awaitable to the task that runs it, and comes back with the result.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

from greenlet import getcurrent, greenlet

T = TypeVar("T")


async def blocking(function: Callable[[], T]) -> T:
    """The function's result; cancelling the task raises CancelledError where the function waits."""
    thread = greenlet(function)
    waits_for: Any = thread.switch()
    while not thread.dead:
        try:
            result = await waits_for
        except BaseException as error:  # noqa: BLE001 - whatever it is, it is for whoever waits
            waits_for = thread.throw(error)
        else:
            waits_for = thread.switch(result)
    return waits_for


def aside(awaitable: Awaitable[T]) -> T:
    """To be called below `blocking`: waits for the result without blocking the loop."""
    parent = getcurrent().parent
    if parent is None:
        raise RuntimeError("nobody runs this with `blocking`")
    return parent.switch(awaitable)
