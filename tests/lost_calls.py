"""Excuses a defect that appears by chance: `llama3_json` loses a call whose tokens are all in one delta.

How tokens are divided into deltas depends on how far the API server lags behind the engine: if it stalls for
a moment, as on a busy machine, the stream may be empty.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import pytest

from vllm_harness._cassettes.answers import exchange_of
from vllm_harness._cassettes.replaying import ReplayedExchange
from vllm_harness._defects.registry import load_defects
from vllm_harness._exchange.server import VllmServer
from vllm_harness._protocol.core.events import AnyEvent, as_json
from vllm_harness._testing.defects import MARK, DefectShown

Check = Callable[..., None]
_LOST_BY_A_STREAM = re.compile(r"^([\w-]+-stream), turn [\w-]+: calls: .*, actual no call$", re.M)
LOST = "vllm-48294"
INFORMATIVE = {
    *("response.output_item.added", "response.incomplete", "response.failed", "error"),
    "content_block_start",
}


def checks_for(request: pytest.FixtureRequest, server: VllmServer) -> Callable[[str], Check]:
    """Returns a function that gets the plugin's checks by name; excuses lost calls in most tests.

    A test that is marked with a known defect gets the unchanged checks.
    """
    if request.node.get_closest_marker(MARK):
        return request.getfixturevalue
    return lost_calls_excused(request.getfixturevalue, server)


def lost_calls_excused(check: Callable[[str], Check], server: VllmServer) -> Callable[[str], Check]:
    """Wraps a function that gets the plugin's checks by name; the new `check_stream` detects the defect.

    `check_stream` then raises DefectShown if the stream shows the defect, as the rest of the test cannot be
    judged.
    """
    if server.lane != "scripted" or not _may_lose_calls(server):
        return check

    def named(name: str) -> Check:
        checked = check(name)

        def stream(events: Sequence[AnyEvent], **more: Any) -> None:
            checked(events, **more)
            if not any(map(_is_informative, events)):
                raise DefectShown(LOST)

        return stream if name == "check_stream" else checked

    return named


@contextmanager
def lost_calls_of_scenarios_excused(server: VllmServer) -> Iterator[None]:
    """Raises DefectShown if lost calls are the only problems in a scenario."""
    try:
        yield
    except AssertionError as error:
        problems = str(error)
        lost = set(_LOST_BY_A_STREAM.findall(problems))
        wrong = {line.split(",")[0] for line in problems.splitlines()}
        if lost and wrong == lost and _may_lose_calls(server):
            raise DefectShown(LOST) from error
        raise


def check_replay(played: Sequence[ReplayedExchange], server: VllmServer) -> None:
    """Asserts that a replay matches its recording.

    Raises:
        DefectShown: the first exchange that differs is a stream that lost its call; later exchanges may
            depend on it.
    """
    differing = [exchange for exchange in played if exchange.wrong]
    if differing and _says_nothing(differing[0]) and _may_lose_calls(server):
        raise DefectShown(LOST)
    lines = [
        f"{exchange.turn}: {exchange.reason} {exchange.differences} {exchange.findings}"
        for exchange in differing
    ]
    assert lines == []


def _may_lose_calls(server: VllmServer) -> bool:
    return load_defects()[LOST].holds_for(server.vllm_version, server.entry.name)


def _says_nothing(played: ReplayedExchange) -> bool:
    """Whether a stream arrived but had no content."""
    events = exchange_of(played.exchange).json_events if played.exchange else []
    return bool(events) and not any(map(_is_informative, events))


def _is_informative(event: AnyEvent) -> bool:
    """Whether an event of any API contains more than a normal start or end of an answer."""
    value = as_json(event) or {}
    if value.get("type") in INFORMATIVE or value.get("error"):
        return True
    return any(map(_of_choice, value.get("choices", ())))


def _of_choice(choice: dict[str, Any]) -> bool:
    has_content = any(value for name, value in choice["delta"].items() if name != "role")
    return has_content or choice.get("finish_reason") not in {None, "stop"}
