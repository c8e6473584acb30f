"""`vllm-harness book`: checks and reloads script books, and suggests rules for requests."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Annotated

import typer

from vllm_harness._configuration.model_entries import load_models
from vllm_harness._errors import UsageError
from vllm_harness._scripted.book import ScriptBook
from vllm_harness._scripted.book_check import CheckedBook, check_book
from vllm_harness._scripted.book_file import BookFile
from vllm_harness._scripted.in_server.vllm_harness_names import DEFAULT_BOOK
from vllm_harness._scripted.suggestion import suggestion
from vllm_harness._server.records import ServerRecord, running
from vllm_harness._terminal.tables import plain_console
from vllm_harness.cli.request_lines import line

app = typer.Typer(help="Check a script book, reload it in a running server, and see what it answered.")
console = plain_console()
FILE = Annotated[Path, typer.Argument(help="The script book (YAML).")]


def read_book(path: Path, model: str, models_file: Path | None, args: list[str]) -> CheckedBook:
    """Reads and checks a script book for a model, or for all models if the name is empty."""
    known = load_models(models_file)
    entry = known.get(model) if model else None
    return check_book(path, entry, others=list(known), args=args)


@app.command(context_settings={"allow_extra_args": True, "ignore_unknown_options": True})
def check(
    context: typer.Context,
    file: FILE,
    model: str = "",
    models_file: Path | None = None,
) -> None:
    """Check a script book before a server starts; flags after `--` are those of `vllm serve`.

    Without --model, only the checks that apply to every model are made. The
    exit code is 1 if the book has an error. A warning names a rule that can be
    served but is probably a mistake.
    """
    checked = read_book(file, model, models_file, context.args)
    for text in checked.lines():
        console.print(text)
    warnings = len(checked.problems) - checked.errors
    console.print(f"rules: {len(checked.rules)}, errors: {checked.errors}, warnings: {warnings}")
    if checked.errors:
        raise typer.Exit(1)


@app.command()
def schema() -> None:
    """Print the JSON Schema of script books, for editors."""
    print(json.dumps(BookFile.model_json_schema(), indent=2))


@app.command()
def reload(
    file: Annotated[
        Path | None, typer.Argument(help="The script book (YAML); by default the file that is served.")
    ] = None,
    server: str = "",
    book_name: str = DEFAULT_BOOK,
    models_file: Path | None = None,
) -> None:
    """Replace the rules of a running server with those of a changed file, without a restart."""
    served = _served(server, book_name, models_file)
    path = file or _source(served)
    started = time.monotonic()
    checked = read_book(path, served.entry.name, models_file, [])
    served.replace(checked.usable(), str(path.resolve()))
    for text in checked.lines():
        console.print(text)
    console.print(f"{len(checked.rules)} rules of {path}, in {time.monotonic() - started:.2f} s")


@app.command()
def reset(server: str = "", book_name: str = DEFAULT_BOOK, models_file: Path | None = None) -> None:
    """Reset the counter of every rule, so that each serves `times` requests again."""
    _served(server, book_name, models_file).reset()


@app.command()
def log(
    server: str = "",
    last: int = 10,
    bodies: bool = True,
    json_: bool = False,
    models_file: Path | None = None,
) -> None:
    """List the last requests that a scripted server answered, each with its rule and its outcome.

    With --json each request is a line of JSON.
    """
    for entry in _served(server, DEFAULT_BOOK, models_file).answered()[-last:]:
        if json_:
            print(json.dumps(entry))
            continue
        console.print(line(entry))
        if bodies:
            body = entry["body"]
            console.print(json.dumps(body, indent=2) if body else "  (the body was too long to keep)")


@app.command()
def suggest(
    number: Annotated[
        int | None,
        typer.Argument(help="The number of a request in the log; by default the last that no rule matched."),
    ] = None,
    server: str = "",
    models_file: Path | None = None,
) -> None:
    """Print a rule that matches a request in the log, to paste into the book."""
    entries = _served(server, DEFAULT_BOOK, models_file).answered()
    chosen = [e for e in entries if (e["script"] is None if number is None else e["number"] == number)]
    if not chosen:
        wanted = "a request without a rule" if number is None else f"request {number}"
        raise UsageError(f"the log does not have {wanted}", hint="`vllm-harness book log` lists the requests")
    print(suggestion(chosen[-1]))


def _source(served: ScriptBook) -> Path:
    source = served.report()["source"]
    if not source:
        raise UsageError(f"book {served.name!r} was not read from a file", hint="name the file")
    return Path(source)


def _served(server: str, book: str, models_file: Path | None) -> ScriptBook:
    """A script book of the running server that has this name or port."""
    record = _record(server)
    return ScriptBook(record.endpoint, load_models(models_file).get(record.name), name=book)


def _record(server: str) -> ServerRecord:
    scripted = [record for record in running() if record.lane == "scripted"]
    matching = [record for record in scripted if server in ("", record.name, str(record.port))]
    if len(matching) == 1:
        return matching[0]
    listed = ", ".join(f"{record.name} on port {record.port}" for record in matching or scripted)
    if matching:
        raise UsageError(f"several scripted servers run: {listed}", hint="name one with --server PORT")
    raise UsageError(
        f"no scripted server matches {server!r}; found: {listed}" if scripted else "no scripted server runs",
        hint="start one: vllm-harness serve MODEL --book FILE",
    )
