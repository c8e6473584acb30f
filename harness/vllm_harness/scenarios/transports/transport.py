"""What the transports share: a turn to be asked, what was said before it, and an answer's meaning."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from vllm_harness.protocol.core.events import Api, Json
from vllm_harness.scenarios.format import Part, Status
from vllm_harness.scenarios.tools import Result, Toolbox


@dataclass(frozen=True)
class Call:
    """A call of the model.

    Attributes:
        id: by which its output is told.
        name: of the tool.
        arguments: as the model wrote them; JSON where all is well.
        served: whether the server has made the call by itself, or asks whether it may.
        asks: whether it asks.
    """

    id: str
    name: str
    arguments: str
    served: bool = False
    asks: bool = False

    @property
    def values(self) -> dict[str, Any] | None:
        """The arguments; None where they are no JSON object."""
        try:
            values = json.loads(self.arguments)
        except (ValueError, RecursionError):
            return None
        return values if isinstance(values, dict) else None


@dataclass(frozen=True)
class Answer:
    """What an answer means, whichever API gave it.

    Attributes:
        status: how it ended.
        text: for the user.
        reasoning: before it.
        calls: in order.
        said: in the API's own form, as a client sends it back.
        id: of a response.
    """

    status: Status
    text: str = ""
    reasoning: str = ""
    calls: tuple[Call, ...] = ()
    said: tuple[Json, ...] = ()
    id: str = ""

    @property
    def open_calls(self) -> list[Call]:
        """The calls whose outputs the client has to send."""
        return [call for call in self.calls if not call.served]

    @property
    def approvals(self) -> tuple[str, ...]:
        """The ids by which the server asks whether it may call a tool."""
        return tuple(call.id for call in self.calls if call.asks)

    def meaning(self) -> Json:
        """The same without what belongs to one API or one answer; blanks at the ends of texts aside."""
        return {
            "status": self.status,
            "reasoning": self.reasoning.strip(),
            "text": self.text.strip(),
            "calls": [
                {"name": call.name, "arguments": call.arguments if call.values is None else call.values}
                for call in self.calls
            ],
        }


@dataclass(frozen=True)
class Sent:
    """What a turn sends: outputs of tools, agreement to calls of the server, then what the user says."""

    results: tuple[Result, ...]
    user: tuple[Part, ...]
    approved: tuple[str, ...] = ()


@dataclass(frozen=True)
class Said:
    """A turn of the past: what it sent, and what came back."""

    sent: Sent
    answer: Answer


@dataclass(frozen=True)
class Ask:
    """A turn to be asked.

    Attributes:
        model: its name on the server.
        instructions: the system prompt.
        toolbox: what is offered.
        tool_choice: as in the scenario.
        max_tokens: limit of the answer; None: only the model's length.
        context: length of the model's context, where it is known.
        line: the turns that it continues, from the first.
        sent: what it sends.
        background: whether the answer is made in the background.
    """

    model: str
    instructions: str | None
    toolbox: Toolbox
    tool_choice: str | None
    max_tokens: int | None
    context: int | None
    line: tuple[Said, ...]
    sent: Sent
    background: bool = False


@dataclass(frozen=True)
class Transport:
    """How a conversation is held over an API, streamed or not.

    Attributes:
        name: for people, whether it is streamed or not.
        api: whose rules its answers are held against.
        path: of the requests.
        request: the body of a turn's request, streamed or not.
        answer: the meaning of a body, or of what a stream adds up to.
        streaming: what a request has beside that for its answer to be streamed.
        streamed: whether its answers are streamed.
    """

    name: str
    api: Api
    path: str
    request: Callable[[Ask], Json]
    answer: Callable[[Json], Answer]
    streaming: Mapping[str, Any]
    streamed: bool = False

    @property
    def label(self) -> str:
        """Such as `chat` or `chat-stream`."""
        return f"{self.name}{'-stream' if self.streamed else ''}"


def given(**fields: Any) -> Json:
    """The fields that are not None."""
    return {name: value for name, value in fields.items() if value is not None}


def parts_of(result: Result) -> Iterator[Part]:
    """An output's text, then its images."""
    if result.text:
        yield Part(text=result.text)
    for image in result.images:
        yield Part(image=image)


def only_text(parts: tuple[Part, ...]) -> str | None:
    """The text of what is one text alone."""
    return parts[0].text if len(parts) == 1 else None
