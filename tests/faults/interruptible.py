"""The commands that a signal can interrupt, the moments of each, and what it has kept by then."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

START, SERVER, WORK, END = "start", "server", "work", "end"
SLOW_TOOL = """
scenario: 1
title: A tool that takes ten minutes
tools:
  wait:
    description: Waits
    parameters:
      type: object
      properties: {number: {type: integer}}
      required: [number]
    outputs: [{output: done, seconds: 600}]
turns:
  - name: first
    user: Wait, please.
    expect: {calls: [{name: wait, arguments: {number: 1}}]}
    say: {calls: [{name: wait, arguments: {number: 1}}]}
  - name: second
    expect: {calls: []}
    say: Done.
"""

LAST_TEST = """
import time

def test_last(vllm_server):
    time.sleep(3600)
"""


@dataclass(frozen=True)
class Interruptible:
    """A command.

    Attributes:
        line: its arguments; `{folder}` is a new folder, `{url}` a running server, `{run}` a run of
            `regression`.
        moments: for each moment, a regular expression that a line of the output matches at that moment.
        kept: the moments when the command has results to keep; None if that varies.
        files: the files that the kept folder has after work.
        after: its exit code if the signal is its normal end at a moment.
        extra: the extra that it belongs to.
    """

    line: str
    moments: Mapping[str, str] = field(default_factory=dict)
    kept: frozenset[str] | None = frozenset()
    files: tuple[str, ...] = ()
    after: Mapping[str, int] = field(default_factory=dict)
    extra: str = ""


STARTING = {SERVER: "starting qwen3: "}
RESULTS = frozenset({SERVER, WORK})
REPORT = ("records.jsonl", "report.md", "results.json")
COMMANDS = {
    "run": Interruptible(
        "run --model qwen3 --lane scripted -- -v -k 'test_chat_answer or test_last' {folder}/test_last.py",
        {**STARTING, WORK: "::test_last"},
        RESULTS,
        files=REPORT,
    ),
    "run, end": Interruptible(
        "run --model qwen3 --lane scripted -- -k test_chat_answer", {END: "^=+ vLLM servers"}
    ),
    "run, in forks": Interruptible(
        "run --model qwen3 --lane scripted --at-once 2 -- -v -k 'chat or test_last' {folder}/test_last.py",
        {WORK: r"PASSED \[ "},
        RESULTS,
        files=REPORT,
    ),
    "serve": Interruptible(
        "serve qwen3 --lane scripted",
        {**STARTING, WORK: "^Ctrl-C ends the server"},
        after={WORK: 0},
    ),
    "cassette record": Interruptible(
        "cassette record {folder}/slow.yaml --model qwen3 --lane scripted -o {folder}/recorded.yaml",
        {**STARTING, WORK: "turn 2 of 2"},
        frozenset({WORK}),
    ),
    "cassette record --proxy": Interruptible(
        "cassette record --proxy 0 --upstream {url} -o {folder}/recorded.yaml",
        {WORK: "Ctrl-C stops it"},
        after={WORK: 0},
    ),
    "cassette replay": Interruptible(
        "cassette replay tests/cassettes/qwen3-branches-messages.yaml.gz --model qwen3 --lane scripted",
        STARTING,
    ),
    "cassette replay --serve": Interruptible(
        "cassette replay tests/cassettes/qwen3-branches-messages.yaml.gz --serve 0",
        {WORK: "Ctrl-C stops it"},
        after={WORK: 1},
    ),
    "scenario run": Interruptible(
        "scenario run {folder}/slow.yaml --model qwen3 --lane scripted",
        {**STARTING, WORK: "turn 2 of 2"},
        RESULTS,
    ),
    "scenario run, end": Interruptible(
        "scenario run etl-three-turns --transport chat --model qwen3 --lane scripted", {END: "^run folder: "}
    ),
    "regression": Interruptible(
        "regression --vllm 0.32.0 --parsers hermes,mistral --jobs 1",
        {WORK: "^cells: [0-9]+ to do"},
        RESULTS,
    ),
    "regression, end": Interruptible(
        "regression --vllm 0.32.0 --parsers hermes --cases canonical --jobs 1", {END: "^run: "}
    ),
    "regression --engine http": Interruptible(
        "regression --vllm 0.32.0 --parsers hermes --cases canonical --engine http --jobs 1",
        {WORK: "^cells: [0-9]+ to do", END: "^run: "},
        RESULTS,
    ),
    "regression, search": Interruptible(
        "regression --vllm 0.32.0 --parsers hermes --cases properties --jobs 1",
        {WORK: "^families searched: [0-9]+ to do"},
        RESULTS,
    ),
    "regression parity": Interruptible(
        "regression parity --vllm 0.33.0@0.32.0 --parsers hermes --jobs 1",
        {WORK: "^cells of python: "},
        None,
        extra="parity",
    ),
    "repro": Interruptible("repro vllm-46940 --vllm 0.24.0", {SERVER: "^starting "}),
    "repro, several": Interruptible(
        "repro vllm-46940 vllm-46354 --vllm 0.32.0 --jobs 1", {WORK: "^defects: 2 to do"}, RESULTS
    ),
    "load": Interruptible(
        "load etl-three-turns --model qwen3 --lane scripted --duration 600 --output {folder}/load",
        {**STARTING, WORK: r"^[0-9:]+: [1-9][0-9]* requests"},
        frozenset({WORK}),
        files=("records.jsonl", "summary.json"),
        extra="load",
    ),
    "gateway check": Interruptible(
        "gateway check {url} --server-url {url} --model qwen3",
        {WORK: "^40 of [0-9]+: "},
        RESULTS,
        extra="gateways",
    ),
    "mutants parsers": Interruptible(
        "mutants parsers tool_parsers/hermes_tool_parser.py --parsers hermes --cases canonical --sample 50"
        " --jobs 1 --output {folder}/mutants.jsonl",
        {WORK: "^mutants: [0-9]+ to do"},
        RESULTS,
        extra="mutants",
    ),
    "mutants serving": Interruptible(
        "mutants serving --only responses-last-item-not-closed --jobs 1 --output {folder}/mutants.jsonl",
        {WORK: "^(mutants: 1 to do|.*measuring once)"},
        None,
        extra="mutants",
    ),
    "upstream run": Interruptible(
        "upstream run entrypoints/openai/chat_completion/test_chat.py --vllm 0.32.0 -v",
        {WORK: r"(PASSED|FAILED|SKIPPED) +\["},
        RESULTS,
        extra="upstream",
    ),
    "upstream run, end": Interruptible(
        "upstream run entrypoints/openai/chat_completion/test_non_object_body_validation.py --vllm 0.32.0",
        {END: "^=+ upstream's tests"},
        extra="upstream",
    ),
    "site": Interruptible(
        "site {folder}/site --input {run}",
        {WORK: "^building the pages", END: "^[0-9]+ pages, .* s: "},
        extra="site",
    ),
    "env verify": Interruptible("env verify 0.32.0"),
    "models check": Interruptible("models check --vllm 0.32.0"),
    "doctor": Interruptible("doctor"),
    "report": Interruptible("report {run}"),
    "compare": Interruptible("compare {run} {run} --as regression"),
    "validate": Interruptible("validate tests/cassettes/qwen3-branches-messages.yaml.gz"),
    "weights": Interruptible("weights smollm2-135m --dtype float32", extra="weights"),
}
"""The commands that take long or start something, by the names of their rows."""
