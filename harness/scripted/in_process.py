"""Parses scripted texts with vLLM's own parser objects, in its interpreter: faster than a server.

A difference found here counts only once a server shows it over HTTP.
"""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict

from harness.environments.spec import Environment
from harness.errors import HarnessError
from harness.scripted.families import Family, family_entry
from harness.scripted.standin import build_stand_in

_SCRIPT = Path(__file__).parent / "inserver" / "vllm_harness_parse.py"

WAYS = ("whole", "1", "3", "0", "0+end")
"""Not streamed; 1 or 3 tokens a delta; all in one delta; the same with the token that ends the turn."""


class InProcessError(HarnessError):
    """The interpreter did not run the parsers at all."""


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Case(_Strict):
    """A text that the model says.

    Attributes:
        name: unique within its family.
        text: raw text, up to and with the token that ends the turn.
        tools: offered with the request; none: no tools.
        request: further fields of the request.
    """

    name: str
    text: str
    tools: tuple[dict[str, Any], ...] = ()
    request: dict[str, Any] = {}


class Call(_Strict):
    """A call as a client gets it, deltas joined."""

    name: str | None
    arguments: str


class Parsed(_Strict):
    """What came out.

    Attributes:
        family, case, way: what was parsed and how; None: the family's parsers could not even be made.
        tokens: length of the text.
        reasoning, content, calls: the message.
        error: the exception, where one came instead.
    """

    family: str
    case: str | None = None
    way: str | None = None
    tokens: int = 0
    reasoning: str | None = None
    content: str | None = None
    calls: tuple[Call, ...] = ()
    error: str | None = None


def parse_in_process(
    environment: Environment,
    jobs: Iterable[tuple[Family, Sequence[Case]]],
    *,
    ways: Sequence[str] = WAYS,
    limit_s: float = 500,
) -> list[Parsed]:
    """Parses each family's cases in each way, in one subprocess that imports vLLM once.

    Args:
        jobs: families whose dialect is data, with their cases.
        ways: `whole`, or a number of tokens a delta (0: all), `+end` where the token that ends the turn
            comes with the last.

    Raises:
        InProcessError: vLLM does not import, or the whole takes longer than the limit.
    """
    families = [_job(family, cases, ways) for family, cases in jobs]
    try:
        answer = subprocess.run(
            [environment.python, "-c", _SCRIPT.read_text()],
            cwd="/",
            env=environment.environ(),
            input=json.dumps({"families": families}),
            capture_output=True,
            text=True,
            timeout=limit_s,
        )
    except subprocess.TimeoutExpired as error:
        raise InProcessError(
            f"{environment.describe()} did not parse within {limit_s:g} s", hint="give fewer cases"
        ) from error
    if answer.returncode:
        said = "\n".join(answer.stderr.strip().splitlines()[-5:])
        raise InProcessError(
            f"the parsers of {environment.describe()} do not run in process:\n{said}",
            hint=f"look at `{environment.python} -c 'import vllm.parser'`",
        )
    return [Parsed.model_validate_json(line) for line in answer.stdout.splitlines()]


def _job(family: Family, cases: Sequence[Case], ways: Sequence[str]) -> dict[str, Any]:
    entry = family_entry(family)
    assert entry.stand_in is not None
    return {
        "name": family.name,
        "tool_parser": family.tool_parser,
        "reasoning_parser": family.reasoning_parser,
        "tokenizer": str(build_stand_in(entry, Path(entry.stand_in.tokenizer))),
        "request": family.request,
        "ways": list(ways),
        "cases": [case.model_dump() for case in cases],
    }
