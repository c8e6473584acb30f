"""Tests reproductions: answers as documents, references to earlier answers, and conditions."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from vllm_harness._defects.entry import Defect
from vllm_harness._defects.repro.reproducer import checked, jobs_of, run_job
from vllm_harness._defects.repro.steps import RequestedSteps, filled
from vllm_harness._defects.repro.steps import document as document_of
from vllm_harness._environments.spec import Environment
from vllm_harness._errors import UsageError
from vllm_harness._protocol import Exchange
from vllm_harness._server.progress import StartProgress


def defect(expected: str, actual: str) -> Defect:
    """Returns a defect with these conditions for the expected and the actual answer."""
    plan = {"model": "qwen3", "steps": [{"path": "/v1/responses"}], "expected": expected, "actual": actual}
    return Defect.model_validate({"id": "vllm-1", "title": "Wrong", "class": "defect", "repro": plan})


def verdict(of: Defect, answers: list[dict[str, Any]]) -> str:
    """Returns the verdict that these answers give."""
    assert of.repro
    return RequestedSteps(of, of.repro).verdict_of(answers).verdict


def sse(*events: dict[str, Any]) -> list[bytes]:
    """Returns the bytes of a stream of chat chunks."""
    return [*(f"data: {json.dumps(event)}\n\n".encode() for event in events), b"data: [DONE]\n\n"]


def document(status: int, headers: dict[str, str], content: list[bytes], broken: str = "") -> dict[str, Any]:
    """Returns an answer as a document, on which conditions are evaluated."""
    return document_of(Exchange().answered(status, headers, ((0.0, data) for data in content), broken))


def chunk(**delta: Any) -> dict[str, Any]:
    """Returns a chat chunk with this delta."""
    choice = {"index": 0, "delta": delta, "finish_reason": None}
    return {"id": "c", "object": "chat.completion.chunk", "created": 1, "model": "m", "choices": [choice]}


def test_the_document_of_a_stream() -> None:
    chunks = sse(chunk(role="assistant", content=""), chunk(content="It is"), chunk(content=" noon."))
    answer = document(200, {"Content-Type": "text/event-stream; charset=utf-8"}, chunks)
    assert answer["status"] == 200
    assert len(answer["events"]) == 3
    assert answer["stream"]["choices"][0]["message"]["content"] == "It is noon."


def test_a_body_is_json_or_text() -> None:
    assert document(404, {}, [b'{"a', b'": 1}']) == {"status": 404, "headers": {}, "body": {"a": 1}}
    assert document(500, {"X-A": "b"}, [b"No"]) == {"status": 500, "headers": {"x-a": "b"}, "text": "No"}
    assert document(200, {}, [b"\xff{"])["text"] == "\ufffd{"


def test_a_broken_answer_keeps_its_events() -> None:
    answer = document(
        200, {"content-type": "text/event-stream"}, sse(chunk(content="It"))[:1], "ReadError: gone"
    )
    assert answer["broken"] == "ReadError: gone"
    assert answer["stream"]["choices"][0]["message"]["content"] == "It"


@pytest.mark.parametrize(
    ("answer", "decided"),
    [
        ({"status": 200, "body": {"status": "in_progress"}}, "fixed"),
        ({"status": 200, "body": {"status": "queued"}}, "reproduced"),
        ({"status": 200, "body": {"status": "failed"}}, "other failure"),
        ({"status": 400, "body": {"error": {"message": "no"}}}, "other failure"),
        ({"status": 500, "text": "Internal"}, "other failure"),
    ],
)
def test_the_conditions_decide(answer: dict[str, Any], decided: str) -> None:
    conditions = defect("body.status == 'in_progress'", "body.status == 'queued'")
    assert verdict(conditions, [{}, answer]) == decided


def test_a_condition_may_be_over_all_answers() -> None:
    conditions = defect("steps[0].body.id == steps[1].body.id", "steps[0].body.id != steps[1].body.id")
    assert verdict(conditions, [{"body": {"id": 1}}, {"body": {"id": 1}}]) == "fixed"
    assert verdict(conditions, [{"body": {"id": 1}}, {"body": {"id": 2}}]) == "reproduced"


def test_conditions_that_hold_at_once_are_an_error() -> None:
    with pytest.raises(UsageError, match="meets both conditions"):
        verdict(defect("status == `200`", "body == null"), [{"status": 200}])


def test_an_invalid_condition_is_an_error() -> None:
    with pytest.raises(ValueError, match="not a valid JMESPath"):
        defect("body.[", "body")


def test_requests_refer_to_earlier_answers() -> None:
    answers = [{"body": {"id": "resp_1", "output": [{"type": "message"}]}}]
    body = {"previous_response_id": "{steps[0].body.id}", "input": ["{steps[0].body.output[0]}", "a {b} c"]}
    assert filled(body, answers) == {
        "previous_response_id": "resp_1",
        "input": [{"type": "message"}, "a {b} c"],
    }
    assert filled("/v1/responses/{steps[0].body.id}/cancel", answers) == "/v1/responses/resp_1/cancel"


def test_an_entry_without_steps_is_an_error() -> None:
    with pytest.raises(UsageError, match="does not say how to reproduce"):
        checked(Defect(id="vllm-1", title="Wrong", kind="defect"))


def test_a_defect_of_rust_needs_an_environment_with_rust() -> None:
    failures = [{"families": ["hermes"], "case": "call", "mismatches": ["call_lost"]}]
    every = [
        Defect.model_validate({"id": id_, "title": "Lost", "class": "defect", **fields, "failures": failures})
        for id_, fields in (("in-python", {}), ("in-rust", {"frontends": ["rust"]}))
    ]
    jobs = jobs_of(every)
    assert [(job.first.place, job.first.frontend) for job in jobs] == [
        ("family hermes", "python"),
        ("family hermes rust", "rust"),
    ]
    release = Environment("release", Path("python"), "3.11", "0.32.0", "cpu", None)
    ((found, outcome),) = run_job(jobs[1], release, progress=StartProgress())
    assert (found.id, outcome.verdict) == ("in-rust", "not applicable")


MOST_MODULES = 124
"""The budget of modules of the harness between the command line and a parser's verdict; it only shrinks."""
WALK = """
import sys
from vllm_harness.cli import main, repro
from vllm_harness._protocol import Exchange
from vllm_harness._regression.engines.exchanges import fields_of
defect = repro.load_defects()[{id!r}]
reproducer = repro.checked(defect)
repro.jobs_of([defect])
reproducer.entry
fields_of(Exchange(path="/v1/chat/completions", events=[{{"choices": []}}]))
print(*(name for name in sys.modules if name.split(".")[0] == "vllm_harness"))
"""


def modules_to(defect_id: str) -> set[str]:
    """Returns the modules of the harness that a verdict on a parser's defect imports, in a new process."""
    program = WALK.format(id=defect_id)
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    return set(done.stdout.split())


def test_the_verdict_of_a_parser_needs_few_modules() -> None:
    modules = modules_to("apertus-call-with-an-empty-name")
    assert "vllm_harness._server.remote" in modules
    assert len(modules) <= MOST_MODULES, "import what this walk does not need where it is needed"


def test_an_entry_with_steps_imports_no_parser_regression() -> None:
    program = (
        "import sys\n"
        "from vllm_harness.cli import repro\n"
        "assert repro.checked(repro.load_defects()['vllm-46940'])\n"
        "print([name for name in sys.modules if name.startswith('vllm_harness._regression')])\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"
