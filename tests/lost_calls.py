"""A known defect that shows by chance: `llama3_json` loses a call whose tokens all fall into one delta.

How tokens fall into deltas depends on how far the API server lags behind the engine: where it stands still
for a moment, as on a busy machine, the stream may say nothing at all.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest

from vllm_harness.defects.registry import load_defects
from vllm_harness.testing.defects import MARK, DefectShown
from vllm_harness.testing.session import Server

Check = Callable[..., None]
LOST = "vllm-48294"
INFORMATIVE = {
    *("response.output_item.added", "response.incomplete", "response.failed", "error"),
    "content_block_start",
}


def checks_for(request: pytest.FixtureRequest, server: Server) -> Callable[[str], Check]:
    """The plugin's checks by name; lost calls are excused where the test is not to show another defect."""
    if request.node.get_closest_marker(MARK):
        return request.getfixturevalue
    return lost_calls_excused(request.getfixturevalue, server)


def lost_calls_excused(check: Callable[[str], Check], server: Server) -> Callable[[str], Check]:
    """The plugin's checks by name, of which that of a stream tells the defect from another empty stream.

    Raises, where a stream is checked:
        DefectShown: the stream is as the defect leaves it; nothing else of the test can be judged then.
    """
    if server.lane != "scripted" or not load_defects()[LOST].holds_for(
        server.vllm_version, server.entry.name
    ):
        return check

    def named(name: str) -> Check:
        checked = check(name)

        def stream(events: Sequence[Any], **more: Any) -> None:
            checked(events, **more)
            if not any(map(_is_informative, events)):
                raise DefectShown(LOST)

        return stream if name == "check_stream" else checked

    return named


def _is_informative(event: Any) -> bool:
    """Whether an event of any API says more than that an answer has begun, or has ended by itself."""
    if isinstance(event, dict):
        return event.get("type") in INFORMATIVE
    if (choices := getattr(event, "choices", None)) is not None:
        return any(_of_choice(choice) for choice in choices)
    return (getattr(event, "type", None) or getattr(event, "event", None)) in INFORMATIVE


def _of_choice(choice: Any) -> bool:
    delta = choice.delta.model_dump(exclude_none=True, exclude={"role"})
    return any(delta.values()) or choice.finish_reason not in {None, "stop"}
