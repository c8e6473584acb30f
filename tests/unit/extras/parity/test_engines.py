"""The comparison of a server with parsers in process."""

from __future__ import annotations

from tests.unit.regression.test_results import case_result, cell
from vllm_harness._regression.results.mismatches import Mismatch
from vllm_harness.extras.parity.engines import engine_differences


def test_engines_are_compared_answer_by_answer() -> None:
    parsed = case_result(digests={"whole": "a", "tokens_1": "b", "tokens_1_with_end": "c"})
    served = case_result(
        digests={"chat:whole": "a", "chat:tokens_1": "c", "responses:whole": "z"},
        mismatches={"responses:whole": ("call_lost",)},
    )
    over_http = cell(call=served).model_copy(update={"engine": "http"})
    compared, found = engine_differences([cell(call=parsed), over_http])
    assert compared == 3
    assert [(each.case, each.delivery.code, each.in_process, each.http) for each in found] == [
        ("call", "responses:whole", (), (Mismatch.parse("call_lost"),))
    ]
