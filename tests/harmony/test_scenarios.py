"""Scenarios whose tools vLLM itself calls: the tools of an MCP server, and vLLM's demo tools."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from dataclasses import replace

import pytest

from tests.own_server import OwnServer
from vllm_harness._defects.registry import load_defects
from vllm_harness._environments.installer import InstallError
from vllm_harness._exchange.server import VllmServer
from vllm_harness._scenarios.format import Scenario
from vllm_harness._scenarios.mcp_servers import RunningMcp, launch_flags, mcp_servers
from vllm_harness._scenarios.predicates import PredicateSpec
from vllm_harness._scenarios.reading import find_scenario, read_scenario
from vllm_harness._scenarios.results import Conversation
from vllm_harness._server.demo_tools import SEARCH_KEY, SEARCH_NEEDS, demo_launch
from vllm_harness._testing.cases import NOTED
from vllm_harness._testing.scenarios import ScenarioRunner
from vllm_harness._testing.session import result_of
from vllm_harness._testing.skips import skip

DESK = "support-desk-server-mcp"
REFUSED_BY = "harmony-takes-few-kinds-of-input"
OF_STREAMED_SEARCHES = ("browser-call-is-two-items-at-one-index", "web-search-query-in-the-body")
CALL_FIND_USER = (
    '<|channel|>commentary to=container.find_user <|constrain|>json<|message|>{"name": "Ada Lind"}<|call|>'
)
SEARCH_PARIS = (
    '<|channel|>analysis to=browser.search code<|message|>{"query": "capital of France, Paris?"}<|call|>'
)
WRONG_KEY = "wrong"
KEYS = [WRONG_KEY, pytest.param("", id="no key")]
"""With a key, the demo tool server offers browser and interpreter; without a key, it starts differently."""
FIVE = ["find_user", "get_permissions", "read_file", "get_sample", "get_measurement"]


pytestmark = [
    pytest.mark.vllm_harmony,
    pytest.mark.vllm_scripted,
    pytest.mark.vllm_model("gpt-oss"),
    pytest.mark.vllm_needs("mcp", "responses", "store"),
    pytest.mark.timeout(400),
]


Held = Callable[..., list[str]]
HeldByDemo = Callable[..., list[Conversation]]


@pytest.fixture(scope="module")
def mcp() -> Iterator[dict[str, RunningMcp]]:
    """A running MCP server with the tools of both scenarios."""
    desk, office = (
        read_scenario(find_scenario(name)).mcp["container"]
        for name in ("support-desk-server-mcp", "mcp-troubles-server")
    )
    both = desk.model_copy(update={"tools": {**desk.tools, **office.tools}})
    with mcp_servers({"container": both}) as running:
        yield running


@pytest.fixture
def held(own_server: OwnServer, mcp: dict[str, RunningMcp], request: pytest.FixtureRequest) -> Held:
    """Runs a scenario over a transport and returns the names of the called tools; fails on any mismatch."""

    def hold(
        story: Scenario | str, transport: str, *, streamed: bool = False, approval: str = "never"
    ) -> list[str]:
        scenario = ScenarioRunner(own_server(*launch_flags(mcp.values())), request.node)
        running = mcp["container"]
        running.called.clear()
        asking = replace(running, data=running.data.model_copy(update={"approval": approval}))
        scenario(story, transports=[transport], streamed=(streamed,), mcp={"container": asking})
        return [name for name, _ in running.called]

    return hold


@pytest.mark.covers("VM-003", "VM-006", "VR-068")
def test_five_calls_within_one_request(held: Held) -> None:
    """vLLM makes five calls in the first turn and, with stored state, one more in the next turn."""
    assert held(DESK, "responses") == [*FIVE, "get_measurement"]


@pytest.mark.covers("VM-005")
def test_five_calls_within_one_streamed_request(held: Held) -> None:
    assert held(DESK, "responses", streamed=True) == [*FIVE, "get_measurement"]


@pytest.mark.covers("VM-006")
@pytest.mark.parametrize("streamed", [False, True])
def test_five_calls_sent_back_as_history(
    held: Held, streamed: bool, vllm_server: VllmServer, request: pytest.FixtureRequest
) -> None:
    """vLLM refuses its own call items in the history; the test's result names this known defect."""
    assert held(DESK, "responses-history", streamed=streamed) == FIVE
    noted = [each for each in request.node.stash[NOTED] if not each.finding.code]
    told = f"responses-history{'-stream' * streamed}, turn again: status: expected completed, actual HTTP 400"
    shown = load_defects()[REFUSED_BY].holds_for(vllm_server.vllm_version, vllm_server.entry.name)
    assert [each.finding.known for each in noted if told in each.finding.message] == [REFUSED_BY] * shown
    assert all("Unknown input type: mcp_call" in each.answer for each in noted)
    assert (request.node.nodeid in result_of(request.node).defects.get(REFUSED_BY, {})) == shown


@pytest.mark.covers("VM-010", "VM-006", "LS-021")
def test_tokens_errors_and_delays(held: Held) -> None:
    """The scenario has a wrong, a missing and a valid token, a tool that fails, and a slow tool."""
    for streamed in (False, True):
        called = held("mcp-troubles-server", "responses", streamed=streamed)
        assert called == ["fetch_invoice", "fetch_invoice", "read_pages"]


@pytest.mark.covers("VM-010", "LS-021")
@pytest.mark.vllm_known_defect("mcp-approval-is-not-asked-for")
def test_approval_is_asked_for(held: Held) -> None:
    """The server asks for approval before it calls the tool, and calls the tool once this is approved."""
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


@pytest.fixture
def held_by_demo(own_server: OwnServer, request: pytest.FixtureRequest) -> HeldByDemo:
    """Runs a scenario on a server with vLLM's demo tool server; fails on any mismatch."""

    def hold(story: Scenario | str, key: str = WRONG_KEY) -> list[Conversation]:
        flags, env = demo_launch(scripted=True)
        try:
            server = own_server(flags, {**env, SEARCH_KEY: key})
        except InstallError as error:
            skip("client-missing", f"no package index has the demo tool server's packages: {error.message}")
        return ScenarioRunner(server, request.node)(story, transports=["responses", "responses-history"])

    return hold


@pytest.mark.covers("VR-038", "VM-003", "VM-005", "VM-006")
@pytest.mark.vllm_needs("background")
@pytest.mark.parametrize("key", KEYS)
def test_code_interpreter_of_the_demo_tool_server(key: str, held_by_demo: HeldByDemo) -> None:
    """The model calls the interpreter and uses its result; later turns run in the background."""
    for held in held_by_demo("code-interpreter", key=key):
        asked = [turn.exchange and turn.exchange.request.get("background") for turn in held.turns]
        assert asked == [None, True, True]
        assert all(turn.exchange and turn.exchange.streamed == held.transport.streamed for turn in held.turns)


@pytest.mark.covers("VM-003")
@pytest.mark.vllm_needs("background")
def test_what_the_demo_tool_server_gave_is_looked_at(held_by_demo: HeldByDemo) -> None:
    """A tool output that differs from the expected output is reported as a mismatch."""
    story = read_scenario(find_scenario("code-interpreter"))
    turn = story.turns[0]
    (call,) = turn.expect.calls or ()
    other = call.model_copy(update={"output": PredicateSpec(contains=("2678400",))})
    expect = turn.expect.model_copy(update={"calls": (other,)})
    wrong = story.model_copy(update={"turns": (turn.model_copy(update={"expect": expect}),)})
    with pytest.raises(AssertionError, match=r'calls\[0\]\.output: expected a text with "2678400"'):
        held_by_demo(wrong)


def searching(output: str) -> Scenario:
    """A scenario with two web searches, one in the background, whose outputs must contain `output`."""
    search = {
        "expect": {"calls": [{"name": "web_search", "output": {"contains": output}}]},
        "say": [{"raw": SEARCH_PARIS}, "That is what I found."],
    }
    streams = ["responses-stream", "responses-history-stream"]
    known = [{"defect": defect, "over": streams} for defect in OF_STREAMED_SEARCHES]
    of_state = [{**each, "over": ["responses-stream"]} for each in known]
    refused = {"defect": REFUSED_BY, "over": ["responses-history", "responses-history-stream"]}
    again = {"name": "again", "user": "Once more.", "background": True, "known": [*of_state, refused]}
    turns = [
        {"name": "search", "user": "Find the capital of France.", **search, "known": known},
        {**again, **search},
    ]
    return Scenario.model_validate({"scenario": 1, "built_in": "web_search", "turns": turns})


@pytest.mark.covers("VR-039", "VM-010")
@pytest.mark.vllm_needs("background")
def test_browser_of_the_demo_tool_server_without_its_service(held_by_demo: HeldByDemo) -> None:
    """If the key is wrong, the model gets the search service's error, and the conversation continues."""
    held_by_demo(searching("Error during search for"), key=WRONG_KEY)


@pytest.mark.covers("VR-039")
@pytest.mark.vllm_needs("background")
def test_browser_of_the_demo_tool_server(held_by_demo: HeldByDemo) -> None:
    """The model searches with the real service; test_builtin_tools uses a local MCP server instead."""
    if not (key := os.environ.get(SEARCH_KEY)):
        skip("browser-service", f"vLLM's browser needs {SEARCH_NEEDS}")
    held_by_demo(searching("Paris"), key=key)
