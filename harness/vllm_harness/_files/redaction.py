"""Secrets, which must never be written to disk: found by the names of what holds them, and by patterns."""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import accumulate
from typing import Any
from urllib.parse import quote

REDACTED = "[redacted]"
SECRET_NAME = re.compile(
    r"TOKEN|(API|ACCESS|PRIVATE)_?KEY|SECRET|PASSWORD|PASSWD|PASSPHRASE|CREDENTIAL", re.IGNORECASE
)
SECRET_FLAG = re.compile(r"^--(api-key|hf-token)$")
SHORTEST = 6
Span = tuple[int, int]
_KEY = (
    r"(?:authorization|(?:api|access|account)[_-]?key|secret(?:[_-]?(?:access[_-]?)?key)?|pass(?:word|wd|phrase)"
    r"|private[_-]?key|credentials?|cookie|(?:access|refresh|id|auth|bearer|session|security)[_-]?token)"
)
_SECRET_KEY = re.compile(rf"(?:^|[\w-]*[_-]){_KEY}", re.IGNORECASE)
"""A key of JSON whose text is a secret; not `token` alone, which log probabilities have."""
_PATTERNS = tuple(
    re.compile(pattern)
    for pattern in (
        r"\b(?:sk|pk|rk)[-_](?P<secret>[A-Za-z0-9_-]{16,})",  # OpenAI, Anthropic, OpenRouter, Stripe
        r"\b(?:hf_|gsk_|nvapi-|xai-|r8_|fw_|pplx-|tgp_v1_|csk-)(?P<secret>[A-Za-z0-9_-]{8,})",
        r"\b(?:gh[pousr]_|github_pat_|glpat-)(?P<secret>[A-Za-z0-9_-]{8,})",
        r"\b(?:npm_|pypi-|dop_v1_|shpat_|dckr_pat_)(?P<secret>[A-Za-z0-9_-]{16,})",
        r"\bxox[abeoprs]-(?P<secret>[A-Za-z0-9-]{8,})",  # Slack
        r"hooks\.slack\.com/services/(?P<secret>[A-Za-z0-9/]{8,})",
        r"\b(?:AKIA|ASIA)(?P<secret>[A-Z0-9]{16})\b",  # AWS
        r"\bAIza(?P<secret>[A-Za-z0-9_-]{30,})",  # Google
        r"\bya29\.(?P<secret>[A-Za-z0-9_-]{8,})",
        r"\bSG\.(?P<secret>[A-Za-z0-9_-]{16,}\.[A-Za-z0-9_-]{16,})",  # SendGrid
        r"\b\d{8,10}:(?P<secret>AA[A-Za-z0-9_-]{32,})",  # Telegram
        r"\beyJ(?P<secret>[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]{8,}(?:\.[A-Za-z0-9_-]*)?)",  # JSON web tokens
        r"(?i)\b(?:bearer|basic)\s+(?P<secret>[A-Za-z0-9._~+/=-]{6,})",
        r"-----BEGIN [A-Z ]*PRIVATE KEY-----(?P<secret>[\s\S]+?)(?:-----END|\Z)",
        r"\b[a-z][a-z0-9+.-]*://[^\s/:@\"']*:(?P<secret>[^\s/@\"'\[]+)@",  # user:password@host
        rf"(?i)\b[\w-]*{_KEY}=(?:[\"'])?(?P<secret>[^\s\"'&,;\[\\]+)",  # variables, parameters of a URL
        r"(?i)[?&](?:token|sig|signature|key|x-amz-signature|x-goog-signature)=(?P<secret>[^\s\"'&\[\\]+)",
        # a key of JSON within a text, be it within a text of JSON itself
        rf"(?i)(?P<escape>\\*)\"[\w-]*{_KEY}(?P=escape)\"\s*:\s*(?P=escape)\""
        r"(?P<secret>(?!\[redacted\]).+?)(?<!\\)(?P=escape)\"",
    )
)


def secret_values(env: Mapping[str, str], argv: Sequence[str] = ()) -> list[str]:
    """Values to redact, the longest first, since a secret may contain another."""
    values = {value for name, value in env.items() if SECRET_NAME.search(name)}
    values |= _after_flags(argv)
    values |= {arg.split("=", 1)[1] for arg in argv if "=" in arg and SECRET_FLAG.match(arg.split("=", 1)[0])}
    return sorted(
        (v for v in values if len(v) >= SHORTEST and v.lower() not in {"false", "true"}),
        key=lambda v: (-len(v), v),
    )


def _after_flags(argv: Sequence[str]) -> set[str]:
    """Every value of a flag: `--api-key` takes several."""
    values: set[str] = set()
    secret = False
    for argument in argv:
        if argument.startswith("--"):
            secret = SECRET_FLAG.match(argument) is not None
        elif secret:
            values.add(argument)
    return values


def pattern_of(secrets: Iterable[str]) -> re.Pattern[str] | None:
    """Finds each secret as the group `secret`, however a text may write it; None for no secrets."""
    written = {form for value in secrets if value for form in _forms(value)}
    longest_first = sorted(written, key=lambda form: (-len(form), form))
    return re.compile(f"(?P<secret>{'|'.join(map(re.escape, longest_first))})") if written else None


class Redactor:
    """Puts `[redacted]` in the place of secrets.

    Args:
        values: secrets that are known, such as those of `secret_values`; they are found as they are, and as
            JSON, a URL and base64 write them.
    """

    def __init__(self, values: Sequence[str] = ()) -> None:
        known = pattern_of(values)
        self._patterns = (*([known] if known else []), *_PATTERNS)

    def spans(self, text: str) -> list[Span]:
        """Where the secrets of a text are, in order, none within another."""
        return _merged([match.span("secret") for each in self._patterns for match in each.finditer(text)])

    def text(self, text: str) -> str:
        """A text without its secrets."""
        return "".join(self.pieces([text]))

    def pieces(self, pieces: Sequence[str], *, also_alone: bool = False) -> list[str]:
        """The pieces of a text without the secrets of the whole; the mark stands where a secret begins.

        Args:
            pieces: of the text, in order.
            also_alone: a piece may also be a text by itself, whose secrets go, too.
        """
        whole, spans = "".join(pieces), self.spans("".join(pieces))
        begins = list(accumulate(map(len, pieces), initial=0))[:-1]
        if also_alone:
            spans = _merged([*spans, *self._alone(pieces, begins)])
        if not spans:
            return list(pieces)
        return [
            "".join(_without(whole, begin, begin + len(piece), spans))
            for piece, begin in zip(pieces, begins, strict=True)
        ]

    def _alone(self, pieces: Sequence[str], begins: Sequence[int]) -> Iterator[Span]:
        for piece, begin in zip(pieces, begins, strict=True):
            yield from ((begin + start, begin + end) for start, end in self.spans(piece))

    def chunks(self, chunks: Sequence[bytes]) -> list[bytes]:
        """The same for bytes."""
        texts = [chunk.decode("utf-8", "surrogateescape") for chunk in _whole_characters(chunks)]
        pieces = self.pieces(texts)
        if pieces == texts:
            return list(chunks)
        return [piece.encode("utf-8", "surrogateescape") for piece in pieces]

    def value(self, value: Any) -> Any:
        """A JSON value without the secrets of its texts; texts of keys such as `api_key` are secrets."""
        if isinstance(value, str):
            return self.text(value)
        if isinstance(value, list):
            return [self.value(each) for each in value]
        if isinstance(value, dict):
            return {self.text(key): self._of_key(key, each) for key, each in value.items()}
        return value

    def _of_key(self, key: str, value: Any) -> Any:
        return REDACTED if isinstance(value, str) and _SECRET_KEY.fullmatch(key) else self.value(value)


def _merged(spans: Sequence[Span]) -> list[Span]:
    """Spans in order, none of which overlaps another."""
    merged: list[Span] = []
    for start, end in sorted(spans):
        if merged and start < merged[-1][1]:
            merged[-1] = (merged[-1][0], max(end, merged[-1][1]))
        else:
            merged.append((start, end))
    return merged


def _without(whole: str, begin: int, end: int, spans: Sequence[Span]) -> Iterator[str]:
    """A part of a text, with a mark in the place of each span that begins in it."""
    at = begin
    for start, stop in spans:
        if stop <= begin or start >= end:
            continue
        yield whole[at : max(at, start)]
        if start >= begin:
            yield REDACTED
        at = min(stop, end)
    yield whole[at:end]


def _whole_characters(chunks: Sequence[bytes]) -> Iterator[bytes]:
    """The same bytes, cut between characters: the rest of one goes with the next chunk."""
    rest = b""
    for number, chunk in enumerate(chunks, start=1):
        data = rest + chunk
        keep = 0 if number == len(chunks) else _cut_character(data)
        rest = data[len(data) - keep :]
        yield data[: len(data) - keep]


def _cut_character(data: bytes) -> int:
    """How many bytes at the end are the beginning of a character."""
    for back in range(1, min(3, len(data)) + 1):
        byte = data[-back]
        if byte >= 0xC0:
            wanted = 2 if byte < 0xE0 else 3 if byte < 0xF0 else 4
            return back if back < wanted else 0
        if byte < 0x80:
            return 0
    return 0


def _forms(value: str) -> set[str]:
    """A secret as it is, and as JSON, JSON within JSON, a URL and base64 write it."""
    once = json.dumps(value)[1:-1]
    plain = json.dumps(value, ensure_ascii=False)[1:-1]
    encoded = base64.b64encode(value.encode("utf-8", "surrogateescape")).decode().rstrip("=")
    return {
        value,
        once,
        plain,
        json.dumps(once)[1:-1],
        json.dumps(plain, ensure_ascii=False)[1:-1],
        quote(value, safe="", errors="surrogateescape"),
        encoded,
    }
