"""The rules, one a code: `validate explain`, the pages and the tests are made from this table."""

from __future__ import annotations

from vllm_harness._extensions import rule_modules
from vllm_harness._protocol.chat import rules as chat
from vllm_harness._protocol.conversation import rules as conversation
from vllm_harness._protocol.core import rules as core
from vllm_harness._protocol.core.rule import Rule
from vllm_harness._protocol.messages import rules as messages
from vllm_harness._protocol.responses.rules import items, lifecycle, objects, texts

AREAS = {
    "SE": "Framing of server-sent events",
    "RS": "Responses streams",
    "RO": "Response objects",
    "IT": "Output items",
    "CC": "Chat Completions streams",
    "CB": "Chat Completions bodies",
    "CU": "Chat Completions usage",
    "MS": "Messages streams",
    "MB": "Messages bodies",
    "CV": "Conversations",
    "CP": "Comparisons",
    "GW": "Gateways",
    "KD": "Known deviations",
}
RULE_MODULES = (core, lifecycle, items, texts, objects, chat, messages, conversation)


def _all_rules() -> list[Rule]:
    """The rules in the order of their areas."""
    modules = (*RULE_MODULES, *rule_modules())
    values = [value for module in modules for value in vars(module).values()]
    rules = [value for value in values if isinstance(value, Rule)]
    return sorted(rules, key=lambda rule: list(AREAS).index(rule.code[:2]))


RULES: dict[str, Rule] = {rule.code: rule for rule in _all_rules()}
UNCOVERED = AREAS.keys() - {code[:2] for code in RULES}
"""The areas whose rules belong to an extra that is not installed."""
