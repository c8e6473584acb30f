"""`vllm-harness serve`: a server by hand, with a script book if wanted."""

from __future__ import annotations

import time
from contextlib import suppress
from pathlib import Path
from typing import Annotated

import typer

from vllm_harness._errors import UsageError
from vllm_harness._scripted.book import BookError, BookRule, ScriptBook
from vllm_harness._server.progress import ConsoleProgress
from vllm_harness._server.remote import RemoteServer
from vllm_harness._terminal.tables import plain_console
from vllm_harness.cli.book import read_book
from vllm_harness.cli.options import LANE, VllmOptions, with_options
from vllm_harness.cli.request_lines import line

CHECK_S = 0.5
console = plain_console()


@with_options
def serve(
    context: typer.Context,
    model: Annotated[str, typer.Argument(help="A model entry or a hub id.")],
    lane: LANE = None,
    book: Annotated[
        Path | None, typer.Option(help="The script book (YAML) that the scripted lane answers from.")
    ] = None,
    watch: Annotated[
        bool, typer.Option("--watch", help="Reload the book whenever its file changes.")
    ] = False,
    quiet: Annotated[bool, typer.Option("--quiet", help="Print no line for each request.")] = False,
    port: Annotated[int | None, typer.Option(help="The port of the server; by default a free port.")] = None,
    *,
    on: VllmOptions,
) -> None:
    """Start a server, and keep it until Ctrl-C.

    On the scripted lane it prints a line for each request: its API, the rule
    that took it, and what came of it. Further flags after `--` go to `vllm serve`.
    """
    if book and lane == "live":
        raise UsageError("a model of the live lane follows no book", hint="leave --lane or --book out")
    if watch and not book:
        raise UsageError("--watch reloads the file of a book", hint="add --book FILE")
    source = _Source(book, model, on.models_file, context.args) if book else None
    if source:
        source.read()
    server = RemoteServer(
        model,
        lane=lane or ("scripted" if book else "live"),
        vllm=on.environment(),
        frontend=on.frontend or "python",
        args=context.args,
        port=port,
        cold_start=on.cold_start,
        progress=ConsoleProgress(),
        models_file=on.models_file,
    )
    try:
        with server:
            if source:
                source.put(server.book())
            console.print(f"url      {server.url_for('/v1')}")
            console.print(f"model    {server.model} ({server.lane}, {server.launch.describe()})")
            console.print(f"log      {server.log_path}")
            console.print("Ctrl-C ends the server")
            _attend(server, source if watch else None, quiet or server.lane != "scripted")
    except KeyboardInterrupt:
        console.print("stopped")


class _Source:
    """The file of a book that is served.

    Args:
        path: the file.
        model, models_file, args: what is served from it.
    """

    def __init__(self, path: Path, model: str, models_file: Path | None, args: list[str]) -> None:
        self._path = path
        self._for = (model, models_file, args)
        self._stamp: tuple[int, int] | None = None

    def read(self) -> tuple[BookRule, ...]:
        """Its rules, after its warnings. Raises BookFileError where it has errors."""
        self._stamp = self._stamp_now()
        checked = read_book(self._path, *self._for)
        rules = checked.usable()
        for text in checked.lines():
            console.print(text)
        return rules

    def put(self, book: ScriptBook) -> None:
        """Puts its rules in the place of those of a book."""
        book.replace(self.read(), str(self._path.resolve()))

    def follow(self, book: ScriptBook) -> None:
        """Puts its rules into a book if it has changed; prints what is wrong with them instead."""
        if self._stamp_now() == self._stamp:
            return
        try:
            self.put(book)
            console.print(f"reloaded {self._path}")
        except UsageError as error:
            console.print(f"{error}\nthe rules from before go on")

    def _stamp_now(self) -> tuple[int, int] | None:
        with suppress(OSError):  # an editor may write it anew
            status = self._path.stat()
            return status.st_mtime_ns, status.st_size
        return None


def _attend(server: RemoteServer, source: _Source | None, quiet: bool) -> None:
    """Until the server ends: follows a file that is watched, and prints a line for each request."""
    answered = 0
    while True:
        time.sleep(CHECK_S)
        server.check()
        try:
            if source:
                source.follow(server.book())
            for entry in () if quiet else server.book().answered(answered):
                console.print(line(entry))
                answered = entry["number"]
        except BookError:
            time.sleep(CHECK_S)
            server.check()
            raise
