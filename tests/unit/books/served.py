"""Books and requests in the form that a server's matching code uses, without a server."""

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
    """Makes a book that has the conditions of the rules, and one token instead of each answer."""
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
    """Returns the facts about a request to which the conditions of rules apply."""
    result: dict[str, Any] = conversations.facts(path, headers or {}, dict(body), list(earlier))
    return result


def outcome(book: ServedBook, request: Mapping[str, Any]) -> str:
    """Returns the name of the rule that takes a request, or the reason why no rule does."""
    match = book.take(dict(request))
    return str(match.rule["name"]) if isinstance(match, MatchedRule) else str(match)
