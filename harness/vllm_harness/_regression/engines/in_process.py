"""Parses texts with vLLM's own parser objects, in vLLM's interpreter: faster than a server.

A mismatch found here counts only once a server shows it over HTTP.
"""

from __future__ import annotations

import json
import subprocess
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from threading import Timer
from typing import IO, Any

from vllm_harness._environments.spec import Environment
from vllm_harness._errors import HarnessError
from vllm_harness._machine.tasks import interrupted_by
from vllm_harness._regression.cases.case import CaseInput
from vllm_harness._regression.cases.delivery import Delivery
from vllm_harness._regression.engines.answer import CaseAnswer
from vllm_harness._scripted.families import Family, entry_of
from vllm_harness._server.launch import fetched_stand_in
from vllm_harness._terminal.status import quiet

WORKERS = Path(__file__).parents[1] / "workers"
_SCRIPT = WORKERS / "vllm_harness_parse.py"
OLDEST = "0.24"
"""The first vLLM whose parsers the scripts drive."""
INTERPRETERS_FOLDER = "/"
"""Where vLLM's interpreter runs, so that no module of ours is found before vLLM's."""


@dataclass(frozen=True)
class Watching:
    """What watches an interpreter from its start: code that runs first, and the interpreter's variables."""

    code: str
    environ: Mapping[str, str]


class InProcessError(HarnessError):
    """The interpreter did not run the parsers at all."""


def parse_all(
    environment: Environment,
    case_sets: Iterable[tuple[Family, Sequence[CaseInput]]],
    *,
    limit_s: float = 500,
    watching: Watching | None = None,
) -> Iterator[list[CaseAnswer]]:
    """Parses each family's cases in each delivery, and gives the answers of each case set as they come.

    Args:
        environment: whose vLLM parses.
        case_sets: families, with the inputs of cases.
        limit_s: for all of them.
        watching: what watches the parsers.

    Raises:
        InProcessError: vLLM does not import, or the whole takes longer than the limit.
    """
    families = [worker_family(family, inputs) for family, inputs in case_sets if inputs]
    code, environ = _SCRIPT.read_text(), None
    if watching:
        code, environ = f"{watching.code}\n\n{code}", watching.environ
    lines = lines_of(environment, ("-c", code), {"families": families}, environ=environ, limit_s=limit_s)
    yield from by_case_set(lines)


def lines_of(
    environment: Environment,
    arguments: Sequence[str],
    document: object,
    *,
    environ: Mapping[str, str] | None = None,
    limit_s: float,
) -> Iterator[str]:
    """What vLLM's interpreter writes, line by line, as it comes.

    Args:
        environment: whose interpreter runs.
        arguments: of the interpreter.
        document: standard input, as JSON.
        environ: its variables, where they are not the environment's own.
        limit_s: for the whole.

    Raises:
        InProcessError: it fails, or the whole takes longer than the limit.
    """
    with tempfile.TemporaryFile("w+") as stdin:
        json.dump(document, stdin)
        stdin.seek(0)
        variables = environ or environment.environ()
        with _interpreter(environment, arguments, stdin, variables, limit_s) as process:
            assert process.stdout is not None
            yield from process.stdout
            process.wait()


Parse = Callable[[Family, Sequence[CaseInput]], list[CaseAnswer]]


@contextmanager
def parse_session(environment: Environment, *, limit_s: float) -> Iterator[Parse]:
    """An interpreter that stays: gives what parses a family's cases in it, as often as it is called.

    Raises:
        InProcessError: vLLM does not import, or the whole takes longer than the limit.
    """
    families: dict[str, dict[str, Any]] = {}
    code = ("-c", _SCRIPT.read_text())
    with _interpreter(environment, code, subprocess.PIPE, environment.environ(), limit_s) as process:
        stdin, stdout = process.stdin, process.stdout
        assert stdin is not None
        assert stdout is not None

        def parse(family: Family, inputs: Sequence[CaseInput]) -> list[CaseAnswer]:
            if family.name not in families:
                families[family.name] = worker_family(family, ())
            document = {**families[family.name], "cases": [_worker_case(input_) for input_ in inputs]}
            stdin.write(json.dumps({"families": [document]}) + "\n")
            stdin.flush()
            *lines, end = _until_empty(stdout)
            if end:
                raise BrokenPipeError("the interpreter has ended")
            return [CaseAnswer.model_validate_json(line) for line in lines]

        with suppress(BrokenPipeError):  # reported below, with the last lines of the interpreter's errors
            yield parse
            stdin.close()
        process.wait()


def _until_empty(lines: Iterable[str]) -> Iterator[str]:
    """Lines, up to and with the first that is empty."""
    for line in lines:
        yield line.strip()
        if not line.strip():
            return
    yield "no empty line"


@contextmanager
def _interpreter(
    environment: Environment,
    arguments: Sequence[str],
    stdin: IO[str] | int,
    environ: Mapping[str, str],
    limit_s: float,
) -> Iterator[subprocess.Popen[str]]:
    with tempfile.TemporaryFile("w+") as errors, tempfile.TemporaryDirectory() as folder:
        process = subprocess.Popen(
            [environment.python, *arguments],
            cwd=INTERPRETERS_FOLDER,
            env={**environ, "VLLM_LOGGING_STREAM": "ext://sys.stderr", "TMPDIR": folder},
            stdin=stdin,
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
        )
        limit = Timer(limit_s, process.kill)
        limit.start()
        try:
            with interrupted_by(process.kill):
                yield process
        finally:
            expired = not limit.is_alive()
            limit.cancel()
            process.kill()
            process.wait()
        if expired:
            raise InProcessError(
                f"{environment.describe()} did not parse within {limit_s:g} s", hint="give fewer cases"
            )
        if process.returncode:
            errors.seek(0)
            last_lines = "\n".join(errors.read().strip().splitlines()[-5:])
            raise InProcessError(
                f"the parsers of {environment.describe()} do not run in process:\n{last_lines}",
                hint=f"look at `{environment.python} -c 'import vllm.parser'`",
            )


def by_case_set(lines: Iterable[str]) -> Iterator[list[CaseAnswer]]:
    """The answers of lines, those of a case set together."""
    answers = (CaseAnswer.model_validate_json(line) for line in lines if line.strip())
    for _, group in groupby(answers, key=lambda answer: answer.case_set):
        yield list(group)


def worker_family(family: Family, inputs: Sequence[CaseInput]) -> dict[str, Any]:
    """A family and its cases as the script in vLLM's interpreter reads them."""
    missing, tokenizer = "", ""
    env: dict[str, str] = {}
    try:
        tokenizer, _, env = fetched_stand_in(entry_of(family), quiet)
    except HarnessError as error:  # of one family, which keeps the others from nothing
        missing = error.message
    return {
        "name": family.name,
        "tool_parser": family.tool_parser,
        "reasoning_parser": family.reasoning_parser,
        "plugin": family.plugin,
        "missing": missing,
        "tokenizer": tokenizer,
        "env": env,
        "harmony": family.form is None,
        "request": family.request,
        "cases": [_worker_case(input_) for input_ in inputs],
    }


def _worker_case(input_: CaseInput) -> dict[str, Any]:
    deliveries = [_worker_delivery(delivery) for delivery in input_.deliveries]
    return {**input_.model_dump(), "pieces": input_.pieces, "deliveries": deliveries}


def _worker_delivery(delivery: Delivery) -> dict[str, Any]:
    """Its parts, so that the worker need not read its code, which comes back with each answer."""
    return {
        "code": delivery.code,
        "shape": delivery.shape,
        "tokens": delivery.tokens,
        "with_end": delivery.with_end,
        "cuts": delivery.cuts,
    }
