"""Parses scripted texts with vLLM's own parser objects, in its interpreter: faster than a server.

A difference found here counts only once a server shows it over HTTP.
"""

from __future__ import annotations

import json
import os
import subprocess
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from itertools import groupby, pairwise
from pathlib import Path
from threading import Timer
from typing import IO, Any

from vllm_harness.environments.spec import Environment
from vllm_harness.errors import HarnessError
from vllm_harness.files.strict import StrictModel
from vllm_harness.scripted.families import Family, family_entry
from vllm_harness.scripted.standin import build_stand_in

WORKERS = Path(__file__).parents[1] / "workers"
_SCRIPT = WORKERS / "vllm_harness_parse.py"
_COVERAGE = _SCRIPT.with_name("vllm_harness_coverage.py")


INTERPRETERS_FOLDER = "/"
"""Where vLLM's interpreter runs, so that no module of ours is found before vLLM's."""


@dataclass(frozen=True)
class Coverage:
    """Where coverage.py is installed, and where its report in JSON goes."""

    package: Path
    report: Path


class InProcessError(HarnessError):
    """The interpreter did not run the parsers at all."""


class Case(StrictModel):
    """A text that the model says.

    Attributes:
        name: unique within its family.
        text: raw text, up to and with the token that ends the turn.
        asked: what the user says; empty: something else.
        tools: offered with the request; none: no tools.
        choice: `none`, `auto`, `required`, or the name of the function that must be called; None: not given.
        instead: said in place of the text where the request's grammar does not let it through: the first of
            these that it does.
        ways: how it is parsed: `whole`; a number of tokens a delta (0: all), `+end` where the token that ends
            the turn comes with the last; `at 3,7`: deltas that end after these tokens; `late`: one token a
            delta, its text some characters later, as a stop string in the request has it; `cuts`: two deltas,
            cut at every place; `random`: deltas of random sizes, the same ones each time. The last two give
            each outcome once, with the first place that led to it.
        quoted: where the text has what is spelled with ordinary tokens, whatever it looks like: from, to.
        spelled: whether markers are spelled with ordinary tokens.
        cut: whether it is parsed cut off after each of its tokens, in place of once to its end.
        ids: what its calls are identified by, where the text says it.
    """

    name: str
    text: str
    asked: str = ""
    tools: tuple[dict[str, Any], ...] = ()
    choice: str | None = None
    instead: tuple[str, ...] = ()
    ways: tuple[str, ...] = ()
    quoted: tuple[tuple[int, int], ...] = ()
    spelled: bool = False
    cut: bool = False
    ids: tuple[str, ...] = ()

    @property
    def pieces(self) -> list[str]:
        """The text in the pieces that are encoded each by itself: what is quoted a letter at a time."""
        edges = [0, *(edge for span in self.quoted for edge in span), len(self.text)]
        found = []
        for number, (start, end) in enumerate(pairwise(edges)):
            found += list(self.text[start:end]) if number % 2 else [self.text[start:end]]
        return list(filter(None, found))


class Call(StrictModel):
    """A call as a client gets it, deltas joined.

    Attributes:
        id: what the model calls it; without one, a server makes one up.
        pieces: how many deltas had a part of its arguments, where that was counted.
        index: its number in a stream.
    """

    name: str | None
    arguments: str
    id: str | None = None
    pieces: int | None = None
    index: int | None = None


class Parsed(StrictModel):
    """What came out.

    Attributes:
        family, case, way: what was parsed and how; None: the family's parsers could not even be made.
        job: which of the jobs that were given, from 0.
        at: after how many tokens the text was cut off, or the number of the segmentation that gave this.
        tokens: length of the text.
        said: the text, where it is not the case's first.
        reasoning, content, calls: the message.
        thought: how many tokens of reasoning are counted, where they are.
        spoken: how many tokens the reasoning is that came out, where that was counted.
        error: the exception, where one came instead.
    """

    family: str
    job: int = 0
    case: str | None = None
    way: str | None = None
    at: int | None = None
    tokens: int = 0
    said: str | None = None
    reasoning: str | None = None
    content: str | None = None
    calls: tuple[Call, ...] = ()
    thought: int | None = None
    spoken: int | None = None
    error: str | None = None


def parsing(
    environment: Environment,
    jobs: Iterable[tuple[Family, Sequence[Case]]],
    *,
    limit_s: float = 500,
    coverage: Coverage | None = None,
) -> Iterator[list[Parsed]]:
    """Parses each family's cases in each way, and gives each job's results as they come.

    Args:
        jobs: families whose dialect is data, with their cases.
        coverage: measures what of vLLM's parsers runs.

    Raises:
        InProcessError: vLLM does not import, or the whole takes longer than the limit.
    """
    families = [in_process_job(family, cases) for family, cases in jobs if cases]
    code, environ = _SCRIPT.read_text(), environment.environ()
    if coverage:
        code = f"{_COVERAGE.read_text()}\n\n{code}"
        paths = filter(None, [str(coverage.package), environ.get("PYTHONPATH")])
        environ |= {"PYTHONPATH": os.pathsep.join(paths), "VH_COVERAGE": str(coverage.report)}
    lines = lines_of(environment, ("-c", code), {"families": families}, environ=environ, limit_s=limit_s)
    yield from _by_job(lines)


def lines_of(
    environment: Environment,
    arguments: Sequence[str],
    given: object,
    *,
    environ: Mapping[str, str] | None = None,
    limit_s: float,
) -> Iterator[str]:
    """What vLLM's interpreter writes, line by line, as it comes.

    Args:
        arguments: of the interpreter.
        given: standard input, as JSON.
        environ: its variables, where they are not the environment's own.

    Raises:
        InProcessError: it fails, or the whole takes longer than the limit.
    """
    with tempfile.TemporaryFile("w+") as asked:
        json.dump(given, asked)
        asked.seek(0)
        with _interpreter(
            environment, arguments, asked, environ or environment.environ(), limit_s
        ) as running:
            assert running.stdout is not None
            yield from running.stdout
            running.wait()


Ask = Callable[[Family, Sequence[Case]], list[Parsed]]


@contextmanager
def conversing(environment: Environment, *, limit_s: float) -> Iterator[Ask]:
    """An interpreter that is asked again and again: gives what parses a family's cases.

    Raises:
        InProcessError: vLLM does not import, or the whole takes longer than the limit.
    """
    jobs: dict[str, dict[str, Any]] = {}
    code = ("-c", _SCRIPT.read_text())
    with _interpreter(environment, code, subprocess.PIPE, environment.environ(), limit_s) as running:
        asking, answers = running.stdin, running.stdout
        assert asking is not None
        assert answers is not None

        def ask(family: Family, cases: Sequence[Case]) -> list[Parsed]:
            if family.name not in jobs:
                jobs[family.name] = in_process_job(family, ())
            asked = {**jobs[family.name], "cases": [_told(case) for case in cases]}
            asking.write(json.dumps({"families": [asked]}) + "\n")
            asking.flush()
            *lines, end = _until_empty(answers)
            if end:
                raise BrokenPipeError("the interpreter has ended")
            return [Parsed.model_validate_json(line) for line in lines]

        with suppress(BrokenPipeError):  # told below, with its last words
            yield ask
            asking.close()
        running.wait()


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
    given: IO[str] | int,
    environ: Mapping[str, str],
    limit_s: float,
) -> Iterator[subprocess.Popen[str]]:
    with tempfile.TemporaryFile("w+") as errors:
        running = subprocess.Popen(
            [environment.python, *arguments],
            cwd=INTERPRETERS_FOLDER,
            env={**environ, "VLLM_LOGGING_STREAM": "ext://sys.stderr"},
            stdin=given,
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
        )
        too_long = Timer(limit_s, running.kill)
        too_long.start()
        try:
            yield running
        finally:
            expired = not too_long.is_alive()
            too_long.cancel()
            running.kill()
            running.wait()
        if expired:
            raise InProcessError(
                f"{environment.describe()} did not parse within {limit_s:g} s", hint="give fewer cases"
            )
        if running.returncode:
            errors.seek(0)
            said = "\n".join(errors.read().strip().splitlines()[-5:])
            raise InProcessError(
                f"the parsers of {environment.describe()} do not run in process:\n{said}",
                hint=f"look at `{environment.python} -c 'import vllm.parser'`",
            )


def _by_job(lines: Iterable[str]) -> Iterator[list[Parsed]]:
    parsed = (Parsed.model_validate_json(line) for line in lines if line.strip())
    for _, results in groupby(parsed, key=lambda one: one.job):
        yield list(results)


def in_process_job(family: Family, cases: Sequence[Case]) -> dict[str, Any]:
    """What the script in vLLM's interpreter is told of one family."""
    entry = family_entry(family)
    assert entry.stand_in is not None
    return {
        "name": family.name,
        "tool_parser": family.tool_parser,
        "reasoning_parser": family.reasoning_parser,
        "plugin": family.plugin,
        "tokenizer": str(build_stand_in(entry, Path(entry.stand_in.tokenizer))),
        "request": family.request,
        "cases": [_told(case) for case in cases],
    }


def _told(case: Case) -> dict[str, Any]:
    return {**case.model_dump(), "pieces": case.pieces}
