"""Drafts a defect entry from a failed test, a cell of a parser regression run, or recorded traffic.

Observations are filled in; the fields that a person must judge are marked `TO DO`.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

from vllm_harness._errors import UsageError
from vllm_harness._exchange.answer import answer_of
from vllm_harness._files.plain_yaml import plain_yaml
from vllm_harness._protocol.captures import read_capture
from vllm_harness._protocol.conversation.exchange import Exchange, accumulate
from vllm_harness._protocol.core.events import Api
from vllm_harness._regression.results.cells import Cell, RegressionRun

OPEN = "TO DO"
LONGEST_PATTERN = 160
Draft = dict[str, Any]


def as_yaml(defect: str, draft: Draft) -> str:
    """Makes the text of an entry's file: the draft, and the keys that a person must fill in."""
    judged = {
        "title": OPEN,
        "class": "arguable",
        "component": [f"vllm/{OPEN}.py: {OPEN}"],
        "upstream": {"searched": [OPEN]},
        "expected": {"text": OPEN, "source": OPEN},
        "actual": OPEN,
    }
    return plain_yaml({"id": defect, **judged, **draft}, allow_unicode=True, width=110)


def from_test(results: Path, test: str) -> Draft:
    """Drafts an entry from the failure of a test.

    Args:
        results: the folder of a test run, or `results.json` in that folder.
        test: the node id, or a part of it that is unique among the failed tests.

    Raises:
        UsageError: the file is missing, or not exactly one failed test matches.
    """
    path = results / "results.json" if results.is_dir() else results
    try:
        targets: dict[str, Any] = json.loads(path.read_text())
    except (OSError, ValueError) as error:
        raise UsageError(
            f"{path}: not the results of a run: {error}", hint="give the folder of a run"
        ) from error
    failures = {
        name: (str(message), target["vllm"].split()[0])
        for target in targets.values()
        for name, message in target["failures"].items()
    }
    names = [name for name in failures if test in name]
    if len(names) != 1:
        seen = ", ".join(names or failures) or "none"
        raise UsageError(f"{len(names)} failed tests of {path} match {test!r}: {seen}", hint="name one")
    message, version = failures[names[0]]
    models = re.findall(r"\[(?:scripted|live)-([\w.-]+?)(?:-[^-\]]*)?\]$", names[0])
    return {
        **({"models": models} if models else {}),
        "versions": _around(version),
        "pattern": re.escape(message[:LONGEST_PATTERN]).replace("\\ ", " "),
        "evidence": f"{names[0]} on {version}: {message}",
    }


def from_cell(run: str, family: str, case: str) -> Draft:
    """Drafts an entry from the failures of a parser regression test case.

    Raises:
        UsageError: the run does not include the family, or the case did not fail.
    """
    cells = [cell for cell in RegressionRun.named(run).cells() if cell.family == family]
    failed = [cell for cell in cells if case in cell.cases and cell.cases[case].mismatches]
    if not failed:
        known = sorted({name for cell in cells for name, result in cell.cases.items() if result.mismatches})
        raise UsageError(
            f"{case!r} of {family} did not fail in {run}",
            hint=f"failed cases: {', '.join(known[:8]) or 'none'}",
        )
    cell = failed[0]
    result = cell.cases[case]
    delivery = next(iter(result.mismatches))
    example = result.examples.get(delivery, "")
    return {
        "apis": ["chat"],
        **({"parser": cell.tool_parser} if cell.tool_parser else {}),
        "versions": _around(cell.environment),
        "failures": [_selector(cell, case)],
        "evidence": f"The text {result.text!r}, delivered as {delivery}, gives {example}",
    }


def _selector(cell: Cell, case: str) -> Draft:
    mismatches = cell.cases[case].mismatches
    codes = dict.fromkeys(str(each) for found in mismatches.values() for each in found)
    return {
        "families": [cell.family],
        "case": case,
        "groups": [cell.group],
        "cases": [case],
        "deliveries": [delivery.code for delivery in mismatches],
        "mismatches": list(codes),
    }


def from_capture(path: Path, model: str) -> Draft:
    """Drafts an entry from recorded traffic: a step for each exchange, with the content of its answer.

    Args:
        path: a file that `vllm-harness validate` can read.
        model: the model entry that serves the steps.

    Raises:
        ProtocolInputError: the format of the file is unknown.
        UsageError: the file contains no requests.
    """
    exchanges = [exchange for exchange in read_capture(path).exchanges if exchange.request]
    if not exchanges:
        raise UsageError(f"{path} contains no requests", hint="record them with the answers")
    return {
        "models": [model],
        "repro": {
            "model": model,
            "steps": [_step(exchange) for exchange in exchanges],
            "expected": f"status == `200` && '{OPEN}' == ''",
            "actual": f"status == `200` && '{OPEN}' != ''",
        },
        "evidence": f"Seen in {path.name}.",
    }


def _step(exchange: Exchange) -> Draft:
    body = {key: value for key, value in exchange.request.items() if key != "model"}
    said = _said(exchange)
    return {"path": exchange.path, "body": body, **({"say": [said]} if said else {})}


def _said(exchange: Exchange) -> Draft:
    """The content of an answer (reasoning, text and calls), in the form of a script."""
    body = accumulate(exchange.json_events).body if exchange.streamed else exchange.body or {}
    api: Api = "responses" if "output" in body else "messages" if body.get("type") == "message" else "chat"
    answer = answer_of(api, body)
    calls = [
        {"name": call.name, "arguments": call.value if api == "messages" else call.arguments}
        for call in answer.open_calls
    ]
    parts = {"reasoning": answer.reasoning, "text": answer.text, "calls": calls}
    return {name: value for name, value in parts.items() if value}


def _around(version: str) -> str:
    """A version specifier for the release on which the failure was seen."""
    release = version.partition("@")[0]
    return f"=={release.rpartition('.')[0]}.*" if release[:1].isdigit() else ""
