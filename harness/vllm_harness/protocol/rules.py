"""The rules, one a code: `explain`, the pages and the tests of the rules are made from this table."""

from __future__ import annotations

from vllm_harness.protocol.rule import Rule
from vllm_harness.protocol.rules_between import BETWEEN_RULES
from vllm_harness.protocol.rules_chat import CHAT_RULES
from vllm_harness.protocol.rules_messages import MESSAGES_RULES
from vllm_harness.protocol.rules_objects import OBJECT_RULES
from vllm_harness.protocol.rules_streams import STREAM_RULES

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
    "KD": "Known deviations",
}

RULES: dict[str, Rule] = {
    rule.code: rule for rule in (*STREAM_RULES, *OBJECT_RULES, *CHAT_RULES, *MESSAGES_RULES, *BETWEEN_RULES)
}

SEVERITIES = {code: rule.severity for code, rule in RULES.items()}
