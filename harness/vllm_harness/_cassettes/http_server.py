"""Runs an HTTP server with aiohttp until the process is interrupted."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING

from vllm_harness._errors import UsageError
from vllm_harness._machine import interrupts

if TYPE_CHECKING:
    from aiohttp import web

HOST = "127.0.0.1"
MAX_REQUEST = 64 * 2**20
Handler = Callable[["web.Request"], Awaitable["web.StreamResponse"]]


def check_installed() -> None:
    """Raises UsageError if aiohttp is not installed."""
    try:
        import aiohttp  # noqa: F401
    except ImportError as error:
        raise UsageError(
            "aiohttp is not installed", hint="install it: pip install 'vllm-harness[cassettes]'"
        ) from error


async def listen(answer: Handler, port: int, ready: Callable[[str], None]) -> None:
    """Serves requests until a signal, which aborts unfinished requests.

    Args:
        answer: answers each valid request, whatever its target; it is cancelled if its client disconnects.
        port: the port on this machine; 0 for a free one.
        ready: is called with the server's URL when the server listens.

    Raises:
        UsageError: the port is in use.
    """
    from aiohttp import web

    always = web.middleware(lambda request, handler: answer(request))  # a route would match only paths
    app = web.Application(client_max_size=MAX_REQUEST, middlewares=[always])
    logging.getLogger("aiohttp.server").addFilter(_shorten)
    runner = web.AppRunner(app, handler_cancellation=True, shutdown_timeout=0.5, access_log=None)
    await runner.setup()
    stopped, loop = asyncio.Event(), asyncio.get_running_loop()
    try:
        with interrupts.stopping(lambda _: loop.call_soon_threadsafe(stopped.set)):
            await web.TCPSite(runner, HOST, port).start()
            ready(f"http://{HOST}:{runner.addresses[0][1]}")
            await stopped.wait()
    except OSError as error:
        raise UsageError(
            f"cannot listen on port {port}: {error.strerror}", hint="choose another port, or 0 for a free one"
        ) from error
    finally:
        await runner.cleanup()


def _shorten(record: logging.LogRecord) -> bool:
    """Shortens aiohttp's report of a request that is not valid HTTP to one line, without its content."""
    if record.exc_info and getattr(record.exc_info[1], "code", None) == 400:
        record.msg, record.exc_info = f"refused: {type(record.exc_info[1]).__name__} from %s", None
    return True
