"""The format of a scenario: a conversation as data."""

from __future__ import annotations

import json
from functools import cache
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, Field, field_validator, model_validator

from vllm_harness._exchange.answer import Status
from vllm_harness._exchange.building import ContentPart
from vllm_harness._files.strict import StrictModel
from vllm_harness._protocol.core.events import Api
from vllm_harness._scenarios.predicates import Predicate
from vllm_harness._scenarios.shorthands import ONE_OR_MORE, Plain, text_as
from vllm_harness._scripted.book_file import SaySpec

VERSION = 1
START = "start"
"""The value of `after` for a turn that begins a new conversation."""
Name = Annotated[str, Field(pattern=r"^[A-Za-z0-9_-]{1,64}$")]
MissingToolCall = Literal["error_stop", "ignore_stop", "ignore_continue"]
Over = Literal[
    "responses",
    "responses-stream",
    "responses-history",
    "responses-history-stream",
    "chat",
    "chat-stream",
    "messages",
    "messages-stream",
]
"""A transport, streamed or not."""
BuiltIn = Literal["code_interpreter", "web_search"]
"""A built-in tool of the server, under the name that its calls use."""


def _not_empty(value: tuple[Any, ...]) -> tuple[Any, ...]:
    if not value:
        raise ValueError("give at least one")
    return value


NOT_EMPTY = AfterValidator(_not_empty)
"""Rejects an empty list, after its items have been validated."""
AT_LEAST_ONE = Field(json_schema_extra={"minItems": 1})


@cache  # scenarios share their tools, and a check takes milliseconds
def _fault_of_schema(schema: str) -> str:
    """Says what is wrong with a JSON Schema; empty if it is valid."""
    import jsonschema  # takes a tenth of a second

    try:
        jsonschema.Draft202012Validator.check_schema(json.loads(schema))
    except jsonschema.SchemaError as error:
        return str(error.message)
    return ""


class Output(StrictModel):
    """An output of a tool.

    Attributes:
        when: predicates that the arguments must meet; if empty, the output is for all arguments.
        output: a string, or any other JSON value.
        error: the message with which the tool fails, in place of `output`.
        images: images that the tool returns after its text or in place of it, each like an `image` of a turn.
        times: the number of times that a string is repeated, for a long output.
        seconds: the time that the tool takes, in seconds.
    """

    when: dict[str, Predicate] = Field(default_factory=dict)
    output: Plain = None
    error: str | None = None
    images: Annotated[tuple[str, ...], ONE_OR_MORE] = ()
    times: int = Field(1, ge=1, le=100_000_000)
    seconds: float = Field(0, ge=0, le=600)

    @model_validator(mode="after")
    def _answers(self) -> Output:
        given = ("output" in self.model_fields_set) + (self.error is not None)
        if given > 1 or not (given or self.images):
            raise ValueError("give exactly one of: output, error")
        if self.times > 1 and not isinstance(self.output, str):
            raise ValueError("only a string can be repeated")
        return self


class Tool(StrictModel):
    """A function that the model may call, and its outputs.

    Attributes:
        description: the description for the model.
        parameters: the JSON Schema of its arguments.
        strict: whether the server must enforce the schema; by default not sent.
        outputs: the outputs in order; the first one whose `when` holds is used.
    """

    description: str = ""
    parameters: dict[str, Any]
    strict: bool | None = None
    outputs: Annotated[tuple[Output, ...], NOT_EMPTY, AT_LEAST_ONE]

    @field_validator("parameters")
    @classmethod
    def _is_a_schema(cls, schema: dict[str, Any]) -> dict[str, Any]:
        if fault := _fault_of_schema(json.dumps(schema, default=str)):
            raise ValueError(f"not a valid JSON Schema: {fault}")
        return schema


class McpServer(StrictModel):
    """An MCP server that runs with the scenario, which defines the outputs of the server's tools.

    Attributes:
        description: the description for the model.
        tools: the tools by name.
        tools_file: a file with further tools, as for a scenario.
        token: the bearer token that a session must send.
        sends: the token that sessions send instead; an empty string to send none.
        called_by: `client`: the harness offers the tools as functions and calls them over MCP; `server`: the
            server under test calls them within a request (`type: mcp` of the Responses API).
        approval: `always`: the server under test has to ask before it calls a tool, and the next turn agrees;
            `never`: it need not ask.
    """

    description: str = ""
    tools: dict[Name, Tool] = Field(default_factory=dict)
    tools_file: str | None = None
    token: str | None = None
    sends: str | None = None
    called_by: Literal["client", "server"] = "client"
    approval: Literal["always", "never"] = "never"


class CallExpectation(StrictModel):
    """An expected call of a tool.

    Attributes:
        name: the name of the tool, whether the client or the server calls it.
        arguments: predicates by argument; other arguments may have any value.
        asks: whether the server asks for an approval instead of calling the tool.
        output: for a tool that the server calls: a predicate over the text that the model received after the
            call. It is checked on the scripted lane only.
    """

    name: Name
    arguments: dict[str, Predicate] = Field(default_factory=dict)
    asks: bool = False
    output: Predicate | None = None


class Expectation(StrictModel):
    """The conditions that the answer to a turn must meet.

    Attributes:
        calls: the exact calls, in this order; `[]` for no calls; by default any calls.
        text: predicates that the text for the user must meet.
        status: `completed`; `incomplete`: a limit truncated the answer; `failed`; `refused`: the server
            answers with an error.
        http: the HTTP status.
        events: by API, the types of events that a stream must contain in this order, possibly with others
            between them. Chat Completions events have no types.
        retries: `none`: the first attempt must succeed. Only the live lane makes further attempts.
    """

    calls: tuple[CallExpectation, ...] | None = None
    text: Annotated[tuple[Predicate, ...], ONE_OR_MORE] = ()
    status: Status = "completed"
    http: int | None = Field(None, ge=100, le=599)
    events: dict[Api, tuple[str, ...]] = Field(default_factory=dict)
    retries: Literal["none"] | None = None


class TurnDefect(StrictModel):
    """A known defect of vLLM that a turn shows.

    Attributes:
        defect: the id of its entry in the registry; a problem of the turn must match the entry's `pattern`.
        over: the transports that show it.
    """

    defect: str
    over: Annotated[tuple[Over, ...], NOT_EMPTY, AT_LEAST_ONE]


class Turn(StrictModel):
    """A turn of a scenario: a request and its answer.

    The request sends the outputs for the calls of the turn that it continues, and then the user's message.

    Attributes:
        name: its name, unique within the scenario.
        after: the earlier turn that it continues, by default the turn above; `start` begins a conversation.
        user: a string, or a list of parts; by default, only tool outputs are sent.
        tool_choice: `auto`, `required`, `none`, or the name of a tool; by default not sent.
        max_tokens: the maximum number of tokens of the answer; by default that of the scenario.
        background: whether the server answers in the background, over the Responses API only: the answer is
            polled until it has ended, or its stream is read again from each of its events.
        sends: by the label of an MCP server that the server under test calls: the token to send in this turn
            instead of the right one; an empty string to send none.
        expect: the conditions that the answer must meet.
        say: for the scripted lane: what the model says, as a string or a meaning; a list if the server
            generates several times within the request.
        known: known defects of vLLM that the turn shows; on the scripted lane, the turn fails if one of them
            no longer shows.
    """

    name: Name
    after: Name | None = None
    user: Annotated[tuple[Annotated[ContentPart, text_as("text")], ...], ONE_OR_MORE] = ()
    tool_choice: str | None = None
    max_tokens: int | None = Field(None, ge=1)
    background: bool = False
    sends: dict[Name, str] = Field(default_factory=dict)
    expect: Expectation = Expectation()
    say: Annotated[tuple[Annotated[SaySpec, text_as("text")], ...], ONE_OR_MORE] = ()
    known: tuple[TurnDefect, ...] = ()


class Scenario(StrictModel):
    """A conversation: its tools, its turns, the expected answers, and what a scripted model says.

    Attributes:
        scenario: the version of the format.
        title: a one-line title for readers.
        instructions: the system prompt of every turn.
        tools: functions that are offered in every turn, by name.
        tools_file: a file with further tools by name; relative to the scenario's file.
        mcp: MCP servers that run while the scenario does, by label.
        built_in: built-in tools of the server that are offered in every turn. A server that is started for
            the scenario has those of vLLM's demo tool server (`--tool-server demo`).
        missing_tool_call: what happens if a turn expects calls and gets none. `error_stop`: the turn fails,
            and later turns are cancelled; `ignore_stop`: it does not fail, and they are cancelled;
            `ignore_continue`: it does not fail, and they go on.
        max_tokens: the maximum number of tokens of each answer; by default, the model's context is the limit.
        turns: the turns in order; a turn may continue any turn above it.
    """

    scenario: Literal[1]
    title: str = ""
    instructions: str | None = None
    tools: dict[Name, Tool] = Field(default_factory=dict)
    tools_file: str | None = None
    mcp: dict[Name, McpServer] = Field(default_factory=dict)
    built_in: Annotated[tuple[BuiltIn, ...], ONE_OR_MORE] = ()
    missing_tool_call: MissingToolCall = "error_stop"
    max_tokens: int | None = Field(None, ge=1)
    turns: Annotated[tuple[Turn, ...], NOT_EMPTY, AT_LEAST_ONE]

    def parent(self, turn: Turn) -> Turn | None:
        """The turn that a turn continues; None if it begins a conversation."""
        if turn.after is not None:
            return next((earlier for earlier in self.turns if earlier.name == turn.after), None)
        above = self.turns.index(turn) - 1
        return self.turns[above] if above >= 0 else None

    def ancestors(self, turn: Turn) -> list[Turn]:
        """The turns that a turn continues, from the start of its conversation."""
        parent = self.parent(turn)
        return [*self.ancestors(parent), parent] if parent else []

    @property
    def every_tool(self) -> dict[str, Tool]:
        """The functions and the tools of the MCP servers, by name."""
        over_mcp = {name: tool for server in self.mcp.values() for name, tool in server.tools.items()}
        return {**self.tools, **over_mcp}

    @property
    def of_server(self) -> frozenset[str]:
        """The tools that the server under test itself calls."""
        called = [server for server in self.mcp.values() if server.called_by == "server"]
        return frozenset(name for server in called for name in server.tools).union(self.built_in)

    @property
    def in_background(self) -> bool:
        """Whether the server generates an answer in the background."""
        return any(turn.background for turn in self.turns)

    @property
    def scriptable(self) -> bool:
        """Whether every turn has a `say`."""
        return all(turn.say for turn in self.turns)
