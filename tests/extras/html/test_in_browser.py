"""Uses the HTML page about runs in a real browser."""

from __future__ import annotations

import ast
import json
import re
import shlex
from pathlib import Path
from typing import Any

import pytest

from tests.extras.html.conftest import Open
from tests.extras.html.generated import DEFECT, request_of, write_run
from vllm_harness._runs.folder import RunWriter
from vllm_harness._runs.records import (
    Arrival,
    CaseRecord,
    ExchangeRecord,
    Header,
    Kind,
    LogLines,
    Outcome,
    Piece,
    RunFinding,
    TargetRecord,
)
from vllm_harness.extras.html.page import write

CLIPBOARD = {"permissions": ["clipboard-read", "clipboard-write"]}
HOSTILE = '</script><script>window.harmed = 1</script><img src=x onerror="window.harmed = 1">'


def count(page: Any, chip: str) -> int:
    """The number shown on an outcome chip."""
    return int(page.locator(f".chip.{chip} b").inner_text().replace(",", ""))


def cases_left(page: Any) -> int:
    return int(page.locator(".views .count").first.inner_text().replace(",", ""))


def test_matrix_and_cases(opened: Open, one: Path) -> None:
    page = opened(one)
    assert page.locator("h1").inner_text().startswith("nightly")
    assert page.locator(".matrix tbody tr").count() == 4
    total = sum(count(page, outcome) for outcome in ("finding", "known", "passed", "skipped"))
    assert total == cases_left(page) == 160
    assert count(page, "finding") > 0


def test_filter(opened: Open, one: Path) -> None:
    page = opened(one)
    known = count(page, "known")
    page.click(".chip.known")
    assert cases_left(page) == known
    assert page.locator(".case").count() == page.locator(".case.known").count() > 0
    page.fill("input[type=search]", f"{DEFECT} qwen3")
    left = cases_left(page)
    assert 0 < left < known
    page.reload()
    page.wait_for_selector(".case")
    assert cases_left(page) == left
    page.fill("input[type=search]", "no case has this")
    page.wait_for_selector(".nothing")
    page.keyboard.press("Escape")  # the first Escape clears the text, the next one the other filters
    assert cases_left(page) == known
    page.keyboard.press("Escape")
    assert cases_left(page) == 160


def test_two_clicks_from_the_matrix_to_an_event(opened: Open, one: Path) -> None:
    page = opened(one)
    page.locator(".matrix td:not(.all) .cell.finding").first.click()
    if not page.locator(".case-view").count():
        page.locator(".case.finding").first.click()
    assert page.locator(".case-head .sign.finding").is_visible()
    code = page.locator(".finding-card .code").first.inner_text()
    assert page.locator(f'.event-finding:has-text("{code}")').first.is_visible()
    assert page.locator(".json .marked").first.is_visible()
    assert page.locator(".flag.finding").count() >= 1
    jump = page.locator(".finding-card button").last
    number = jump.inner_text().removeprefix("Go to event ")
    jump.click()
    assert page.locator(".event.chosen .event-number").inner_text() == number
    assert page.locator(".one-event h4").inner_text().startswith(f"Event {number}")


def test_case(opened: Open, one: Path) -> None:
    page = opened(one, address="#outcome=known")
    page.locator(".case").first.click()
    page.wait_for_selector(".part")
    text = page.locator("main").inner_text()
    assert f"vllm-harness repro {DEFECT}" in text
    assert "A Chat body on Harmony" in text
    assert "POST /v1/" in text
    assert "The tool call could not be parsed." in text
    assert "--tool-call-parser hermes" in text
    assert page.locator(".tokens").first.inner_text().startswith("<think>")
    assert page.locator(".tokens .token").count() > 100


def test_stream_is_compared_with_the_body(opened: Open, one: Path) -> None:
    page = opened(one, address="#outcome=finding&q=responses")
    page.locator(".case").first.click()
    page.click('button:has-text("Streamed and not streamed")')
    marked = page.locator(".diff mark").all_inner_texts()
    assert any("\\\\u00fc" in each or "u00fc" in each for each in marked)
    folds = page.locator(".fold").count()
    page.locator(".fold").first.click()
    assert page.locator(".fold").count() == folds - 1


def test_comparison_of_two_runs(opened: Open, two: Path) -> None:
    page = opened(two)
    worse = count(page, "worse")
    page.click(".chip.worse")
    assert cases_left(page) == worse > 0
    assert page.locator(".case .sign.worse").count() == page.locator(".case").count()
    page.locator(".case").first.click()
    assert page.locator('.switch [aria-pressed="true"]').inner_text().startswith("Now")
    page.click('.switch button:has-text("Before")')
    page.wait_for_selector(".case-head.passed, .case-head.known")
    assert "0.31.0" in page.locator(".case-about").inner_text()


def test_copied_texts_can_be_run(opened: Open, one: Path) -> None:
    page = opened(one, address="#outcome=finding&q=test_responses", **CLIPBOARD)
    page.locator(".case").first.click()

    def copied(label: str) -> str:
        button = page.locator(f'button.copy:has-text("{label}")')
        button.click()
        page.wait_for_selector(".copy.done")
        text: str = page.evaluate("navigator.clipboard.readText()")
        return text

    request = json.loads(shlex.split(copied("Copy curl"))[-1])
    assert request == request_of("responses", request["model"], True)
    program = ast.parse(copied("Copy Python"))
    [body] = [node for node in program.body if isinstance(node, ast.Assign)]
    assert ast.literal_eval(body.value) == request
    report = copied("Copy upstream report")
    assert report.startswith("# item_id is not the id of the item")
    assert "| `" not in report.splitlines()[0]
    assert "## RS204" in report
    assert "vllm serve" in report


def test_use_by_keyboard(opened: Open, one: Path) -> None:
    page = opened(one)
    keys = page.keyboard
    keys.press("/")
    keys.type("kept")
    assert 0 < cases_left(page) < 160
    keys.press("Escape")
    assert cases_left(page) == 160
    page.locator(".cell").first.focus()
    keys.press("ArrowDown")
    keys.press("ArrowRight")
    assert page.evaluate("document.activeElement.dataset.at") == "1-1"
    keys.press("Home")
    keys.press("Enter")
    assert page.locator('.cell[aria-pressed="true"]').count() == 1
    keys.press("Escape")
    page.locator(".case").first.focus()
    for _ in range(30):
        keys.press("ArrowDown")
    page.wait_for_selector('.case[data-index="30"]:focus')
    name = page.evaluate("document.activeElement.querySelector('bdi').textContent")
    keys.press("Enter")
    assert page.locator("h2").inner_text() == name
    keys.press("j")
    page.wait_for_selector(".place:text-is('32 of 160')")
    assert page.locator("h2").inner_text() != name
    keys.press("k")
    page.wait_for_selector(".place:text-is('31 of 160')")
    assert page.locator("h2").inner_text() == name
    keys.press("Escape")
    page.wait_for_selector('.case[data-index="30"]:focus')


def test_events_by_keyboard(opened: Open, one: Path) -> None:
    page = opened(one, address="#outcome=finding")
    page.locator(".case").first.click()
    page.locator(".events").focus()
    page.keyboard.press("Home")
    assert page.locator(".event.chosen .event-number").inner_text() == "0"
    page.keyboard.press("End")
    last = page.locator(".event.chosen .event-number").inner_text()
    events = re.search(r"(\d+) events", page.locator(".events").get_attribute("aria-label"))
    assert events
    assert int(last) == int(events[1]) - 1


@pytest.mark.parametrize(("width", "theme"), [(1280, "light"), (400, "dark")])
def test_accessibility_and_width(opened: Open, one: Path, two: Path, width: int, theme: str) -> None:
    axe = pytest.importorskip("axe_playwright_python.sync_playwright").Axe()
    for path, address in (
        (one, ""),
        (two, ""),
        (one, "#view=defects"),
        (two, "#view=charts"),
        (two, "#view=run"),
    ):
        page = opened(path, width=width, theme=theme, address=address)
        result = axe.run(page)
        assert not result.response["violations"], result.generate_report()
        assert page.evaluate("document.documentElement.scrollWidth") <= width
        if not address:
            page.locator(".case.finding").first.click()
            page.wait_for_selector(".part")
            result = axe.run(page)
            assert not result.response["violations"], result.generate_report()
            assert page.evaluate("document.documentElement.scrollWidth") <= width


def test_only_visible_cases_are_drawn(opened: Open, tmp_path: Path) -> None:
    run = write_run(tmp_path / "run", targets=8, cases=3000, failing=0.001, recorded=0.0)
    page = opened(write([run], tmp_path / "page.html"))
    assert cases_left(page) == 3000
    assert page.locator(".case").count() < 100
    page.evaluate("scrollTo(0, document.body.scrollHeight)")
    page.wait_for_selector('.case[data-index="2999"]')
    assert page.locator(".case").count() < 100


def _hostile_run(folder: Path) -> Path:
    huge = "x" * 10_000_000
    finding = RunFinding(
        message=HOSTILE, path=HOSTILE, expected=HOSTILE, actual=HOSTILE, exchange="1", event_index=0
    )
    exchange = ExchangeRecord(
        id="1",
        target="t",
        case="c",
        method="POST",
        path=HOSTILE,
        at=1.0,
        headers={HOSTILE: HOSTILE},
        request={HOSTILE: HOSTILE},
        status=200,
        answer_headers={HOSTILE: HOSTILE},
        answer=HOSTILE,
        stream=(
            Arrival(
                after=0.1,
                text=f"event: {HOSTILE}\ndata: {json.dumps({'type': HOSTILE, 'delta': HOSTILE})}\n\n",
            ),
            Arrival(after=0.2, text=f"data: {HOSTILE}\n\ndata: {huge}\n\n"),
        ),
        prompt=(Piece(ids=(1,), text=HOSTILE),),
        output=(Piece(ids=(1,), text=HOSTILE), Piece(ids=(2,), text=huge)),
        error=HOSTILE,
    )
    case = CaseRecord(
        id="c",
        target="t",
        group=HOSTILE,
        title=HOSTILE,
        covers=(HOSTILE,),
        outcome=Outcome.FINDING,
        defects=(HOSTILE,),
        reason=HOSTILE,
        details=HOSTILE,
        findings=(finding,),
    )
    with RunWriter.begin(
        folder, Header(kind=Kind.SUITES, name=HOSTILE, command=(HOSTILE,), started=1.0)
    ) as writer:
        writer.write(TargetRecord(id="t", title=HOSTILE, vllm=HOSTILE, command=(HOSTILE,)))
        writer.write(exchange)
        writer.write(LogLines(target="t", case="c", source=HOSTILE, lines=(HOSTILE, huge)))
        writer.write(case)
    return folder


def test_hostile_answers(opened: Open, tmp_path: Path) -> None:
    path = write([_hostile_run(tmp_path / "run")], tmp_path / "page.html")
    assert path.stat().st_size < 1_000_000
    page = opened(path)
    for view in ("", "#view=defects", "#view=run"):
        page.goto(f"file://{path}{view}")
        page.reload()
        page.wait_for_selector("main")
    page.goto(f"file://{path}")
    page.locator(".case").first.click()
    page.wait_for_selector(".part")
    page.locator(".event").nth(2).click()
    assert HOSTILE in page.locator("main").inner_text()
    assert "10,000,000 characters in total" in page.locator("main").inner_text()
    assert page.locator("main script, main img").count() == 0
    assert page.evaluate("window.harmed") is None


def test_only_the_script_of_the_page_runs(browser: Any, one: Path) -> None:
    page = browser.new_page()
    page.goto(f"file://{one}")
    page.wait_for_selector("main")
    page.evaluate(
        "() => { const s = document.createElement('script'); s.textContent = 'window.harmed = 1';"
        " document.body.append(s); }"
    )
    assert page.evaluate("window.harmed") is None
    page.close()
