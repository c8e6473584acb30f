"""Converts a script's content to what a server stores: token ids, or pieces that quote the request."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, TypeGuard

import requests

from vllm_harness._configuration.model_entries import ModelEntry
from vllm_harness._errors import HarnessError, UsageError
from vllm_harness._exchange.endpoint import Endpoint
from vllm_harness._scripted.dialects import find_dialect, render
from vllm_harness._scripted.in_server import vllm_harness_names as names
from vllm_harness._scripted.meaning import Meaning, Raw, ToolCall
from vllm_harness._scripted.quoting import Quoting, pieces, sample
from vllm_harness._scripted.standin import stand_in_of, vocabulary

Plain = str | Meaning | Raw | Sequence[int]
"""What the model generates: text for the user, a meaning, raw text or token ids."""
Content = Plain | Quoting
"""What the model generates: a `Plain`, or an answer that quotes the request."""
_OWN = {names.OWN_HEADER: "1"}


class BookError(HarnessError):
    """The server does not accept a book, or does not return its report."""


@dataclass(frozen=True)
class EncodedTake:
    """A take as a server stores it.

    Attributes:
        ids: the take's token ids; if it quotes the request, the ids with sample text in place of the quotes.
        ended_early: whether the content lacked a stop token at its end, so that one was appended.
        wire: what the server stores: token ids, or a mapping with `pieces` if the take quotes the request.
    """

    ids: tuple[int, ...]
    ended_early: bool
    wire: list[int] | dict[str, Any]


def encode(content: Content, entry: ModelEntry, endpoint: Endpoint, *, constrained: bool) -> EncodedTake:
    """Encodes content with a server's tokenizer.

    Raises:
        DialectError: the entry's dialect cannot express the content.
        UsageError: the entry has no stand-in, or a token id is outside its vocabulary.
        BookError: the server does not tokenize the content.
    """
    stand_in = stand_in_of(entry)
    if isinstance(content, Quoting):
        like = encode(sample(content), entry, endpoint, constrained=constrained)
        assert entry.dialect is not None
        markers = find_dialect(entry.dialect).markers
        parts = pieces(content, lambda plain: raw_text(entry, plain, constrained=constrained), markers)
        end = [stand_in.stop] if like.ended_early else []
        return EncodedTake(like.ids, like.ended_early, {"pieces": [*parts, *end]})
    if isinstance(content, str | Meaning | Raw):
        ids = list(_tokenized(endpoint, entry.name, raw_text(entry, content, constrained=constrained)))
    else:
        check_ids(content, entry)
        ids = list(content)
    eos = stand_in.generation_config.get("eos_token_id", [])
    early = not ids or ids[-1] not in (eos if isinstance(eos, list) else [eos])
    if early:
        ids += _tokenized(endpoint, entry.name, stand_in.stop)
    return EncodedTake(tuple(ids), early, ids)


def raw_text(entry: ModelEntry, content: str | Meaning | Raw, *, constrained: bool = False) -> str:
    """Renders content as the model's raw text. Raises DialectError if the dialect cannot express it."""
    if isinstance(content, Raw):
        return content.text
    assert entry.dialect is not None
    meaning = content if isinstance(content, Meaning) else Meaning.of(content)
    return render(entry.dialect, meaning, constrained=constrained)


def check_ids(ids: Sequence[int], entry: ModelEntry) -> None:
    """Raises UsageError if a token id is outside the vocabulary, since such an id would crash the engine."""
    size = vocabulary(entry)
    if unknown := [token for token in ids if not 0 <= token < size]:
        raise UsageError(
            f"{unknown[0]} is not a token id of {entry.name}, whose vocabulary ends at {size - 1}",
            hint="give the text as `raw`, or get its ids from the server's /tokenize",
        )


def is_ids(content: Content) -> TypeGuard[Sequence[int]]:
    """Whether the content is a sequence of token ids."""
    if not isinstance(content, Sequence) or isinstance(content, (str, bytes)):
        return False
    return all(isinstance(token, int) for token in content)


def combined(say: Content | None, reasoning: str | None, calls: Sequence[ToolCall]) -> Content:
    """The content of a script that is given in parts. Raises UsageError if the parts do not fit together."""
    if say is None and reasoning is None and not calls:
        raise UsageError(
            "a script needs text, reasoning, calls, a Meaning, Raw text or token ids",
            hint='give what the model answers, such as script("Hello.")',
        )
    if say is None or isinstance(say, str):
        return Meaning.of(say, reasoning=reasoning, calls=tuple(calls))
    if reasoning is not None or calls:
        raise UsageError(
            "reasoning and calls go with a plain text, not with a Meaning, Raw text or token ids",
            hint="put them into the Meaning or the raw text",
        )
    return say


def checked(content: Content) -> Content:
    """Returns the content. Raises UsageError if it is not something that a model can generate."""
    if isinstance(content, (str, Meaning, Raw, Quoting)) or is_ids(content):
        return content
    calls = any(
        isinstance(item, ToolCall) for item in (content if isinstance(content, Sequence) else [content])
    )
    raise UsageError(
        f"a script accepts text, a Meaning, Raw text or token ids, not {content!r:.200}",
        hint="name the calls: script(calls=[ToolCall(...)])" if calls else "write what the model answers",
    )


def call(endpoint: Endpoint, method: str, path: str, body: Any = None) -> dict[str, Any]:
    """Sends a request of the harness itself to a scripted server, and returns the JSON object in its answer.

    Raises:
        BookError: no answer came, or the answer is an error or not valid JSON.
    """
    try:
        answer = endpoint.request(method, path, json=body, headers=_OWN)
        answer.raise_for_status()
        result: dict[str, Any] = answer.json()
    except (requests.RequestException, ValueError) as error:
        raise BookError(
            f"{method} {endpoint.url_for(path)}: {error}",
            hint="check that this is a server of the scripted lane and that it is still running",
        ) from error
    return result


@lru_cache(maxsize=256)
def _tokenized(endpoint: Endpoint, model: str, text: str) -> tuple[int, ...]:
    if not text:
        return ()
    body = {"model": model, "prompt": text, "add_special_tokens": False}
    return tuple(int(token) for token in call(endpoint, "POST", "/tokenize", body)["tokens"])
