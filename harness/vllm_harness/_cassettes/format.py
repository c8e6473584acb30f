"""The format of a cassette: a recorded conversation as data."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field, model_validator

from vllm_harness._files.strict import StrictModel

VERSION = 1
Data = str | bytes
"""Bytes of a request or an answer; a string if they are valid UTF-8."""


class Recorded(StrictModel):
    """The origin of a cassette, as far as it is known.

    Attributes:
        at: the time of the recording in UTC, in ISO 8601.
        harness: the version of the harness.
        by: what recorded it: `scenario`, `replay`, `proxy`, or the format of the file that it was read from.
        scenario: the name of the scenario file, without folder and suffix.
        transport: the transport of the scenario, such as `chat-stream`.
        model: the model entry.
        served: the served name of the model.
        hub, revision: the id and the revision of the weights on a model hub.
        lane: `live`, `scripted` or `attached`.
        vllm, commit: the version and the commit of vLLM.
        environment: the kind and the versions of the server's environment.
        frontend: vLLM's HTTP front end, `python` or `rust`.
        device: the device that the model ran on.
        command: the command line of the server.
        variables: the environment variables that the harness set for the server.
        url: the URL of a server that the harness did not start.
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
    """A recorded HTTP request.

    Attributes:
        method: the HTTP method.
        path: the path of the URL, with its query.
        headers: the relevant headers, without secrets.
        body: the JSON body; None if there is none.
        text: the body if it is not JSON, in place of `body`.
    """

    method: str = "POST"
    path: str
    headers: dict[str, str] = Field(default_factory=dict)
    body: Any = None
    text: Data | None = None


class RecordedChunk(StrictModel):
    """A chunk of a recorded stream.

    Attributes:
        at: the time when it arrived, in seconds after the request was sent.
        data: the bytes of the chunk.
    """

    at: float = Field(ge=0)
    data: Data

    @property
    def content(self) -> bytes:
        """The data as bytes."""
        return self.data.encode("utf-8", "surrogatepass") if isinstance(self.data, str) else self.data


class RecordedResponse(StrictModel):
    """An answer, with at most one of body, text and sse.

    Attributes:
        status: the HTTP status; 0 if no answer came.
        headers: the relevant headers, without secrets.
        seconds: the seconds until the end of the answer.
        body: a JSON body.
        text: a body that is neither JSON nor a stream of events.
        sse: a stream of server-sent events.
        broken: how the answer broke off; empty if it ended normally.
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
            raise ValueError("give only one of: body, text, sse")
        return self


class ToolOutput(StrictModel):
    """The output of a tool call from the previous turn, sent with the request.

    Attributes:
        call: the id of the call.
        output: the text that the tool returned.
        failed: whether the tool failed.
    """

    call: str
    output: str
    failed: bool = False


class RecordedExchange(StrictModel):
    """A request and its answer.

    Attributes:
        turn: the name of its turn, unique in the cassette.
        after: the name of the turn that it continues; None if there is none or it is unknown.
        outputs: the tool outputs that the request sent.
        request, response: the request and the answer.
        tokens: the token ids that the model generated, for each choice or generation.
    """

    turn: str
    after: str | None = None
    outputs: tuple[ToolOutput, ...] = ()
    request: RecordedRequest
    response: RecordedResponse
    tokens: tuple[tuple[int, ...], ...] = ()


class Cassette(StrictModel):
    """A recorded conversation, or all exchanges that a proxy recorded.

    Attributes:
        cassette: the version of the format.
        title: a one-line description.
        recorded: the origin of the cassette.
        exchanges: the exchanges in order.
        count: the number of exchanges, as the last key: a file without it is incomplete.
    """

    cassette: Literal[1]
    title: str = ""
    recorded: Recorded = Recorded()
    exchanges: tuple[RecordedExchange, ...]
    count: int = Field(ge=0)
