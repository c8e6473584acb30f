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
"""What a turn continues that begins a conversation of its own."""
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
"""A tool of the server's own, by the name that its calls have."""


def _not_empty(value: tuple[Any, ...]) -> tuple[Any, ...]:
    if not value:
        raise ValueError("give at least one")
    return value


NOT_EMPTY = AfterValidator(_not_empty)
"""Only looked at where the items are right, other than pydantic's own."""
AT_LEAST_ONE = Field(json_schema_extra={"minItems": 1})


@cache  # scenarios share their tools, and a check takes milliseconds
def _fault_of_schema(schema: str) -> str:
    """What is wrong with a JSON Schema; empty: nothing."""
    import jsonschema  # a tenth of a second for those who have no use for it

    try:
        jsonschema.Draft202012Validator.check_schema(json.loads(schema))
    except jsonschema.SchemaError as error:
        return str(error.message)
    return ""


class Output(StrictModel):
    """What a tool answers to some arguments.

    Attributes:
        when: predicates over the arguments; none: any arguments.
        output: a text, or any other JSON value.
        error: in place of `output`: the tool fails with this text.
        images: what the tool shows after its text, or in place of it; as an `image` of a turn.
        times: how often a text is repeated, for a long one.
        seconds: how long the tool takes.
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
            raise ValueError("only a text is repeated")
        return self


class Tool(StrictModel):
    """A function that the model may call, and what it answers.

    Attributes:
        description: for the model.
        parameters: the JSON Schema of its arguments.
        strict: whether the server is to hold the model to the schema; left out where it is not given.
        outputs: in order; the first whose `when` holds is the answer.
    """

    description: str = ""
    parameters: dict[str, Any]
    strict: bool | None = None
    outputs: Annotated[tuple[Output, ...], NOT_EMPTY, AT_LEAST_ONE]

    @field_validator("parameters")
    @classmethod
    def _is_a_schema(cls, schema: dict[str, Any]) -> dict[str, Any]:
        if fault := _fault_of_schema(json.dumps(schema, default=str)):
            raise ValueError(f"no JSON Schema: {fault}")
        return schema


class McpServer(StrictModel):
    """An MCP server of the scenario's own, at which every tool is data.

    Attributes:
        description: for the model.
        tools: by name.
        tools_file: a file with further tools, as of a scenario.
        token: what a session must carry as a bearer token.
        sends: what sessions carry in its place; empty: nothing.
        called_by: `client`: the harness offers the tools as functions, and calls them over MCP; `server`: the
            server under test calls them within a request (`type: mcp` of the Responses API).
        approval: `always`: the server under test has to ask before it calls a tool, and the turn after that
            agrees; `never`: it need not.
    """

    description: str = ""
    tools: dict[Name, Tool] = Field(default_factory=dict)
    tools_file: str | None = None
    token: str | None = None
    sends: str | None = None
    called_by: Literal["client", "server"] = "client"
    approval: Literal["always", "never"] = "never"


class CallExpectation(StrictModel):
    """A call that is expected.

    Attributes:
        name: of the tool, be it called by the client or by the server.
        arguments: predicates; arguments that are not named may be any.
        asks: whether the server asks for an approval in place of calling the tool.
        output: what the tool gave, where the server called it: a predicate over what the model was given
            after the call. It is looked at on the scripted lane only, where that is known.
    """

    name: Name
    arguments: dict[str, Predicate] = Field(default_factory=dict)
    asks: bool = False
    output: Predicate | None = None


class Expectation(StrictModel):
    """What the answer to a turn must be like.

    Attributes:
        calls: the calls, in order and no others; `[]`: none; left out: any.
        text: predicates over the text for the user, each of which must hold.
        status: `completed`; `incomplete` where a limit cut the answer; `failed`; `refused` where the server
            answers with an error.
        http: the HTTP status.
        events: of a stream: types of events that must come in this order, among others; by API, since each
            has its own. Chat Completions have no types.
        retries: `none`: it must be met at the first attempt. Attempts are repeated on the live lane only.
    """

    calls: tuple[CallExpectation, ...] | None = None
    text: Annotated[tuple[Predicate, ...], ONE_OR_MORE] = ()
    status: Status = "completed"
    http: int | None = Field(None, ge=100, le=599)
    events: dict[Api, tuple[str, ...]] = Field(default_factory=dict)
    retries: Literal["none"] | None = None


class TurnDefect(StrictModel):
    """A defect of vLLM that a turn shows.

    Attributes:
        defect: its id in the registry, whose `pattern` what is wrong must match.
        over: the transports that show it.
    """

    defect: str
    over: Annotated[tuple[Over, ...], NOT_EMPTY, AT_LEAST_ONE]


class Turn(StrictModel):
    """One request, and its answer.

    It sends the outputs of the calls of the turn that it continues, and after them what the user says.

    Attributes:
        name: unique within the scenario.
        after: the earlier turn that it continues; by default the turn before; `start`: none.
        user: a text, or a list of parts; left out: tool outputs alone, or nothing.
        tool_choice: `auto`, `required`, `none`, or the name of a tool; left out where it is not given.
        max_tokens: limit of the answer; by default the scenario's.
        background: the answer is made in the background, which the Responses API has alone: it is asked for
            until it has ended, or else its stream is read again from each of its events on.
        sends: by the label of an MCP server that the server under test calls: the token that it is given in
            this turn, in place of the right one; empty: none.
        expect: what the answer must be like.
        say: for the scripted lane: what the model says, as a text or a meaning; several where the server
            generates several times within the request.
        known: defects of vLLM that the turn shows; where one no longer does, the turn fails on the scripted
            lane.
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
    """A conversation: its tools, its turns, what is expected of each, and what a scripted model says.

    Attributes:
        scenario: version of the format.
        title: one line for people.
        instructions: the system prompt of every turn.
        tools: functions that are offered in every turn, by name.
        tools_file: a file with further tools, by name; relative to the scenario's file.
        mcp: MCP servers that run while the scenario does, by label.
        built_in: tools of the server's own that are offered in every turn. A server that is started for the
            scenario has those of vLLM's demo tool server (`--tool-server demo`).
        missing_tool_call: what becomes of the conversation where a turn expects calls and none comes.
            `error_stop`: the turn fails, and the turns after it are cancelled; `ignore_stop`: it stands, and
            they are cancelled; `ignore_continue`: it stands, and they are judged by themselves.
        max_tokens: limit of each answer; none: only the model's own length cuts an answer.
        turns: in order; a turn may continue any turn above it.
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
        """The turn that a turn continues; None where it begins a conversation."""
        if turn.after is not None:
            return next((each for each in self.turns if each.name == turn.after), None)
        above = self.turns.index(turn) - 1
        return self.turns[above] if above >= 0 else None

    def line(self, turn: Turn) -> list[Turn]:
        """The turns that a turn continues, from the beginning of its conversation."""
        line: list[Turn] = []
        above = self.parent(turn)
        while above is not None:
            line.insert(0, above)
            above = self.parent(above)
        return line

    @property
    def every_tool(self) -> dict[str, Tool]:
        """The functions and the tools of the MCP servers."""
        return {
            **self.tools,
            **{name: tool for each in self.mcp.values() for name, tool in each.tools.items()},
        }

    @property
    def of_server(self) -> frozenset[str]:
        """The tools that the server under test calls by itself."""
        theirs = [each for each in self.mcp.values() if each.called_by == "server"]
        return frozenset(name for each in theirs for name in each.tools).union(self.built_in)

    @property
    def in_background(self) -> bool:
        """Whether an answer is made in the background."""
        return any(turn.background for turn in self.turns)

    @property
    def scriptable(self) -> bool:
        """Whether every turn has what a scripted model says."""
        return all(turn.say for turn in self.turns)
