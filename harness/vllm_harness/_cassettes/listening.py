"""An HTTP server of the harness that runs until it is interrupted; aiohttp serves it."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING

from vllm_harness._errors import UsageError

if TYPE_CHECKING:
    from aiohttp import web

HOST = "127.0.0.1"
MAX_REQUEST = 64 * 2**20
Handler = Callable[["web.Request"], Awaitable["web.StreamResponse"]]


def check_installed() -> None:
    """Raises UsageError where aiohttp is missing."""
    try:
        import aiohttp  # noqa: F401
    except ImportError as error:
        raise UsageError(
            "aiohttp is not installed", hint="install it: pip install 'vllm-harness[cassettes]'"
        ) from error


async def listen(handler: Handler, port: int, ready: Callable[[str], None]) -> None:
    """Has a handler answer every request until SIGINT or SIGTERM comes; what is under way then is cut.

    Args:
        handler: of all requests; it is cancelled where its client leaves.
        port: on this machine; 0: a free one.
        ready: gets the address, once it listens.

    Raises:
        UsageError: the port is taken.
    """
    from aiohttp import web

    app = web.Application(client_max_size=MAX_REQUEST)
    app.router.add_route("*", "/{path:.*}", handler)
    runner = web.AppRunner(app, handler_cancellation=True, shutdown_timeout=0.5, access_log=None)
    await runner.setup()
    ended, loop = asyncio.Event(), asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, ended.set)
    try:
        try:
            await web.TCPSite(runner, HOST, port).start()
        except OSError as error:
            raise UsageError(
                f"port {port} cannot be listened on: {error.strerror}", hint="name another one, or 0 for any"
            ) from error
        ready(f"http://{HOST}:{runner.addresses[0][1]}")
        await ended.wait()
    finally:
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.remove_signal_handler(number)
        await runner.cleanup()
