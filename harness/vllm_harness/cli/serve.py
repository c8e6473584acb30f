"""`vllm-harness serve start`: runs a server until Ctrl-C, with or without a script book."""

from __future__ import annotations

import time
from contextlib import suppress
from pathlib import Path
from typing import Annotated

import typer

from vllm_harness._configuration.model_entries import Lane
from vllm_harness._errors import UsageError
from vllm_harness._scripted.book import BookError, BookRule, ScriptBook
from vllm_harness._server.progress import ConsoleProgress
from vllm_harness._server.remote import RemoteServer
from vllm_harness._terminal.tables import plain_console
from vllm_harness.cli.book import read_book
from vllm_harness.cli.options import VllmOptions
from vllm_harness.cli.request_lines import line

CHECK_S = 0.5
console = plain_console()


def serve(
    context: typer.Context,
    model: Annotated[str, typer.Argument(help="A model entry or a hub id.")],
    lane: Lane | None = None,
    book: Path | None = None,
    watch: bool = False,
    quiet: bool = False,
    port: int | None = None,
    *,
    vllm_options: VllmOptions,
) -> None:
    """Start a server, and run it until Ctrl-C; flags after `--` go to `vllm serve`.

    On the scripted lane, a line is printed for each request: its API, the rule
    that matched it, and the outcome.
    """
    if book and lane == "live":
        raise UsageError("the live lane cannot answer from a book", hint="leave out --lane or --book")
    source = _Source(book, model, vllm_options.models_file, context.args) if book else None
    if source:
        source.read()
    server = RemoteServer(
        model,
        lane=lane or ("scripted" if book else "live"),
        vllm=vllm_options.environment(),
        frontend=vllm_options.frontend or "python",
        args=context.args,
        port=port,
        cold_start=vllm_options.cold_start,
        progress=ConsoleProgress(),
        models_file=vllm_options.models_file,
    )
    with server:
        if source:
            source.put(server.book())
        console.print(f"url      {server.url_for('/v1')}")
        console.print(f"model    {server.model} ({server.lane}, {server.launch.describe()})")
        console.print(f"log      {server.log_path}")
        console.print("Ctrl-C ends the server")
        with suppress(KeyboardInterrupt):
            _attend(server, source if watch else None, quiet or server.lane != "scripted")
    console.print("stopped")


class _Source:
    """The file of a served script book.

    Args:
        path: the path of the file.
        model, models_file, args: the options of the server that answers from it.
    """

    def __init__(self, path: Path, model: str, models_file: Path | None, args: list[str]) -> None:
        self._path = path
        self._for = (model, models_file, args)
        self._stamp: tuple[int, int] | None = None

    def read(self) -> tuple[BookRule, ...]:
        """Prints the file's warnings, and returns its rules. Raises BookFileError if it has errors."""
        self._stamp = self._stamp_now()
        checked = read_book(self._path, *self._for)
        rules = checked.usable()
        for text in checked.lines():
            console.print(text)
        return rules

    def put(self, book: ScriptBook) -> None:
        """Replaces the rules of a book with those in the file."""
        book.replace(self.read(), str(self._path.resolve()))

    def follow(self, book: ScriptBook) -> None:
        """Replaces the rules of a book if the file has changed; prints the errors in the file if any."""
        if self._stamp_now() == self._stamp:
            return
        try:
            self.put(book)
            console.print(f"reloaded {self._path}")
        except UsageError as error:
            console.print(f"{error}\nthe earlier rules stay in force")

    def _stamp_now(self) -> tuple[int, int] | None:
        with suppress(OSError):  # an editor may be replacing the file
            status = self._path.stat()
            return status.st_mtime_ns, status.st_size
        return None


def _attend(server: RemoteServer, source: _Source | None, quiet: bool) -> None:
    """Follows a watched file and prints a line for each request, until the server ends."""
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
            for _ in range(30):  # a server that does not answer may be about to end
                time.sleep(CHECK_S)
                server.check()
            raise
