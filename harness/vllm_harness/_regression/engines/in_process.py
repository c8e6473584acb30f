"""Parses texts with vLLM's own parser objects in vLLM's interpreter, which is faster than a server.

A mismatch found here counts only if a server shows it over HTTP too.
"""

from __future__ import annotations

import json
import subprocess
import tempfile
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import asdict
from itertools import groupby
from pathlib import Path
from threading import Timer
from typing import IO, Any

from vllm_harness._environments.spec import Environment
from vllm_harness._errors import HarnessError
from vllm_harness._files.temporary import temporary_folder
from vllm_harness._machine.processes import killed_with_parent
from vllm_harness._machine.tasks import interrupted_by
from vllm_harness._regression.cases.case import CaseInput
from vllm_harness._regression.engines.answer import CaseAnswer, ErrorCode
from vllm_harness._scripted.families import Family, entry_of
from vllm_harness._server.launch import fetched_stand_in
from vllm_harness._terminal.status import quiet

WORKERS = Path(__file__).parents[1] / "workers"
_SCRIPT = WORKERS / "vllm_harness_parse.py"
OLDEST = "0.24"
"""The oldest vLLM version whose parsers the worker scripts can use."""
INTERPRETERS_FOLDER = "/"
"""The working folder of vLLM's interpreter; it contains no modules that could shadow vLLM's."""


class InProcessError(HarnessError):
    """The interpreter failed or timed out before it returned all answers."""


def parse_all(
    environment: Environment,
    case_sets: Iterable[tuple[Family, Sequence[CaseInput]]],
    *,
    limit_s: float = 500,
    prelude: str = "",
    environ: Mapping[str, str] | None = None,
    traced: bool = False,
) -> Iterator[list[CaseAnswer]]:
    """Parses each family's cases in each delivery, and yields the answers to each case set as they arrive.

    Args:
        case_sets: families, each with the inputs of its cases.
        limit_s: the timeout in seconds for all cases together.
        prelude: code that the interpreter runs first.
        environ: environment variables that replace those of `environment`.
        traced: whether the answers include the chunks, and what the parsers send for each.

    Raises:
        InProcessError: vLLM cannot be imported, or the timeout expires.
    """
    families = [worker_family(*each) | {"traced": traced} for each in case_sets if each[1]]
    code = f"{prelude}\n\n{_SCRIPT.read_text()}"
    arguments, document = ("-c", code), {"families": families}
    with closing(lines_of(environment, arguments, document, environ=environ, limit_s=limit_s)) as lines:
        yield from by_case_set(lines)


def lines_of(
    environment: Environment,
    arguments: Sequence[str],
    document: object,
    *,
    environ: Mapping[str, str] | None = None,
    limit_s: float,
) -> Generator[str]:
    """Runs vLLM's interpreter, and yields the lines of its standard output.

    Args:
        document: the value to write to standard input as JSON.
        environ: environment variables that replace those of `environment`.
        limit_s: the timeout in seconds.

    Raises:
        InProcessError: the interpreter fails, or the timeout expires.
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
    """Starts an interpreter, and yields a function that parses a family's cases in it.

    Raises:
        InProcessError: vLLM cannot be imported, or the timeout expires.
    """
    families: dict[str, dict[str, Any]] = {}
    arguments = ("-c", _SCRIPT.read_text())
    with _interpreter(environment, arguments, subprocess.PIPE, environment.environ(), limit_s) as process:
        stdin, stdout = process.stdin, process.stdout
        assert stdin is not None
        assert stdout is not None

        def parse(family: Family, inputs: Sequence[CaseInput]) -> list[CaseAnswer]:
            if family.name not in families:
                families[family.name] = worker_family(family, ())
            document = {**families[family.name], "cases": [_worker_case(input_) for input_ in inputs]}
            stdin.write(json.dumps({"families": [document]}) + "\n")
            stdin.flush()
            answers: list[CaseAnswer] = []
            while line := stdout.readline():
                if not line.strip():  # an empty line ends the answers to one document
                    return answers
                answers.append(_answer_in(line))
            raise BrokenPipeError("the interpreter has ended")

        with suppress(BrokenPipeError):  # `_interpreter` reports the failure with the last lines of stderr
            yield parse
            stdin.close()
        process.wait()


@contextmanager
def _interpreter(
    environment: Environment,
    arguments: Sequence[str],
    stdin: IO[str] | int,
    environ: Mapping[str, str],
    limit_s: float,
) -> Iterator[subprocess.Popen[str]]:
    with tempfile.TemporaryFile("w+") as errors, temporary_folder() as folder:
        process = subprocess.Popen(
            [*killed_with_parent(), environment.python, *arguments],
            cwd=INTERPRETERS_FOLDER,
            env={**environ, "VLLM_LOGGING_STREAM": "ext://sys.stderr", "TMPDIR": str(folder)},
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
                f"{environment.describe()} did not parse within {limit_s:g} s", hint="run fewer cases"
            )
        if process.returncode:
            errors.seek(0)
            last_lines = "\n".join(errors.read().strip().splitlines()[-5:])
            raise InProcessError(
                f"the parsers of {environment.describe()} do not run in process:\n{last_lines}",
                hint=f"check the output of `{environment.python} -c 'import vllm.parser'`",
            )


def by_case_set(lines: Iterable[str]) -> Iterator[list[CaseAnswer]]:
    """Reads answers from lines, and yields a list of answers for each case set."""
    answers = (_answer_in(line) for line in lines if line.strip())
    for _, group in groupby(answers, key=lambda answer: answer.case_set):
        yield list(group)


def _answer_in(line: str) -> CaseAnswer:
    answer = CaseAnswer.model_validate_json(line)
    if answer.error is not None and answer.error.code == ErrorCode.NOT_DRIVEN:
        raise InProcessError(
            f"the parsers of this vLLM cannot be driven in process: {answer.error.message}",
            hint=f"vLLM {OLDEST} and later can; use --engine http for an earlier release",
        )
    return answer


def worker_family(family: Family, inputs: Sequence[CaseInput]) -> dict[str, Any]:
    """Returns a family and its cases in the format that the script in vLLM's interpreter reads."""
    missing, tokenizer = "", ""
    env: dict[str, str] = {}
    try:
        tokenizer, _, env = fetched_stand_in(entry_of(family), quiet)
    except HarnessError as error:  # the script then reports an error for this family only
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
    """Returns a case's input with deliveries as fields, so that the script need not parse delivery codes."""
    deliveries = [{"code": delivery.code, **asdict(delivery)} for delivery in input_.deliveries]
    return {**input_.model_dump(), "pieces": input_.pieces, "deliveries": deliveries}
