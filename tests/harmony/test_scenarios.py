"""A scenario whose MCP server vLLM calls by itself."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

import pytest

from tests.own_server import OwnServer
from vllm_harness.scenarios.conversation import Served
from vllm_harness.scenarios.format import Scenario
from vllm_harness.scenarios.mcp_servers import RunningMcp, launch_flags, mcp_servers
from vllm_harness.scenarios.reading import find_scenario, read_scenario
from vllm_harness.scenarios.running import run, transports_of

DESK = "support-desk-server-mcp"
CALL_FIND_USER = (
    '<|channel|>commentary to=container.find_user <|constrain|>json<|message|>{"name": "Ada Lind"}<|call|>'
)
FIVE = ["find_user", "get_permissions", "read_file", "get_sample", "get_measurement"]


pytestmark = [
    pytest.mark.vllm_harmony,
    pytest.mark.vllm_scripted,
    pytest.mark.vllm_model("gpt-oss"),
    pytest.mark.vllm_needs("mcp", "responses", "store"),
    pytest.mark.timeout(400),
]


Held = Callable[..., list[str]]


@pytest.fixture(scope="module")
def mcp() -> Iterator[dict[str, RunningMcp]]:
    """One MCP server with the tools of both stories."""
    desk, office = (
        read_scenario(find_scenario(name)).mcp["container"]
        for name in ("support-desk-server-mcp", "mcp-troubles-server")
    )
    both = desk.model_copy(update={"tools": {**desk.tools, **office.tools}})
    with mcp_servers({"container": both}) as running:
        yield running


@pytest.fixture
def held(own_server: OwnServer, mcp: dict[str, RunningMcp]) -> Held:
    """Holds a conversation over a transport: the tools that were called; fails with all that is wrong."""

    def hold(
        story: Scenario | str, transport: str, *, streamed: bool = False, approval: str = "never"
    ) -> list[str]:
        server = own_server(*launch_flags(mcp.values()))
        served = Served.by(server)
        running = mcp["container"]
        running.called.clear()
        asking = replace(running, data=running.data.model_copy(update={"approval": approval}))
        scenario = read_scenario(find_scenario(story)) if isinstance(story, str) else story
        over = transports_of([transport], (streamed,))
        (conversation,) = run(scenario, served, over, mcp={"container": asking})
        assert not conversation.wrong, "\n".join(conversation.problems())
        return [name for name, _ in running.called]

    return hold


@pytest.mark.covers("VM-003", "VM-006", "VR-068")
def test_five_calls_within_one_request(held: Held) -> None:
    """With the server's state, and one more call in the turn after it."""
    assert held(DESK, "responses") == [*FIVE, "get_measurement"]


@pytest.mark.covers("VM-005")
def test_five_calls_within_one_streamed_request(held: Held) -> None:
    assert held(DESK, "responses", streamed=True) == [*FIVE, "get_measurement"]


@pytest.mark.covers("VM-006")
@pytest.mark.parametrize("streamed", [False, True])
def test_five_calls_sent_back_as_history(held: Held, streamed: bool) -> None:
    """vLLM refuses its own items of the calls, as the story says."""
    assert held(DESK, "responses-history", streamed=streamed) == FIVE


@pytest.mark.covers("VM-010", "VM-006", "LS-021")
def test_tokens_errors_and_delays(held: Held) -> None:
    """A wrong token, none, then the right one; a tool of twenty that fails, and one that is slow."""
    for streamed in (False, True):
        called = held("mcp-troubles-server", "responses", streamed=streamed)
        assert called == ["fetch_invoice", "fetch_invoice", "read_pages"]


@pytest.mark.covers("VM-010", "LS-021")
@pytest.mark.vllm_known_defect("mcp-approval-is-not-asked-for")
def test_approval_is_asked_for(held: Held) -> None:
    """The server asks before it calls the tool, and calls it once it may."""
    call = {"raw": CALL_FIND_USER}
    turns = [
        {
            "name": "ask",
            "user": "What is the id of Ada Lind?",
            "expect": {"calls": [{"name": "find_user", "asks": True}]},
            "say": [call, "Her id is u-7731."],
        },
        {
            "name": "agree",
            "expect": {"calls": [{"name": "find_user"}], "text": {"contains": "u-7731"}},
            "say": [call, "Her id is u-7731."],
        },
    ]
    desk = read_scenario(find_scenario(DESK))
    story = Scenario.model_validate({"scenario": 1, "mcp": desk.mcp, "turns": turns})
    assert held(story, "responses", approval="always") == ["find_user"]
