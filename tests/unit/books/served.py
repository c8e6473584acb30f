"""Books as a server has them, and requests as it sees them, without a server."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from typing import Any

from vllm_harness._scripted.book import BookRule
from vllm_harness._server.launch import IN_SERVER

sys.path.insert(0, str(IN_SERVER))
import vllm_harness_conversation as conversations
from vllm_harness_served import MatchedRule, ServedBook


def served(rules: Sequence[BookRule]) -> ServedBook:
    """A book with the conditions of rules; in the place of each answer stands a token."""
    book = ServedBook()
    book.add(
        {
            "name": rule.name,
            "where": rule.where,
            "takes": [[1] for _ in rule.takes],
            "when": rule.when.as_json(),
            "left": rule.times,
            **({"case": rule.case, "of": {value: [[1]] for value in rule.of}} if rule.case else {}),
        }
        for rule in rules
    )
    return book


def facts(
    path: str, body: Mapping[str, Any], headers: Mapping[str, str] | None = None, earlier: Sequence[Any] = ()
) -> dict[str, Any]:
    """The facts of a request."""
    found: dict[str, Any] = conversations.facts(path, headers or {}, dict(body), list(earlier))
    return found


def taken(book: ServedBook, asked: Mapping[str, Any]) -> str:
    """The name of the rule that takes a request; else why none does."""
    found = book.take(dict(asked))
    return str(found.rule["name"]) if isinstance(found, MatchedRule) else str(found)
