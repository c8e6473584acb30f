"""What a review says: the verdict, the failures by cause and kind, and every format."""

from __future__ import annotations

import json
from datetime import date
from pathlib import Path

import jsonschema
import pytest

from tests.unit.extras.review.reviews import HERMES, failure, lost, review
from vllm_harness._errors import UsageError
from vllm_harness._regression.cases.case import GROUPS
from vllm_harness._regression.engines.plan import DELIVERIES
from vllm_harness.cli.regression_options import GROUPS_OF_A_CHANGE
from vllm_harness.extras.review.accepted import divided, read_accepted
from vllm_harness.extras.review.both_sides import QUICKEST_FIRST
from vllm_harness.extras.review.grouping import causes_of
from vllm_harness.extras.review.outputs import comment, github_annotations, schema_text
from vllm_harness.extras.review.parting import parting
from vllm_harness.extras.review.show import headline, review_text
from vllm_harness.extras.review.verdict import Message, Named, Review, Step

TODAY = date(2026, 11, 29)
UNREACHABLE = Named(what="hermes", reason="its tokenizer cannot be fetched")


def test_a_change_runs_every_group_that_runs_in_process() -> None:
    assert {*GROUPS_OF_A_CHANGE.split(",")} == {*DELIVERIES["in-process"]} - {"cost"}
    assert sorted(QUICKEST_FIRST) == sorted(GROUPS)


@pytest.mark.parametrize(
    ("made", "verdict", "code"),
    [
        (review(), "fixed", 0),
        (review(failure()), "regressed", 1),
        (review(not_judged=(UNREACHABLE,)), "could not be judged", 3),
        (review(failure(), not_judged=(UNREACHABLE,)), "regressed", 1),
    ],
)
def test_there_is_one_verdict(made: Review, verdict: str, code: int) -> None:
    assert (made.verdict, made.exit_code) == (verdict, code)
    assert review_text(made).splitlines()[-1].startswith(f"verdict: {verdict} (")


def test_flaky_cases_are_counted() -> None:
    assert headline(review(flaky=("hermes, canonical, call",))).endswith(", 1 flaky; not everything ran)")


def test_wrong_answers_that_change_are_named() -> None:
    made = review()
    part = made.parts[0].model_copy(update={"otherwise": ("hermes, malformed, no end",)})
    shown = review_text(made.model_copy(update={"parts": (part,)}))
    assert "with other answers:\n  hermes, malformed, no end\n" in shown
    assert shown.splitlines()[-1] == (
        "verdict: fixed (0 regressed, 2 fixed, 297 unchanged, 1 wrong in another way; not everything ran)"
    )


def test_kinds_are_grouped_the_worst_first() -> None:
    failures = [failure(), failure("longcat"), failure("longcat", "long call"), lost()]
    files = {"hermes": (HERMES,), "longcat": (HERMES,), "step3": ("b.py",)}
    (cause,) = causes_of(failures, lambda family: files[family])
    assert [(kind.mismatch, kind.cases) for kind in cause.kinds] == [
        ("text_differs:lost", {"hermes": 1}),
        ("arguments_not_json", {"longcat": 2, "hermes": 1}),
    ]
    assert cause.cases == 4
    causes = causes_of([*failures, lost("step3")], lambda family: files[family])
    assert [cause.files for cause in causes] == [(HERMES,), ("b.py",)]


def test_the_text_explains_a_failure() -> None:
    shown = review_text(review(failure(), failure("longcat")))
    for line in (
        "1. the arguments are not valid JSON (broken output): 2 cases",
        "it arrives in two chunks, cut after token 12",
        "expected, as when the answer is not streamed:",
        'call 0: f {"city": "Paris"}',
        r'call 0: f {"city": "Paris"}}\n<',
        "they part in call 0: arguments, from chunk 1 on:",
        "All cases: hermes 1, longcat 1",
    ):
        assert line in shown
    long = [line for line in shown.splitlines() if len(line) > 80 and "vllm-harness regression" not in line]
    assert long == []


def test_a_long_stream_shows_the_chunks_around_the_fault() -> None:
    first = failure()
    steps = (*([first.steps[1].model_copy(update={"text": "x"})] * 40), *first.steps)
    long = first.model_copy(update={"steps": steps, "parting": parting(first.expected, first.actual, steps)})
    shown = review_text(review(long))
    assert "from chunk 41 on" in shown
    assert "... 36 chunks before, all right so far" in shown
    assert " > 41 " in shown


@pytest.mark.parametrize(
    ("expected", "actual", "where", "rest"),
    [
        (Message(content="ab"), Message(content="a"), "text", ("b", "")),
        (Message(content="a <\n"), Message(content="a \n"), "text", ("<\n", "\n")),
        (Message(content="\na\n"), Message(content="a"), None, None),
        (Message(reasoning="r"), Message(content="r"), "reasoning", ("r", "")),
        (Message(calls=(("f", "{}"),)), Message(calls=(("g", "{}"),)), "call 0: name", ("f", "g")),
        (Message(calls=(("f", "{}"),)), Message(), "call 0: name", ("f", "")),
        (Message(), Message(calls=(("f", "{}"),)), "call 0: name", ("", "f")),
        (Message(calls=(("f", '{"a":1}'),)), Message(calls=(("f", '{"a": 1}'),)), None, None),
    ],
)
def test_where_answers_part(
    expected: Message, actual: Message, where: str | None, rest: tuple[str, str] | None
) -> None:
    found = parting(expected, actual)
    assert (found and found.where) == where
    assert (found and (found.expected, found.actual)) == rest


def test_the_chunk_that_lacks_a_character_is_wrong() -> None:
    steps = [Step(text=text, content=text) for text in ("a ", "\nb", "")]
    found = parting(Message(content="a <\nb"), Message(content="a \nb"), steps)
    assert found
    assert found.chunk == 2


def test_a_comment_shows_less_than_60_lines() -> None:
    kinds = [failure().model_copy(update={"mismatch": f"error:{number}"}) for number in range(12)]
    text = comment(review(lost(), *kinds))
    visible, folded = [], 0
    for line in text.splitlines():
        folded += line.startswith("<details")
        if not folded:
            visible.append(line)
        folded -= line.endswith("</details>")
    assert folded == 0
    assert len(visible) < 60
    assert "**1. the text differs: lost: 1 with tool_parsers/hermes_tool_parser.py**" in visible
    assert "7 more kinds of failures are in the results." in visible


def test_json_fits_its_schema() -> None:
    made = review(failure(), lost(), not_judged=(UNREACHABLE,))
    jsonschema.validate(json.loads(made.model_dump_json()), json.loads(schema_text()))


def test_an_annotation_is_at_the_changed_file() -> None:
    first, *_, last = github_annotations(review(failure())).splitlines()
    assert first.startswith(f"::error file=vllm/{HERMES},title=the arguments are not valid JSON")
    assert last.startswith("::notice::verdict: regressed")


ACCEPTED = """\
accepted:
  - families: [hermes]
    mismatches: [arguments_not_json]
    reason: our clients repair JSON
    date: 2026-11-01
    until: 2026-12-31
"""


def test_accepted_regressions_do_not_count(tmp_path: Path) -> None:
    (tmp_path / "accepted.yaml").write_text(ACCEPTED)
    entries = read_accepted(tmp_path / "accepted.yaml")
    failures = [failure(), failure("longcat"), lost()]
    counting, living = divided(failures, entries, TODAY)
    assert counting == [failure("longcat"), lost()]
    assert [each.reason for each in living] == ["our clients repair JSON (2026-11-01)"]
    assert divided(failures, entries, date(2027, 1, 1)) == (failures, [])


@pytest.mark.parametrize("removed", ["reason", "date"])
def test_an_accepted_regression_needs_a_reason_and_a_date(tmp_path: Path, removed: str) -> None:
    lines = [line for line in ACCEPTED.splitlines() if f"    {removed}:" not in line]
    (tmp_path / "accepted.yaml").write_text("\n".join(lines))
    with pytest.raises(UsageError, match=removed):
        read_accepted(tmp_path / "accepted.yaml")
