"""A server's script books, and the log of the requests that it answered.

Runs inside the server and imports nothing from the harness outside this folder.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import vllm_harness_matching as matching
import vllm_harness_uses as uses

LOGGED = 500
LOGGED_BODY = 256 * 1024
LOGGED_FACTS = ("api", "stream", "turn", "user", "tool_output", "tools", "tool_choice", "format")

Rule = dict[str, Any]


class QuoteError(ValueError):
    """The family's format cannot express what a rule quotes from a request."""


@dataclass(frozen=True)
class MatchedRule:
    """A rule that answers a request, the takes that the model generates, and the groups for quotes."""

    rule: Rule
    takes: list[Any]
    groups: matching.Groups


class ServedBook:
    """An ordered list of rules, each with conditions for a request and what the model generates for it.

    Attributes:
        rules: the rules as the harness posted them; `left` counts the requests that a rule may still answer.
        source: the file that the rules come from; empty if they come from code.
        uses: the requests to this book, as dictionaries, including those that no rule matched.
    """

    def __init__(self) -> None:
        self.rules: list[Rule] = []
        self.source = ""
        self.uses: list[dict[str, Any]] = []

    def add(self, rules: Iterable[Rule]) -> None:
        """Appends rules to the book."""
        self.rules += [{"times": rule.get("left"), **rule} for rule in rules]

    def replace(self, rules: Iterable[Rule], source: str) -> None:
        """Replaces the rules; the uses of the earlier rules stay in the report."""
        self.rules, self.source = [], source
        self.add(rules)

    def reset(self) -> None:
        """Makes every rule available again for as many requests as its `times` allows."""
        for rule in self.rules:
            rule["left"] = rule["times"]

    def take(self, facts: dict[str, Any]) -> MatchedRule | str:
        """The first rule that matches a request and is not used up; else a message about the nearest rule."""
        nearest: tuple[tuple[int, int], Rule, list[str]] | None = None
        for rule in self.rules:
            groups: matching.Groups = {}
            when = rule.get("when") or {}
            failed = matching.unmet(when, facts, groups)
            takes, missing = _answer(rule, groups)
            problems = [*failed, *([] if failed else missing)]
            if not problems and rule.get("left") != 0:
                if rule.get("left"):
                    rule["left"] -= 1
                return MatchedRule(rule, takes, groups)
            distance = (len(problems), len(failed) - len(when))
            if nearest is None or distance < nearest[0]:
                nearest = (distance, rule, problems or [f"times: {rule['times']} (all used)"])
        if nearest is None:
            return "the book has no rules"
        _, rule, problems = nearest
        place = f" ({rule['where']})" if rule.get("where") else ""
        return f"the nearest rule is {rule['name']!r}{place}, which has {' and '.join(problems)}"

    def report(self) -> dict[str, Any]:
        """The names of the rules that are not used up, and the state of each use."""
        return {
            "source": self.source,
            "left": [rule["name"] for rule in self.rules if rule.get("left")],
            "uses": [_reported(use) for use in self.uses],
        }


def _reported(use: dict[str, Any]) -> dict[str, Any]:
    kept = uses.read_kept(use["id"]) if use["keep_prompt"] else []
    prompts, sampling = ([generation[key] for generation in kept] for key in ("prompt", "sampling"))
    generations = uses.read_statuses(use["id"])
    delivery = use["delivery"] and use["delivery"].report()
    fields = {"generations": generations, "prompts": prompts, "sampling": sampling, "delivery": delivery}
    return {**use, **fields}


class Log:
    """The latest answered requests, each with its body unless the body is too long."""

    def __init__(self) -> None:
        self._entries: deque[dict[str, Any]] = deque(maxlen=LOGGED)
        self._answered = 0

    def add(self, use: dict[str, Any], raw: bytes, body: dict[str, Any], facts: dict[str, Any]) -> None:
        """Adds an answered request."""
        self._answered += 1
        states = [status["state"] for status in uses.read_statuses(use["id"])]
        shown = {key: facts[key] for key in LOGGED_FACTS}
        shown |= {"states": states, "delivery": use["delivery"] and use["delivery"].code}
        entry = {"number": self._answered, "at": time.time(), **use, **shown}
        self._entries.append(entry | {"body": body if len(raw) <= LOGGED_BODY else None})

    def after(self, number: int) -> list[dict[str, Any]]:
        """The requests answered after the request with this number; 0 for all."""
        return [entry for entry in self._entries if entry["number"] > number]


def quoted(template: dict[str, Any], groups: matching.Groups) -> str:
    """Inserts the groups into a template, each escaped as the format requires at its position.

    Raises:
        QuoteError: a group contains something that the format cannot write at its position.
    """
    text = ""
    for piece in template["pieces"]:
        text += piece if isinstance(piece, str) else _written(piece, groups.get(piece["group"], ""))
    return text


def _written(place: dict[str, Any], value: str) -> str:
    for marker in place["markers"]:
        if marker in value:
            raise QuoteError(f"group {place['group']!r} contains {marker!r}, a marker of the model's format")
    characters = place["characters"]
    if refused := next((char for char in value if char in characters and characters[char] is None), None):
        raise QuoteError(
            f"group {place['group']!r} contains {refused!r}, which the model's format cannot write there"
        )
    return "".join(characters.get(char, char) for char in value)


def _answer(rule: Rule, groups: matching.Groups) -> tuple[list[Any], list[str]]:
    """The takes of a rule, selected by its case if it has one, and the reasons if there are none."""
    if "case" not in rule:
        return rule["takes"], []
    value = groups.get(rule["case"], "")
    if value in rule["of"]:
        return rule["of"][value], []
    if rule["takes"]:
        return rule["takes"], []
    return [], [f"say: case {rule['case']} is {value!r}, but `of` has only {', '.join(rule['of'])}"]
