"""A scenario on a server: over several transports, streamed and not, which must agree."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from functools import partial

from vllm_harness._configuration.model_entries import ModelEntry
from vllm_harness._defects.registry import Defects, known_deviations, load_defects
from vllm_harness._errors import UsageError
from vllm_harness._exchange.endpoint import API_PATHS
from vllm_harness._protocol import apply_known
from vllm_harness._scenarios import judging, prompts, tied
from vllm_harness._scenarios.conversation import Served, converse
from vllm_harness._scenarios.format import Scenario
from vllm_harness._scenarios.mcp_servers import RunningMcp, mcp_servers
from vllm_harness._scenarios.pictures import with_addresses
from vllm_harness._scenarios.results import Conversation, TurnResult
from vllm_harness._scenarios.toolboxes import opened
from vllm_harness._scenarios.tools import Toolbox
from vllm_harness._scenarios.transports import TRANSPORTS, Transport, find_transport
from vllm_harness._terminal.status import Progress, quiet

BOTH = (False, True)
AT_ONCE = 4


def transports_of(names: Sequence[str] = (), streamed: Sequence[bool] = BOTH) -> list[Transport]:
    """The transports of these names, by default all, each not streamed and streamed.

    Raises:
        UsageError: there is no such transport.
    """
    transports = [find_transport(name) for name in names or TRANSPORTS]
    return [replace(transport, streamed=stream) for transport in transports for stream in streamed]


def check_capabilities(scenario: Scenario, entry: ModelEntry, *, scripted: bool, hint: str) -> None:
    """Raises UsageError, with this hint, where the model cannot do what the scenario asks for."""
    if lacking := needed_capabilities(scenario, scripted=scripted) - entry.capabilities:
        raise UsageError(
            f"the scenario needs {', '.join(sorted(lacking))}, which {entry.name} does not claim", hint=hint
        )


def needed_capabilities(scenario: Scenario, *, scripted: bool) -> set[str]:
    """What a model entry must claim for a scenario to be held with it."""
    needed = {"mcp"} if scenario.of_server else set()
    if scenario.in_background:
        needed.add("background")
    if has_images(scenario):
        needed.add("image")
    for turn in scenario.turns:
        said = [len(take.calls) for take in turn.say] if scripted else []
        expected = [call for call in turn.expect.calls or () if call.name not in scenario.of_server]
        calls = max([len(expected), *said])
        if calls:
            needed.add("tools")
        if calls and not scripted and turn.tool_choice in (None, "auto"):
            needed.add("auto_tools")
        if calls > 1:
            needed.add("parallel_tools")
    return needed


def has_images(scenario: Scenario) -> bool:
    """Whether a user or a tool shows an image."""
    parts = [part for turn in scenario.turns for part in turn.user]
    outputs = [output for tool in scenario.every_tool.values() for output in tool.outputs]
    return any(part.image for part in parts) or any(output.images for output in outputs)


def run(
    scenario: Scenario,
    served: Served,
    transports: Sequence[Transport],
    *,
    attempts: int = 1,
    defects: Defects | None = None,
    mcp: Mapping[str, RunningMcp] | None = None,
    tell: Progress = quiet,
) -> list[Conversation]:
    """Runs a scenario over several transports, each by itself, and compares what came.

    Args:
        scenario: the conversation.
        served: the server.
        transports: to hold it over.
        attempts: of each conversation, where the model is not scripted; a failed turn that allows no retries
            ends them.
        defects: of vLLM that are known; by default the package's.
        mcp: the scenario's MCP servers, where they run already, as a server under test that calls them wants.
        tell: receives a line as each turn begins.

    Raises:
        UsageError: the model is scripted, and a turn does not say what it says, or its family cannot; a turn
            names a defect that the registry does not have.
    """
    if served.scripted and not scenario.scriptable:
        silent = next(turn.name for turn in scenario.turns if not turn.say)
        raise UsageError(
            f"turn {silent!r} does not say what the model says",
            hint="give each turn a `say`, or run the scenario on the live lane",
        )
    registry = load_defects() if defects is None else defects
    named = tied.named(scenario, registry)
    lacking = served.endpoint.lacking()
    tries = 1 if served.scripted else attempts
    with ExitStack() as stack:
        running = stack.enter_context(mcp_servers(scenario.mcp)) if mcp is None else mcp
        toolbox = stack.enter_context(opened(scenario, running))
        scenario = stack.enter_context(with_addresses(scenario))
        # what a scripted model says depends on no batch; images of two requests at once may meet vllm-46354
        together = served.scripted and not has_images(scenario)
        pool = stack.enter_context(_pool(AT_ONCE if together else 1))
        hold = partial(_on, scenario, served, toolbox, lacking, tries, tell)
        conversations = list(pool.map(hold, transports))
    _compare_prompts(conversations)
    if not served.scripted:
        _compare_meanings(conversations)
    known = known_deviations(served.entry.name, served.version, registry)
    for conversation in conversations:
        conversation.findings = apply_known(conversation.findings, known, served.version)
        for turn in conversation.turns:
            turn.findings = apply_known(turn.findings, known, served.version)
    tied.mark(scenario, served, conversations, named)
    return conversations


@contextmanager
def _pool(at_once: int) -> Iterator[ThreadPoolExecutor]:
    """A pool of threads, whose work nobody waits for where the run is interrupted."""
    pool = ThreadPoolExecutor(at_once)
    try:
        yield pool
    except BaseException:
        pool.shutdown(wait=False, cancel_futures=True)
        raise
    pool.shutdown()


def _on(
    scenario: Scenario,
    served: Served,
    toolbox: Toolbox,
    lacking: Collection[str],
    attempts: int,
    tell: Progress,
    transport: Transport,
) -> Conversation:
    reason = ""
    if transport.api in lacking:
        reason = f"the server does not serve {API_PATHS[transport.api]}"
    elif toolbox.of_server and transport.api != "responses":
        reason = "a server calls tools over the Responses API only"
    elif scenario.in_background and transport.api != "responses":
        reason = "an answer is made in the background over the Responses API only"
    if reason:
        return Conversation(transport, [TurnResult(turn.name, reason) for turn in scenario.turns])
    strict = {turn.name for turn in scenario.turns if turn.expect.retries == "none"}
    for attempt in range(1, attempts + 1):
        if attempt > 1:
            tell(f"{transport.label}: attempt {attempt} of {attempts}")
        conversation = converse(scenario, served, transport, toolbox, tell)
        conversation.attempts = attempt
        failed = {turn.turn for turn in conversation.turns if turn.mismatches}
        if not failed or failed & strict:
            break
    return conversation


def _compare_prompts(conversations: Sequence[Conversation]) -> None:
    """A stream's prompt is that of the body; the prompt of kept state is that of the whole history."""
    by_name = {each.transport.label: each for each in conversations}
    for name, conversation in by_name.items():
        for other in (name.removesuffix("-stream"), name.replace("responses", "responses-history", 1)):
            if other != name and other in by_name:
                _compare_prompt(by_name[other], conversation)


def _compare_prompt(whole: Conversation, kept: Conversation) -> None:
    for left, right in zip(whole.turns, kept.turns, strict=True):
        path = f"$.{kept.transport.label}.{right.turn}.prompt"
        told = any(finding.path == path for finding in right.findings)
        if left.prompt and right.prompt and not told:
            right.findings += prompts.differing(left.prompt, right.prompt, path, whole.transport.label)


def _compare_meanings(conversations: Sequence[Conversation]) -> None:
    """What a model says by itself may differ in words, not in how it ends nor in which tools it calls."""
    held = [each for each in conversations if any(turn.answer for turn in each.turns)]
    for conversation in held[1:]:
        labels = (held[0].transport.label, conversation.transport.label)
        for left, right in zip(held[0].turns, conversation.turns, strict=True):
            if left.answer and right.answer:
                place = f"$.{labels[1]}.{right.turn}"
                right.findings += judging.compared_roughly(left.answer, right.answer, place, labels)
