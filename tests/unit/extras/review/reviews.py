"""Reviews and failures for the tests of what is shown of them."""

from __future__ import annotations

from vllm_harness._regression.engines.answer import CaseCall
from vllm_harness.extras.review.grouping import causes_of
from vllm_harness.extras.review.parting import parting
from vllm_harness.extras.review.verdict import Message, Named, Part, Review, ShownFailure, Step, verdict_of

TEXT = '<tool_call>\n{"name": "f", "arguments": {"city": "Paris"}}\n</tool_call>'
HERMES = "tool_parsers/hermes_tool_parser.py"


def failure(family: str = "hermes", case: str = "call", came: str = '{"city": "Paris"}}\n<') -> ShownFailure:
    """A failure of a call that is streamed in two chunks."""
    expected = Message(calls=(("f", '{"city": "Paris"}'),))
    steps = (
        Step(
            text=TEXT[:-11],
            calls=(CaseCall(index=0, name="f", arguments=""), CaseCall(index=0, name=None, arguments=came)),
        ),
        Step(text=TEXT[-11:]),
    )
    actual = Message(calls=(("f", came),))
    return ShownFailure(
        family=family,
        group="chunks",
        case=case,
        delivery="every_cut, 12",
        mismatch="arguments_not_json",
        title="the arguments are not valid JSON",
        severity="broken output",
        standard="the first delivery",
        text=TEXT,
        steps=steps,
        expected=expected,
        actual=actual,
        parting=parting(expected, actual, steps),
        command=f"vllm-harness regression --vllm tree:/v --parsers {family} --cases chunks --only {case}",
    )


def lost(family: str = "hermes", case: str = "two calls") -> ShownFailure:
    """A failure of another kind, which is worse, in an answer that is not streamed."""
    expected, actual = Message(content="Hello."), Message(content="Hell.")
    return failure(family, case).model_copy(
        update={
            "delivery": "whole",
            "mismatch": "text_differs:lost",
            "title": "the text differs: lost",
            "severity": "wrong data",
            "steps": (),
            "expected": expected,
            "actual": actual,
            "parting": parting(expected, actual),
        }
    )


def review(
    *failures: ShownFailure, not_judged: tuple[Named, ...] = (), flaky: tuple[str, ...] = ()
) -> Review:
    """A review that found these failures in parsers that run in process."""
    part = Part(
        name="parsers in process", judged=300, regressed=len(failures), fixed=2, flaky=flaky, seconds=50
    )
    verdict, code = verdict_of((part,), not_judged)
    return Review(
        verdict=verdict,
        exit_code=code,
        base="revision 80fb965cd",
        head="tree vllm 0.32.0",
        files=(HERMES,),
        parts=(part,),
        causes=causes_of(failures, lambda _: (HERMES,)),
        not_judged=not_judged,
        not_run=(Named(what="csrc/a.cu", reason="the harness builds no vLLM"),),
        run="/state/reviews/1",
    )
