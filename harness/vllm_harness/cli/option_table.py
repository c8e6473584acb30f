"""The table of all options of `vllm-harness`: each name has one help text, one type and one meaning.

A parameter of a command is an option if its name has a row here; `from_table` makes the options of a command.
The plugin of pytest has the same words with the prefix `--vllm-`.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, fields, is_dataclass
from pathlib import Path
from typing import Annotated, Any, get_args, get_origin, get_type_hints

import typer

from vllm_harness._errors import UsageError

MANY = 8
"""The most options that a command shows in one panel; with more, each stands in the panel of its row."""
_PICK, _SERVER, _RUN, _OUT = "Selection", "Server", "Execution", "Options"


@dataclass(frozen=True)
class OptionRow:
    """What an option is, on whatever command.

    Attributes:
        panel: where the help of a command with many options shows it; empty: nowhere.
        type: of one value; `Any` for a choice that each command makes.
        metavar: what the help calls the value; empty for a flag, and for a choice whose values it lists.
        help: what the help says.
        short: a further name of one letter.
        least: the smallest number.
        needs: options, one of which has to be given with it.
    """

    panel: str
    type: Any
    metavar: str
    help: str
    short: str = ""
    least: float | None = None
    needs: tuple[str, ...] = ()


OPTIONS: Mapping[str, OptionRow] = {
    "again": OptionRow(_PICK, bool, "", "Judge the mutants that survived again."),
    "all": OptionRow(_PICK, bool, "", "All entries, not only those named or shown."),
    "api": OptionRow(_PICK, Any, "API", "responses, chat or messages; by default any."),
    "api-key-env": OptionRow(_SERVER, str, "NAME", "Variable with the API key of that server."),
    "apis": OptionRow(_PICK, str, "NAME,...", "responses, chat, messages."),
    "as": OptionRow(_PICK, Any, "KIND", "cassette, regression, run or recording."),
    "at-once": OptionRow(_RUN, int, "N", "Forks that share a server's tests; 0: none."),
    "bad": OptionRow(_PICK, str, "VERSION", "A release or revision with the defect."),
    "baseline": OptionRow(_PICK, Path, "FILE", "Fail only where worse than this file."),
    "bodies": OptionRow(_OUT, bool, "", "Show the body of each request."),
    "book": OptionRow(_SERVER, Path, "FILE", "The script book (YAML) to answer from."),
    "book-name": OptionRow(_SERVER, str, "NAME", "The name of the book on the server."),
    "books-url": OptionRow(_SERVER, str, "URL", "The scripted server behind that server."),
    "budget": OptionRow(_PICK, int, "N", "Meanings for each family.", least=1),
    "bundle": OptionRow(_RUN, Path, "FOLDER", "A bundle for the nodes.", needs=("ray", "resume")),
    "cancel": OptionRow(_PICK, float, "SHARE", "Share of streams that the client abandons."),
    "capture": OptionRow(_PICK, Path, "FILE", "Recorded traffic, as `validate` reads it."),
    "case": OptionRow(_PICK, str, "NAME", "The test case that failed."),
    "cases": OptionRow(
        _PICK,
        str,
        "GROUP,...",
        "canonical, forced, chunks, malformed, look-alikes, properties, load, cost.",
    ),
    "cell": OptionRow(_PICK, str, "RUN", "A run of `regression`.", needs=("case",)),
    "changed": OptionRow(_PICK, bool, "", "Only what the change of a tree can touch."),
    "changed-from": OptionRow(_PICK, str, "REV", "Compare with this revision.", needs=("changed",)),
    "class": OptionRow(_PICK, Any, "CLASS", "defect, deviation, feature gap or arguable."),
    "clients": OptionRow(_RUN, int, "N", "Processes that send requests.", least=1, needs=("ray",)),
    "cold-start": OptionRow(_SERVER, bool, "", "Start without the fork server."),
    "commands": OptionRow(_OUT, bool, "", "Print how to show each defect again."),
    "component": OptionRow(_PICK, str, "TEXT", "Only files of vLLM with this in their path."),
    "concurrency": OptionRow(_PICK, int, "N", "Conversations or streams at once.", least=0),
    "coverage": OptionRow(_OUT, bool, "", "Measure which lines of the parsers run."),
    "cpu-s": OptionRow(_PICK, float, "S", "CPU seconds for each growing answer.", least=0.01),
    "device": OptionRow(_SERVER, Any, "NAME", "cpu or cuda; by default what is there."),
    "dtype": OptionRow(_PICK, str, "DTYPE", "float32, bfloat16 or float16; by default all."),
    "duration": OptionRow(_PICK, float, "S", "Start conversations for so many seconds."),
    "earlier": OptionRow(_PICK, Path, "FILE", "Skip mutants that an earlier run killed."),
    "engine": OptionRow(_PICK, Any, "NAME", "in-process or http."),
    "family": OptionRow(_PICK, str, "NAME", "The family of the parser."),
    "folder": OptionRow(_PICK, Path, "FOLDER", "A folder with further entries, ID.yaml each."),
    "format": OptionRow(_OUT, Any, "", "The format of the output."),
    "frontend": OptionRow(_SERVER, Any, "NAME", "python or rust; by default python."),
    "frontends": OptionRow(_SERVER, str, "NAME,...", "python, rust."),
    "gateway-model": OptionRow(_SERVER, str, "NAME", "The model's name at the gateway."),
    "good": OptionRow(_PICK, str, "VERSION", "A release or revision without the defect."),
    "header": OptionRow(_SERVER, str, "HEADER", "A header to send, as 'name: value'."),
    "http": OptionRow(_PICK, int, "N", "Survivors to run on servers too.", least=0),
    "hub-weights": OptionRow(_PICK, bool, "", "Include the weights of models of the hub."),
    "ignore": OptionRow(_PICK, str, "CODE,...", "No rules whose codes start so."),
    "input": OptionRow(_PICK, str, "RUN", "A run to read, by name or folder."),
    "jobs": OptionRow(_RUN, int, "N", "Servers or interpreters at a time.", least=1),
    "json": OptionRow(_OUT, bool, "", "Print JSON."),
    "keep-servers": OptionRow(_SERVER, bool, "", "Leave servers running for a later run."),
    "lane": OptionRow(_SERVER, Any, "LANE", "live (real weights) or scripted (stand-in)."),
    "last": OptionRow(_OUT, int, "N", "How many requests to show."),
    "lean": OptionRow(_PICK, bool, "", "Leave out torch and what env/lean.yaml names."),
    "least": OptionRow(_OUT, float, "PERCENT", "Fail if fewer mutants are killed.", least=0),
    "library": OptionRow(_PICK, int, "N", "Mutants of cosmic-ray for each file.", least=0),
    "markdown": OptionRow(_OUT, bool, "", "Print a report to file upstream."),
    "meanings": OptionRow(_PICK, Path, "FILE", "Take the meanings from this file."),
    "measure": OptionRow(_PICK, bool, "", "Only measure which lines the tests run."),
    "minutes": OptionRow(_RUN, int, "N", "Start no mutant after this time; 0: no limit.", least=0),
    "missing-tool-call": OptionRow(_PICK, Any, "ACTION", "error_stop, ignore_stop or ignore_continue."),
    "model": OptionRow(_SERVER, str, "NAME", "A model entry or a hub id."),
    "models-file": OptionRow(_SERVER, Path, "FILE", "Another models.yaml."),
    "most": OptionRow(_PICK, int, "N", "Most cases or tests for a mutant; 0: all.", least=0),
    "no-stream": OptionRow(_PICK, bool, "", "Ask for answers that are not streamed."),
    "only": OptionRow(_PICK, str, "NAME", "Only this case or mutant."),
    "open": OptionRow(_OUT, bool, "", "Open the page in a browser."),
    "output": OptionRow(_OUT, Path, "PATH", "The file or folder to write.", short="o"),
    "over": OptionRow(_SERVER, Path, "PYTHON", "The Python here that has torch."),
    "parser": OptionRow(_PICK, str, "NAME", "Only this parser, or families with it."),
    "parsers": OptionRow(_PICK, str, "NAME,...", "Families or vLLM's names of parsers."),
    "part-size": OptionRow(_OUT, str, "SIZE", "Largest size of a file, such as 60M or 2G."),
    "port": OptionRow(_SERVER, int, "PORT", "The port; by default a free one."),
    "product": OptionRow(_PICK, str, "NAME", "A gateway, such as litellm==1.106.12."),
    "prompts": OptionRow(_PICK, int, "N", "How many prompts; by default all.", least=1),
    "proxy": OptionRow(_SERVER, int, "PORT", "Record what clients send here; 0: any port."),
    "quiet": OptionRow(_OUT, bool, "", "Print no line for each request."),
    "rate": OptionRow(_PICK, float, "N", "Conversations to start each second."),
    "ray": OptionRow(_RUN, str, "[ADDRESS]", "Run on the nodes of a Ray cluster."),
    "repeat": OptionRow(_RUN, int, "K", "Run each live test K times: pass@k, pass^k."),
    "report-all": OptionRow(_OUT, bool, "", "Keep the exchanges of tests that passed too."),
    "requests": OptionRow(_PICK, int, "N", "Requests, up to the end of a conversation."),
    "results": OptionRow(_PICK, Path, "FOLDER", "The run in which --test failed."),
    "resume": OptionRow(_RUN, str, "RUN", "Resume a run with its original options."),
    "run": OptionRow(_RUN, str, "NAME", "Name of the run; the same name resumes it."),
    "sample": OptionRow(_PICK, int, "N", "How many mutants to draw; 0: all.", least=0),
    "script": OptionRow(_OUT, bool, "", "Print a script that needs only vLLM."),
    "seed": OptionRow(_PICK, int, "N", "Random seed."),
    "select": OptionRow(_PICK, str, "CODE,...", "Only rules whose codes start so."),
    "serve": OptionRow(_SERVER, int, "PORT", "Answer clients here; 0: any port."),
    "server": OptionRow(_SERVER, str, "NAME", "The scripted server, by name or port."),
    "server-api-key-env": OptionRow(_SERVER, str, "NAME", "Variable with the key of the server behind."),
    "server-model": OptionRow(_SERVER, str, "NAME", "The model's name on that server."),
    "server-url": OptionRow(_SERVER, str, "URL", "Use a server that is already running."),
    "server-version": OptionRow(_SERVER, str, "VERSION", "That server's vLLM, if it reports none."),
    "servers": OptionRow(_PICK, int, "N", "Only check whether N CPU servers can run here."),
    "source": OptionRow(_PICK, bool, "", "Also compare with the official source code."),
    "stream": OptionRow(_PICK, Any, "CHOICE", "Stream the answers: both, yes or no."),
    "test": OptionRow(_PICK, str, "ID", "A test that failed.", needs=("results",)),
    "tests": OptionRow(_PICK, str, "VERSION", "Release of the tests; by default --vllm's."),
    "timed": OptionRow(_SERVER, bool, "", "Answer with the recorded delays.", needs=("serve",)),
    "tokenizers": OptionRow(_PICK, str, "KIND,...", "synthetic, real."),
    "tokens": OptionRow(_OUT, bool, "", "Record the generated token ids too."),
    "transport": OptionRow(_PICK, str, "NAME", "responses, responses-history, chat or messages."),
    "tree": OptionRow(_PICK, str, "DIR@VERSION", "A checkout, with the release of its kernels."),
    "unit-tests": OptionRow(_PICK, bool, "", "Run tests that start no server too."),
    "unpacked": OptionRow("", Path, "FOLDER", "Where the parts have been unpacked."),
    "unreported": OptionRow(_PICK, bool, "", "Only defects not reported upstream."),
    "upstream": OptionRow(_SERVER, str, "URL", "The server behind the proxy.", needs=("proxy",)),
    "url": OptionRow(_OUT, str, "URL", "The address of the published site."),
    "version": OptionRow(_OUT, bool, "", "Print the version, and exit."),
    "vllm": OptionRow(_SERVER, str, "VLLM", "0.32.0, 0.33.0@0.32.0, tree:PATH@0.32.0 or installed[:PYTHON]."),
    "vllm-python": OptionRow(_SERVER, Path, "PYTHON", "The same as --vllm installed:PYTHON."),
    "watch": OptionRow(_SERVER, bool, "", "Reload the book on changes.", needs=("book",)),
    "weights": OptionRow(_SERVER, Path, "FOLDER", "The checkpoint to serve and compare."),
    "without-torch": OptionRow(_PICK, bool, "", "Leave torch out: the other machine has it."),
    "write": OptionRow(_OUT, bool, "", "Write it to the package (for maintainers)."),
    "write-baseline": OptionRow(_OUT, Path, "FILE", "Write the mismatches as a baseline."),
    "wrong-answers": OptionRow(_PICK, str, "KIND,...", "Run passing tests with wrong answers too."),
}


def named(parameter: str) -> str:
    """The name of the option of a parameter: `api_key_env` is `api-key-env`, and `as_` is `as`."""
    return parameter.removesuffix("_").replace("_", "-")


def option(name: str, *, many: bool = False, on: bool = False, panel: bool = False, **settings: Any) -> Any:
    """The option of a row, for Typer.

    Args:
        name: of the row.
        many: whether it can be repeated.
        on: for a flag: whether it is on by default, so that there is a `--no-` form.
        panel: whether the panel of the row is shown.
        settings: further settings of `typer.Option`.
    """
    row = OPTIONS[name]
    flags = [f"--{name}/--no-{name}" if on else f"--{name}", *([f"-{row.short}"] if row.short else [])]
    text = f"{row.help.removesuffix('.')}; repeatable." if many else row.help
    settings |= {"metavar": row.metavar} if row.metavar or row.type is bool else {}
    settings |= {"rich_help_panel": row.panel} if panel else {}
    settings |= {"callback": _at_least(row.least)} if row.least is not None else {}
    hidden, shown = not row.panel, row.type is not Path
    return typer.Option(*flags, help=text, hidden=hidden, show_default=shown, **settings)


def from_table(command: Callable[..., None]) -> Callable[..., None]:
    """Makes options of a command's parameters, and of the fields of a parameter that is a dataclass.

    Raises:
        KeyError: the table has no row for a parameter.
    """
    signature = inspect.signature(command, eval_str=True)
    classes = {name: each.annotation for name, each in signature.parameters.items() if _is_class(each)}
    flat = [option for each in signature.parameters.values() for option in _flat(each)]
    options = {each.name for each in flat if _is_option(each.annotation)}
    parameters = [_with_option(each, len(options) > MANY) if each.name in options else each for each in flat]

    @functools.wraps(command)
    def called(**values: Any) -> None:
        _check_needs({named(name): values[name] for name in options})
        made = {
            name: kind(**{each.name: values.pop(each.name) for each in fields(kind)})
            for name, kind in classes.items()
        }
        command(**values, **made)

    called.__signature__ = signature.replace(parameters=parameters)  # type: ignore[attr-defined]
    called.__annotations__ = {each.name: each.annotation for each in parameters}
    return called


def _flat(parameter: inspect.Parameter) -> Iterator[inspect.Parameter]:
    """A parameter, or one for each field of its class."""
    if not _is_class(parameter):
        yield parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY)
        return
    hints = get_type_hints(parameter.annotation, include_extras=True)
    for each in fields(parameter.annotation):
        yield inspect.Parameter(
            each.name, inspect.Parameter.KEYWORD_ONLY, default=each.default, annotation=hints[each.name]
        )


def _is_class(parameter: inspect.Parameter) -> bool:
    return is_dataclass(parameter.annotation)


def _is_option(annotation: Any) -> bool:
    return get_origin(annotation) is not Annotated and annotation is not typer.Context


def _with_option(parameter: inspect.Parameter, panel: bool) -> inspect.Parameter:
    kind = parameter.annotation
    many = any(get_origin(each) is list for each in (kind, *get_args(kind)))
    made = option(named(parameter.name), many=many, on=parameter.default is True, panel=panel)
    return parameter.replace(annotation=Annotated[kind, made])


def _at_least(least: float) -> Callable[[Any], Any]:
    """A check that a number is not too small."""

    def checked(value: Any) -> Any:
        if value is not None and value < least:
            raise typer.BadParameter(f"{value} is less than {least}.")
        return value

    return checked


def _check_needs(values: Mapping[str, Any]) -> None:
    """Raises UsageError where an option is given without any of those that it needs."""
    given = [
        name for name, value in values.items() if value is not None and value is not False and value != ""
    ]
    for name in given:
        needs = [each for each in OPTIONS[name].needs if each in values]
        if needs and not set(needs) & set(given):
            raise UsageError(
                f"--{name} needs --{' or --'.join(needs)}", hint=f"add --{needs[0]}, or leave --{name} out"
            )
