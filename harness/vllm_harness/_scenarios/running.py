"""Runs a scenario on a server over several transports, streamed and not, and compares the results."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from functools import partial

from vllm_harness._configuration.model_entries import ModelEntry
from vllm_harness._defects.registry import Defects, known_deviations, load_defects
from vllm_harness._errors import UsageError
from vllm_harness._exchange.endpoint import API_PATHS
from vllm_harness._exchange.server import VllmServer
from vllm_harness._machine.tasks import pool_of
from vllm_harness._protocol import KnownDeviation, apply_known
from vllm_harness._scenarios import known_defects, mismatches, prompts
from vllm_harness._scenarios.conversation import converse
from vllm_harness._scenarios.format import Scenario
from vllm_harness._scenarios.images import with_addresses
from vllm_harness._scenarios.mcp_servers import RunningMcp, mcp_servers
from vllm_harness._scenarios.results import Conversation, TurnResult
from vllm_harness._scenarios.toolboxes import opened
from vllm_harness._scenarios.tools import Toolbox
from vllm_harness._scenarios.transports import TRANSPORTS, Transport, find_transport
from vllm_harness._terminal.status import Progress, quiet

BOTH = (False, True)
AT_ONCE = 4


def transports_of(names: Sequence[str] = (), streamed: Sequence[bool] = BOTH) -> list[Transport]:
    """Finds the transports with these names, by default all, by default each without and with streaming.

    Raises:
        UsageError: a name is unknown.
    """
    transports = [find_transport(name) for name in names or TRANSPORTS]
    return [replace(transport, streamed=stream) for transport in transports for stream in streamed]


def check_capabilities(scenario: Scenario, entry: ModelEntry, *, scripted: bool, hint: str) -> None:
    """Raises UsageError, with this hint, if the model lacks a capability that the scenario needs."""
    if lacking := needed_capabilities(scenario, scripted=scripted) - entry.capabilities:
        raise UsageError(
            f"the scenario needs {', '.join(sorted(lacking))}, which {entry.name} does not have", hint=hint
        )


def needed_capabilities(scenario: Scenario, *, scripted: bool) -> set[str]:
    """The capabilities that a model entry must have to run a scenario."""
    needed = {"mcp"} if scenario.of_server else set()
    if scenario.in_background:
        needed.add("background")
    if has_images(scenario):
        needed.add("image")
    for turn in scenario.turns:
        scripted_calls = [len(say.calls) for say in turn.say] if scripted else []
        expected = [call for call in turn.expect.calls or () if call.name not in scenario.of_server]
        calls = max([len(expected), *scripted_calls])
        if calls:
            needed.add("tools")
        if calls and not scripted and turn.tool_choice in (None, "auto"):
            needed.add("auto_tools")
        if calls > 1:
            needed.add("parallel_tools")
    return needed


def has_images(scenario: Scenario) -> bool:
    """Whether a user or a tool sends an image."""
    parts = [part for turn in scenario.turns for part in turn.user]
    outputs = [output for tool in scenario.every_tool.values() for output in tool.outputs]
    return any(part.image for part in parts) or any(output.images for output in outputs)


def run(
    scenario: Scenario,
    server: VllmServer,
    transports: Sequence[Transport],
    *,
    attempts: int = 1,
    defects: Defects | None = None,
    mcp: Mapping[str, RunningMcp] | None = None,
    kept: list[Conversation] | None = None,
    progress: Progress = quiet,
) -> list[Conversation]:
    """Runs a scenario over several transports, and compares the results.

    Args:
        scenario: the conversation.
        server: the server.
        transports: the transports.
        attempts: the maximum number of attempts for each conversation if the model is not scripted; a failed
            turn that allows no retries ends them.
        defects: the known defects of vLLM; by default the package's.
        mcp: the scenario's MCP servers, if they already run because the server under test calls them.
        kept: receives the conversations at the beginning; an interrupted run has filled in some turns.
        progress: receives a line at the start of each turn.

    Raises:
        UsageError: the model is scripted, and a turn has no `say` or one that its family cannot express; or a
            turn names a defect that the registry lacks.
    """
    scripted = server.lane == "scripted"
    if scripted:
        _check_scriptable(scenario)
    registry = load_defects() if defects is None else defects
    named = known_defects.named_defects(scenario, registry, server)
    lacking = server.endpoint.lacking()
    version, conversations = server.vllm_version, [Conversation(transport, []) for transport in transports]
    if kept is not None:
        kept += conversations
    with ExitStack() as stack:
        running = stack.enter_context(mcp_servers(scenario.mcp)) if mcp is None else mcp
        toolbox = stack.enter_context(opened(scenario, running))
        scenario = stack.enter_context(with_addresses(scenario))
        # only a scripted model generates the same text in any batch; concurrent images may show vllm-46354
        together = scripted and not has_images(scenario)
        pool = stack.enter_context(pool_of(AT_ONCE if together else 1))
        run_over = partial(
            _run_over, scenario, server, toolbox, lacking, 1 if scripted else attempts, progress
        )
        missing_on = ""
        try:
            list(pool.map(run_over, conversations))
            missing_on = version if scripted else ""
            _compare_prompts(conversations)
            if not scripted:
                _compare_meanings(conversations)
        finally:
            _mark_known(conversations, known_deviations(server.entry.name, version, registry), version)
            known_defects.mark(scenario, conversations, named, missing_on=missing_on)
    return conversations


def _mark_known(conversations: Sequence[Conversation], known: Sequence[KnownDeviation], version: str) -> None:
    for conversation in conversations:
        conversation.findings = apply_known(conversation.findings, known, version)
        for turn in conversation.turns:
            turn.findings = apply_known(turn.findings, known, version)


def _check_scriptable(scenario: Scenario) -> None:
    if silent := next((turn.name for turn in scenario.turns if not turn.say), ""):
        raise UsageError(
            f"turn {silent!r} has no `say`, which the scripted lane needs",
            hint="give each turn a `say`, or run the scenario on the live lane",
        )


def _run_over(
    scenario: Scenario,
    server: VllmServer,
    toolbox: Toolbox,
    lacking: Collection[str],
    attempts: int,
    progress: Progress,
    conversation: Conversation,
) -> None:
    reason, transport = "", conversation.transport
    if transport.api in lacking:
        reason = f"the server does not serve {API_PATHS[transport.api]}"
    elif toolbox.of_server and transport.api != "responses":
        reason = "a server calls tools over the Responses API only"
    elif scenario.in_background and transport.api != "responses":
        reason = "an answer is made in the background over the Responses API only"
    if reason:
        conversation.turns += [TurnResult(turn.name, reason) for turn in scenario.turns]
        return
    strict = {turn.name for turn in scenario.turns if turn.expect.retries == "none"}
    for attempt in range(1, attempts + 1):
        if attempt > 1:
            progress(f"{transport.label}: attempt {attempt} of {attempts}")
        conversation.attempts = attempt
        converse(conversation, scenario, server, toolbox, progress)
        failed = {turn.turn for turn in conversation.turns if turn.mismatches}
        if not failed or failed & strict:
            break


def _compare_prompts(conversations: Sequence[Conversation]) -> None:
    """Compares prompts: streamed with not streamed, and stored state with the whole history."""
    by_name = {each.transport.label: each for each in conversations}
    for name, conversation in by_name.items():
        for other in (name.removesuffix("-stream"), name.replace("responses", "responses-history", 1)):
            if other != name and other in by_name:
                _compare_prompt(by_name[other], conversation)


def _compare_prompt(reference: Conversation, other: Conversation) -> None:
    for left, right in zip(reference.turns, other.turns, strict=True):
        path = f"$.{other.transport.label}.{right.turn}.prompt"
        reported = any(finding.path == path for finding in right.findings)
        if left.prompt and right.prompt and not reported:
            right.findings += prompts.differing(left.prompt, right.prompt, path, reference.transport.label)


def _compare_meanings(conversations: Sequence[Conversation]) -> None:
    """Compares how answers end and which tools they call; the words of a real model may differ."""
    answered = [each for each in conversations if any(turn.answer for turn in each.turns)]
    for conversation in answered[1:]:
        labels = (answered[0].transport.label, conversation.transport.label)
        for left, right in zip(answered[0].turns, conversation.turns, strict=True):
            if left.answer and right.answer:
                place = f"$.{labels[1]}.{right.turn}"
                right.findings += mismatches.compared_roughly(left.answer, right.answer, place, labels)
