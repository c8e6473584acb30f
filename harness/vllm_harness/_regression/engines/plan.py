"""Selects the cases that an engine runs, and the deliveries of each case."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace
from typing import Literal

from vllm_harness._exchange.delivery import Api, Delivery, deliveries
from vllm_harness._regression.cases.case import Case, CaseSet, Group

Engine = Literal["in-process", "http"]
_CHAT_AND_MESSAGES = deliveries("chat:whole chat:tokens_1 messages:whole messages:tokens_1")
_EVERY_API = deliveries(
    "chat:whole chat:tokens_1 responses:whole responses:tokens_1 messages:whole messages:tokens_1"
)
DEFAULT_APIS = tuple(Api)
DELIVERIES: dict[Engine, dict[Group, tuple[Delivery, ...]]] = {
    "in-process": {
        "canonical": deliveries(
            "whole tokens_1 tokens_2 tokens_3 tokens_5 tokens_7 all tokens_1_with_end all_with_end"
        ),
        "forced": deliveries("whole tokens_1 tokens_3 all all_with_end"),
        "chunks": deliveries(
            "whole tokens_1 tokens_2 all tokens_1_with_end all_with_end held_back every_cut random_cuts"
        ),
        "malformed": deliveries("whole tokens_1 tokens_3 all all_with_end"),
        "look-alikes": deliveries("whole tokens_1 tokens_3 all all_with_end"),
        "properties": deliveries("whole tokens_1 tokens_3 all_with_end"),
        "cost": deliveries("whole tokens_1"),
    },
    "http": {
        "canonical": _EVERY_API,
        "forced": _EVERY_API,
        "chunks": deliveries(
            "chat:whole chat:tokens_1 chat:held_back chat:tokens_3 chat:all_with_end "
            "messages:whole messages:tokens_1 messages:held_back messages:tokens_3 messages:all_with_end"
        ),
        "malformed": _CHAT_AND_MESSAGES,
        "look-alikes": _CHAT_AND_MESSAGES,
        "properties": _CHAT_AND_MESSAGES,
        "load": _CHAT_AND_MESSAGES,
        "cost": _EVERY_API,
    },
}
"""Deliveries by engine and group; without an expected meaning, the first is the standard for the others."""


def plan_cases(cases: CaseSet, engine: Engine, apis: Collection[Api] = DEFAULT_APIS) -> CaseSet:
    """Returns the cases that an engine runs over these APIs, if any, with their deliveries."""
    every = DELIVERIES[engine].get(cases.group, ())
    chosen = tuple(delivery for delivery in every if delivery.api is None or delivery.api in apis)
    if not chosen or (engine == "in-process" and cases.group == "forced" and cases.family.form is None):
        # Harmony's grammar does not include the token that ends a turn; only a server adds it
        return CaseSet(cases.family, cases.group)
    if engine == "in-process":
        planned = tuple(_in_deliveries(case, case.input.deliveries or chosen) for case in cases.cases)
    else:
        planned = tuple(_in_deliveries(case, chosen) for case in cases.cases if is_served(case))
    return replace(cases, cases=planned)


def _in_deliveries(case: Case, chosen: tuple[Delivery, ...]) -> Case:
    return replace(case, input=case.input.model_copy(update={"deliveries": chosen}))


def is_served(case: Case) -> bool:
    """Whether servers run a case: it is essential, and does not need control of tokens or truncation."""
    return case.essential and not (case.input.markers_spelled or case.input.truncated)
