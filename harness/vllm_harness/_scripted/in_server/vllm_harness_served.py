"""The books that a server answers from, and the log of what it answered.

Runs inside the server, imports nothing of the harness beyond this folder.
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
    """What a rule would quote of a request cannot be said in this family's format."""


@dataclass(frozen=True)
class MatchedRule:
    """A rule that takes a request: what the model generates, with the groups that it quotes."""

    rule: Rule
    takes: list[Any]
    groups: matching.Groups


class ServedBook:
    """Rules in order: each has the conditions of a request, and what the model generates for it.

    Attributes:
        rules: as the harness posted them; `left` is how many more requests a rule serves.
        source: the file that the rules come from; empty where they come from a program.
        uses: what became of each request.
    """

    def __init__(self) -> None:
        self.rules: list[Rule] = []
        self.source = ""
        self.uses: list[dict[str, Any]] = []

    def add(self, rules: Iterable[Rule]) -> None:
        """Adds rules behind the others."""
        self.rules += [{"times": rule.get("left"), **rule} for rule in rules]

    def replace(self, rules: Iterable[Rule], source: str) -> None:
        """Takes other rules; what became of the earlier ones stays in the report."""
        self.rules, self.source = [], source
        self.add(rules)

    def reset(self) -> None:
        """Lets every rule serve as many requests again as its `times` says."""
        for rule in self.rules:
            rule["left"] = rule["times"]

    def take(self, facts: dict[str, Any]) -> MatchedRule | str:
        """The first rule that takes a request and is not used up; else the nearest, and why it does not."""
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
                nearest = (distance, rule, problems or [f"times: {rule['times']} (and was taken as often)"])
        if nearest is None:
            return "the book has no rules"
        _, rule, problems = nearest
        place = f" ({rule['where']})" if rule.get("where") else ""
        return f"the nearest rule is {rule['name']!r}{place}, which has {' and '.join(problems)}"

    def report(self) -> dict[str, Any]:
        """The rules that are left, and the state of each use."""
        return {
            "source": self.source,
            "left": [rule["name"] for rule in self.rules if rule.get("left")],
            "uses": [
                {
                    **use,
                    "generations": uses.read_statuses(use["id"]),
                    "prompts": uses.read_prompts(use["id"]) if use["keep_prompt"] else [],
                    "sampling": uses.read_sampling(use["id"]) if use["keep_prompt"] else [],
                }
                for use in self.uses
            ],
        }


class Log:
    """The last requests that were answered, each with its body where that is not too long."""

    def __init__(self) -> None:
        self._entries: deque[dict[str, Any]] = deque(maxlen=LOGGED)
        self._answered = 0

    def add(self, use: dict[str, Any], raw: bytes, body: dict[str, Any], facts: dict[str, Any]) -> None:
        """Notes a request that was answered."""
        self._answered += 1
        states = [each["state"] for each in uses.read_statuses(use["id"])]
        shown = {key: facts[key] for key in LOGGED_FACTS}
        entry = {"number": self._answered, "at": time.time(), **use, **shown, "states": states}
        self._entries.append(entry | {"body": body if len(raw) <= LOGGED_BODY else None})

    def after(self, number: int) -> list[dict[str, Any]]:
        """The requests that were answered after one, by its number; 0 for all that are kept."""
        return [entry for entry in self._entries if entry["number"] > number]


def quoted(template: dict[str, Any], groups: matching.Groups) -> str:
    """The text of a template with the groups that it quotes, each as the format writes it in its place.

    Raises:
        QuoteError: a group holds what the format cannot write there.
    """
    text = ""
    for piece in template["pieces"]:
        text += piece if isinstance(piece, str) else _written(piece, groups.get(piece["group"], ""))
    return text


def _written(place: dict[str, Any], value: str) -> str:
    for marker in place["markers"]:
        if marker in value:
            raise QuoteError(f"group {place['group']!r} holds {marker!r}, a marker of the model's format")
    characters = place["characters"]
    if refused := next((char for char in value if char in characters and characters[char] is None), None):
        raise QuoteError(
            f"group {place['group']!r} holds {refused!r}, which the model's format cannot write there"
        )
    return "".join(characters.get(char, char) for char in value)


def _answer(rule: Rule, groups: matching.Groups) -> tuple[list[Any], list[str]]:
    """What a rule generates, by the case where it has cases; and what is missing for it."""
    if "case" not in rule:
        return rule["takes"], []
    value = groups.get(rule["case"], "")
    if value in rule["of"]:
        return rule["of"][value], []
    if rule["takes"]:
        return rule["takes"], []
    return [], [f"say: case {rule['case']} is {value!r}, and there are only {', '.join(rule['of'])}"]
