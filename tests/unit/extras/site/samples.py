"""Sample cells and entries: one family, which loses a call if several tokens arrive at once."""

from __future__ import annotations

from typing import Any

from vllm_harness._defects.entry import Defect
from vllm_harness._regression.results.cells import Cell
from vllm_harness.extras.site.build import site_of
from vllm_harness.extras.site.site import Site

HOSTILE = (
    "</code><script>alert(1)</script> [x](javascript:alert(2)) | `` ` `` *a* _b_ &amp; \x1b[31m\n# no heading"
)
DELIVERIES = ("whole", "tokens_1", "tokens_3")


def entry(**changes: Any) -> Defect:
    """An entry that explains the calls that `hermes` loses if several tokens arrive at once."""
    return Defect.model_validate(
        {
            "id": "hermes-loses-a-call",
            "title": "hermes loses a call",
            "class": "defect",
            "actual": "The call is lost.",
            "apis": ["chat"],
            "parser": "hermes",
            "judged": "2026-11-20",
            "upstream": {"searched": ["hermes call lost"], "searched_on": "2026-11-21"},
            "failures": [{"families": ["hermes"], "case": "call", "mismatches": ["call_lost"]}],
            **changes,
        }
    )


def cell(environment: str = "0.32.0", group: str = "canonical", **changes: Any) -> Cell:
    """A cell for hermes without mismatches, apart from the given changes."""
    cases = {"text": _case("plain"), "call": _case("calls"), "two calls": _case("calls")}
    return Cell.model_validate(
        {
            "environment": environment,
            "described": f"release vllm {environment}",
            "family": "hermes",
            "group": group,
            "tool_parser": "hermes",
            "reasoning_parser": None,
            "tokenizer": "synthetic",
            "engine": "in-process",
            "cases_digest": "any",
            "cases": cases,
            **changes,
        }
    )


def failing(
    environment: str = "0.32.0",
    mismatches: dict[str, tuple[str, ...]] | None = None,
    answer: str = "{}",
    **changes: Any,
) -> Cell:
    """A cell with mismatches in the case `call`: by default, it is lost if three tokens arrive at once."""
    wrong = {"tokens_3": ("call_lost",)} if mismatches is None else mismatches
    call = _case("calls") | {"mismatches": wrong, "examples": dict.fromkeys(wrong, answer)}
    document = cell(environment, **changes).model_dump(mode="json")
    document["cases"]["call"] = call
    return Cell.model_validate(document)


def site(*cells: Cell, **changes: Any) -> Site:
    """The site made from these cells and one entry."""
    defect = entry(**changes)
    return site_of(cells, [], {defect.id: defect})


def _case(topic: str) -> dict[str, Any]:
    return {"topic": topic, "deliveries": len(DELIVERIES), "digests": dict.fromkeys(DELIVERIES, "same")}
