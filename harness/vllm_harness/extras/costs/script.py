"""Writes a script that measures a cost defect without the harness, and the report that goes with it."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from vllm_harness._defects.repro.verdict import Reproduction
from vllm_harness._exchange.delivery import Delivery
from vllm_harness._regression.cases.case import Run
from vllm_harness._regression.engines.answer import CaseAnswer, Curve
from vllm_harness._regression.engines.exchanges import body_of, path_of
from vllm_harness._scripted.families import entry_of
from vllm_harness.extras.costs.over_http import LONG_ENV, REQUEST_S, limit_of, long_args
from vllm_harness.extras.costs.repro import CostCase
from vllm_harness.extras.triage.report import (
    ReportFiles,
    fenced,
    files_of_server,
    markdown,
    piece_text,
    truncated,
)
from vllm_harness.extras.triage.script import PLUGIN, ServerScript, filled_template, model_of, server_script

_REPEATED = re.compile(r"(.{1,300}?)\1{3,}", re.DOTALL)
MEASURE = Path(__file__).with_name("standalone") / "measure.py"
HOW = """\
It parses an answer at doubling lengths with vLLM's parsers, as vLLM's server does for each request, and
prints the CPU time that this takes."""


def cost_files(cost: CostCase, shown: Reproduction, environment: str) -> ReportFiles:
    """The report and script of a defect, with the lengths of the answer that showed it."""
    if cost.is_served:
        return files_of_server(cost.defect, _served(cost, shown), shown, environment)
    constants, tokenizer = _in_process(cost, shown)
    report = markdown(cost.defect, _measurement(constants), shown.answers, environment)
    return ReportFiles(report, filled_template(MEASURE, cost.defect, HOW, constants, tokenizer))


def _in_process(cost: CostCase, shown: Reproduction) -> tuple[dict[str, Any], str]:
    """The constants of the script `measure.py`, and the tokenizer that it needs."""
    family, input_ = cost.family, cost.case.input
    files, tokenizer = model_of(entry_of(family))
    if family.plugin:
        files[PLUGIN] = Path(family.plugin).read_text()
    curve = _curve(shown)
    lengths = input_.grown[: len(curve.points) + 1] if curve else input_.grown
    constants = {
        "TOOL_PARSER": family.tool_parser,
        "REASONING_PARSER": family.reasoning_parser,
        "PLUGIN": PLUGIN if family.plugin else "",
        "REQUEST": dict(family.request),
        "TOOLS": list(input_.tools),
        "LENGTHS": [folded(grown.text) for grown in lengths],
        "STREAMED": Delivery.parse(shown.delivery).is_streamed,
        "HARMONY": family.form is None,
        "FILES": files,
    }
    return constants, tokenizer


def _served(cost: CostCase, shown: Reproduction) -> ServerScript:
    input_, entry = cost.case.input, entry_of(cost.family)
    delivery = Delivery.parse(shown.delivery)
    steps = []
    curve = _curve(shown)
    assert curve is not None
    for grown, point in zip(input_.grown, curve.points, strict=False):
        limited = input_.model_copy(update={"max_tokens": limit_of(point.size)})
        steps.append(
            {
                "method": "POST",
                "path": path_of(delivery),
                "body": {**body_of(limited, delivery, "Go on."), **cost.family.request},
                "say": [[folded(grown.text)]],
                "tokens": point.size,
                "limit_s": REQUEST_S,
            }
        )
    return server_script(entry, "python", long_args(cost.family), LONG_ENV, steps)


def folded(text: str) -> list[Run]:
    """Splits a text into runs: a piece repeated four times or more is written once, with its count."""
    runs: list[Run] = []
    end = 0
    for match in _REPEATED.finditer(text):
        runs += [(text[end : match.start()], 1), (match[1], len(match[0]) // len(match[1]))]
        end = match.end()
    return [run for run in (*runs, (text[end:], 1)) if run[0]]


def _curve(shown: Reproduction) -> Curve | None:
    """The curve that shows the defect; None if an error shows it."""
    answers = map(CaseAnswer.model_validate, shown.answers)
    return next((answer.curve for answer in answers if str(answer.delivery) == shown.delivery), None)


def _measurement(constants: Mapping[str, Any]) -> Iterator[str]:
    how = "token by token" if constants["STREAMED"] else "whole"
    parsers = {"tool parser": constants["TOOL_PARSER"], "reasoning parser": constants["REASONING_PARSER"]}
    named = " and ".join(f"the {kind} `{name}`" for kind, name in parsers.items() if name)
    longest = constants["LENGTHS"][-1]
    yield "## Reproduce\n"
    yield (
        f"`python reproduce.py` needs only vLLM, on any machine: it parses an answer at doubling lengths "
        f"with {named} ({how}, as the server does), and prints the CPU time. The longest answer:\n"
    )
    yield f"{fenced(truncated(piece_text(longest)))}\n"
