"""The format of a cassette: a recorded conversation as data."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field, model_validator

from vllm_harness._files.strict import StrictModel

VERSION = 1
Data = str | bytes
"""Bytes of an answer: a text where they are UTF-8."""


class Recorded(StrictModel):
    """Where a cassette comes from; what is not known is left out.

    Attributes:
        at: when it was recorded, as UTC in the form of ISO 8601.
        harness: version of the harness.
        by: what recorded it: `scenario`, `replay`, `proxy`, or the form of the file that it was read from.
        scenario: its file, without folder and ending.
        transport: over which the scenario was held, such as `chat-stream`.
        model: the model entry.
        served: the name that the server serves it under.
        hub, revision: of the weights, on a model hub.
        lane: `live`, `scripted` or `attached`.
        vllm, commit: version and commit of vLLM.
        environment: kind and versions of the server's environment.
        frontend: vLLM's HTTP front end.
        device: what the model ran on.
        command: the server's command line.
        variables: what the server was given beside the inherited variables.
        url: of a server that ran already.
    """

    at: str = ""
    harness: str = ""
    by: Literal["", "scenario", "replay", "proxy", "agentic-api", "vcr", "har"] = ""
    scenario: str = ""
    transport: str = ""
    model: str = ""
    served: str = ""
    hub: str = ""
    revision: str = ""
    lane: str = ""
    vllm: str = ""
    commit: str = ""
    environment: str = ""
    frontend: str = ""
    device: str = ""
    command: tuple[str, ...] = ()
    variables: dict[str, str] = Field(default_factory=dict)
    url: str = ""


class RecordedRequest(StrictModel):
    """A request.

    Attributes:
        method: of HTTP.
        path: of the URL, with its query.
        headers: those that say something of the request; no secrets.
        body: JSON; None where there was none.
        text: in place of `body`, what is no JSON.
    """

    method: str = "POST"
    path: str
    headers: dict[str, str] = Field(default_factory=dict)
    body: Any = None
    text: Data | None = None


class RecordedChunk(StrictModel):
    """Bytes of a stream, as they came.

    Attributes:
        at: seconds since the request was sent.
        data: the bytes.
    """

    at: float = Field(ge=0)
    data: Data

    @property
    def content(self) -> bytes:
        """The bytes."""
        return self.data.encode("utf-8", "surrogatepass") if isinstance(self.data, str) else self.data


class RecordedResponse(StrictModel):
    """An answer, as one of body, text and sse.

    Attributes:
        status: of HTTP; 0: none came.
        headers: those that say something of the answer; no secrets.
        seconds: until the whole answer was there.
        body: JSON.
        text: what is neither JSON nor a stream of events.
        sse: a stream of server-sent events.
        broken: how it ended, where it did not end well.
    """

    status: int = Field(ge=0, le=599)
    headers: dict[str, str] = Field(default_factory=dict)
    seconds: float | None = Field(None, ge=0)
    body: Any = None
    text: Data | None = None
    sse: tuple[RecordedChunk, ...] | None = None
    broken: str = ""

    @model_validator(mode="after")
    def _is_one_thing(self) -> RecordedResponse:
        if sum(part is not None for part in (self.body, self.text, self.sse)) > 1:
            raise ValueError("an answer has one of: body, text, sse")
        return self


class ToolOutput(StrictModel):
    """What a tool gave for a call of the turn before, which the request then sent.

    Attributes:
        call: id of the call.
        output: the text.
        failed: whether the tool failed.
    """

    call: str
    output: str
    failed: bool = False


class RecordedExchange(StrictModel):
    """A request and its answer.

    Attributes:
        turn: its name, unique in the cassette.
        after: the turn that it continues, where that is known.
        outputs: of tools, which it sent.
        request, response: as they were.
        tokens: what the model generated, as token ids, for each choice or generation.
    """

    turn: str
    after: str | None = None
    outputs: tuple[ToolOutput, ...] = ()
    request: RecordedRequest
    response: RecordedResponse
    tokens: tuple[tuple[int, ...], ...] = ()


class Cassette(StrictModel):
    """A recorded conversation, or all that somebody's client sent while it was recorded.

    Attributes:
        cassette: version of the format.
        title: one line for people.
        recorded: where it comes from.
        exchanges: in order.
        count: of the exchanges. It stands last: without it a file was cut, or is still being recorded.
    """

    cassette: Literal[1]
    title: str = ""
    recorded: Recorded = Recorded()
    exchanges: tuple[RecordedExchange, ...]
    count: int = Field(ge=0)
