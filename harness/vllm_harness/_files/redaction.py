"""Finds secrets by the names of variables and keys and by patterns, and redacts them."""

from __future__ import annotations

import base64
import codecs
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
"""A JSON key whose string value is a secret; `token` alone is not, since log probabilities have that key."""
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
        # a JSON key in a string, even in JSON that is a string within other JSON
        rf"(?i)(?P<escape>\\*)\"[\w-]*{_KEY}(?P=escape)\"\s*:\s*(?P=escape)\""
        r"(?P<secret>(?!\[redacted\]).+?)(?<!\\)(?P=escape)\"",
    )
)


def secret_values(env: Mapping[str, str], argv: Sequence[str] = ()) -> list[str]:
    """The secrets in environment variables and arguments, longest first, since one may contain another."""
    values = {value for name, value in env.items() if SECRET_NAME.search(name)}
    values |= _of_flags(argv)
    return sorted(
        (v for v in values if len(v) >= SHORTEST and v.lower() not in {"false", "true"}),
        key=lambda v: (-len(v), v),
    )


def _of_flags(argv: Sequence[str]) -> set[str]:
    """The values of all flags that take secrets; `--api-key` accepts several values."""
    values: set[str] = set()
    secret = False
    for argument in argv:
        if argument.startswith("--"):
            flag, equals, value = argument.partition("=")
            secret = SECRET_FLAG.match(flag) is not None
            if secret and equals:
                values.add(value)
        elif secret:
            values.add(argument)
    return values


def pattern_of(secrets: Iterable[str]) -> re.Pattern[str] | None:
    """A pattern whose group `secret` matches any encoded form of the secrets; None without secrets."""
    written = {form for value in secrets if value for form in _forms(value)}
    longest_first = sorted(written, key=lambda form: (-len(form), form))
    return re.compile(f"(?P<secret>{'|'.join(map(re.escape, longest_first))})") if written else None


class Redactor:
    """Replaces secrets with `[redacted]`.

    Args:
        values: known secrets, such as the result of `secret_values`; they are also found when they are
            encoded in JSON, in a URL or in base64.
    """

    def __init__(self, values: Sequence[str] = ()) -> None:
        known = pattern_of(values)
        self._patterns = (*([known] if known else []), *_PATTERNS)

    def spans(self, text: str) -> list[Span]:
        """The positions of the secrets in a string, in order and without overlaps."""
        matches = (match for pattern in self._patterns for match in pattern.finditer(text))
        return _merged([match.span("secret") for match in matches])

    def text(self, text: str) -> str:
        """Redacts the secrets in a string."""
        return "".join(self.pieces([text]))

    def pieces(self, pieces: Sequence[str], *, also_alone: bool = False) -> list[str]:
        """Redacts a string that is split into pieces; `[redacted]` replaces a secret where it starts.

        Args:
            pieces: the pieces of the string, in order.
            also_alone: also redact what looks like a secret only when a piece is read by itself.
        """
        whole = "".join(pieces)
        starts = list(accumulate(map(len, pieces), initial=0))[:-1]
        spans = self.spans(whole)
        if also_alone:
            for piece, offset in zip(pieces, starts, strict=True):
                spans += [(offset + start, offset + end) for start, end in self.spans(piece)]
            spans = _merged(spans)
        if not spans:
            return list(pieces)
        return [
            "".join(_without(whole, start, start + len(piece), spans))
            for piece, start in zip(pieces, starts, strict=True)
        ]

    def chunks(self, chunks: Sequence[bytes]) -> list[bytes]:
        """Redacts bytes that are split into chunks; a character that spans two chunks moves to the second."""
        decoder = codecs.getincrementaldecoder("utf-8")("surrogateescape")
        texts = [decoder.decode(chunk, number == len(chunks)) for number, chunk in enumerate(chunks, start=1)]
        pieces = self.pieces(texts)
        if pieces == texts:
            return list(chunks)
        return [piece.encode("utf-8", "surrogateescape") for piece in pieces]

    def value(self, value: Any) -> Any:
        """Redacts secrets in the strings of a JSON value, and every string under a key such as `api_key`."""
        if isinstance(value, str):
            return self.text(value)
        if isinstance(value, list):
            return [self.value(item) for item in value]
        if isinstance(value, dict):
            return {self.text(key): self._of_key(key, item) for key, item in value.items()}
        return value

    def _of_key(self, key: str, value: Any) -> Any:
        return REDACTED if isinstance(value, str) and _SECRET_KEY.fullmatch(key) else self.value(value)


def _merged(spans: Sequence[Span]) -> list[Span]:
    """Sorts spans, and merges overlapping ones."""
    merged: list[Span] = []
    for start, end in sorted(spans):
        if merged and start < merged[-1][1]:
            merged[-1] = (merged[-1][0], max(end, merged[-1][1]))
        else:
            merged.append((start, end))
    return merged


def _without(whole: str, start: int, end: int, spans: Sequence[Span]) -> Iterator[str]:
    """The text of a piece without the spans; `[redacted]` replaces each span that starts in the piece."""
    position = start
    for span_start, span_end in spans:
        if span_end <= start or span_start >= end:
            continue
        yield whole[position : max(position, span_start)]
        if span_start >= start:
            yield REDACTED
        position = min(span_end, end)
    yield whole[position:end]


def _forms(value: str) -> set[str]:
    """The forms of a secret: plain, or encoded in JSON, in JSON within JSON, in a URL or in base64."""
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
