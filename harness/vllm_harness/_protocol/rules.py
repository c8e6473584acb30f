"""The table of all rules by code, from which `validate explain`, the pages and the tests are made."""

from __future__ import annotations

from vllm_harness._extensions import rule_modules
from vllm_harness._protocol.chat import object_rules as chat_objects
from vllm_harness._protocol.chat import stream_rules as chat_stream
from vllm_harness._protocol.conversation import rules as conversation
from vllm_harness._protocol.core import rules as core
from vllm_harness._protocol.core.rule import Rule
from vllm_harness._protocol.messages import object_rules as messages_objects
from vllm_harness._protocol.messages import stream_rules as messages_stream
from vllm_harness._protocol.responses import item_rules, object_rules, stream_rules, text_rules

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
RULE_MODULES = (
    core,
    stream_rules,
    item_rules,
    text_rules,
    object_rules,
    chat_stream,
    chat_objects,
    messages_stream,
    messages_objects,
    conversation,
)


def _all_rules() -> list[Rule]:
    """The rules in the order of their areas."""
    modules = (*RULE_MODULES, *rule_modules())
    values = [value for module in modules for value in vars(module).values()]
    rules = [value for value in values if isinstance(value, Rule)]
    return sorted(rules, key=lambda rule: list(AREAS).index(rule.code[:2]))


RULES: dict[str, Rule] = {rule.code: rule for rule in _all_rules()}
UNCOVERED = AREAS.keys() - {code[:2] for code in RULES}
"""The areas whose rules belong to an extra that is not installed."""
