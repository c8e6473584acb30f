"""Synthetic tokenizers: a token for each byte, and a family's markers as single tokens.

Splitting text into single bytes is the hardest case for a server, and needs no files from a hub.
transformers loads these tokenizers as it loads any fast tokenizer.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from vllm_harness._scripted.dialects.form import Form
from vllm_harness._scripted.standin import write_json

PAD = "<|pad|>"
"""A special token for padding in every synthetic tokenizer; no format uses it."""
_TEMPLATE = Path(__file__).parent.parent / "templates" / "family.jinja"
_PRINTABLE = (range(ord("!"), ord("~") + 1), range(ord("¡"), ord("¬") + 1), range(ord("®"), ord("ÿ") + 1))


@dataclass(frozen=True)
class Token:
    """A string that is a single token; decoding omits `special` tokens by default."""

    text: str
    special: bool


def tokens_of(form: Form) -> tuple[Token, ...]:
    """The markers of a format that are single tokens in its family's tokenizer, and PAD."""
    reasoning = form.reasoning
    marked = {
        **dict.fromkeys(form.frame.tokens, True),
        **dict.fromkeys(form.calls.tokens, form.calls.special),
        **(dict.fromkeys(reasoning.tokens, reasoning.special) if reasoning else {}),
        PAD: True,
    }
    return tuple(Token(text, special) for text, special in marked.items())


def byte_tokenizer(
    tokens: Iterable[Token],
    *,
    merges: Iterable[tuple[str, str]] = (),
    ids: Mapping[str, int] | None = None,
    sentencepiece: bool = False,
) -> dict[str, Any]:
    """Creates the content of a tokenizer.json: ids 0 to 255 are bytes, then come merged pieces, then tokens.

    Args:
        tokens: the single tokens, such as the markers of a format.
        merges: pairs of earlier pieces that become ordinary vocabulary, for parsers that look for certain
            tokens; in the spelling of the vocabulary (`Ġ` for a space, `Ċ` for a newline).
        ids: the ids that certain merged pieces must have.
        sentencepiece: whether bytes are written as in SentencePiece (`<0x0A>`), not as in GPT-2.
    """
    letters = [f"<0x{byte:02X}>" for byte in range(256)] if sentencepiece else _letters()
    vocabulary = {letter: number for number, letter in enumerate(letters)}
    merges, ids = list(merges), ids or {}
    free = itertools.count(max([len(letters) - 1, *ids.values()]) + 1)
    for left, right in merges:
        vocabulary.setdefault(left + right, ids.get(left + right) or next(free))
    model = {
        "type": "BPE",
        "dropout": None,
        "unk_token": None,
        "continuing_subword_prefix": None,
        "end_of_word_suffix": None,
        "fuse_unk": False,
        "byte_fallback": sentencepiece,
        "ignore_merges": False,
        "vocab": vocabulary,
        "merges": [list(pair) for pair in merges],
    }
    byte_level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": False, "use_regex": False}
    fallback = {"type": "Sequence", "decoders": [{"type": "ByteFallback"}, {"type": "Fuse"}]}
    return {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": [_added(number, token) for number, token in enumerate(tokens, start=next(free))],
        "normalizer": None,
        "pre_tokenizer": None if sentencepiece else byte_level,
        "post_processor": None,
        "decoder": fallback if sentencepiece else byte_level,
        "model": model,
    }


def with_tokens(document: dict[str, Any], tokens: Iterable[Token]) -> dict[str, Any]:
    """A tokenizer.json with missing tokens appended; existing tokens remain unchanged."""
    added = document["added_tokens"]
    known = {token["content"] for token in added}
    first = 1 + max([*document["model"]["vocab"].values(), *(token["id"] for token in added)])
    missing = [token for token in tokens if token.text not in known]
    return {
        **document,
        "added_tokens": [
            *added,
            *(_added(number, token) for number, token in enumerate(missing, start=first)),
        ],
    }


def ids_of(document: dict[str, Any]) -> dict[str, int]:
    """The ids of a tokenizer.json's tokens, by their text."""
    return {**document["model"]["vocab"], **{t["content"]: t["id"] for t in document["added_tokens"]}}


def write_tokenizer(
    folder: Path, document: dict[str, Any], form: Form, *, config: dict[str, Any] | None = None
) -> None:
    """Writes tokenizer.json, tokenizer_config.json and chat_template.jinja.

    Args:
        folder: an existing folder.
        document: the tokenizer.json.
        form: the format for the chat template.
        config: further settings for tokenizer_config.json.
    """
    settings = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "eos_token": stop_of(form),
        "pad_token": PAD,
        "clean_up_tokenization_spaces": False,
        "model_max_length": 8192,
        **(config or {}),
    }
    write_json(folder / "tokenizer.json", document)
    write_json(folder / "tokenizer_config.json", settings)
    (folder / "chat_template.jinja").write_text(chat_template(form))


def chat_template(form: Form) -> str:
    """A plain chat template: the family's message frame and end of prompt, with everything else as JSON."""
    frame = form.frame
    variables = {
        "start": frame.start,
        "roles": frame.roles,
        "close": {role: frame.close.get(role, frame.close.get("", "")) for role in frame.roles},
        "tail": form.tail,
        "how": form.how,
    }
    header = "".join(
        f"{{%- set {name} = {json.dumps(value, ensure_ascii=False)} -%}}\n"
        for name, value in variables.items()
    )
    return header + _TEMPLATE.read_text()


def stop_of(form: Form) -> str:
    """The token that ends a turn."""
    return _last_token(form, form.frame.end)


def stops_of(form: Form) -> tuple[str, ...]:
    """All tokens that end a turn, with and without calls."""
    ends = (form.frame.end, form.frame.end_after_calls)
    return tuple(dict.fromkeys(_last_token(form, end) for end in ends if end))


def _last_token(form: Form, end: str) -> str:
    return max((token for token in form.frame.tokens if end.endswith(token)), key=len)


def _added(number: int, token: Token) -> dict[str, Any]:
    flags = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False}
    return {"id": number, "content": token.text, **flags, "special": token.special}


def _letters() -> list[str]:
    """GPT-2's letters for bytes, in GPT-2's order: printable bytes, then letters from U+0100 for the rest."""
    printable = [byte for span in _PRINTABLE for byte in span]
    return [*map(chr, printable), *(chr(256 + number) for number in range(256 - len(printable)))]
