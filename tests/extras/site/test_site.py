"""The whole site: its files, and the way from a model's page to a workaround in a browser."""

from __future__ import annotations

import xml.etree.ElementTree as ET
from pathlib import Path

import pytest

from tests.extras.site.conftest import Open, build_small
from vllm_harness._errors import UsageError

pytestmark = pytest.mark.vllm_slow
DEFECT = "defects/hermes-loses-a-call.html"


def test_same_input_gives_the_same_bytes(built: Path, tmp_path: Path) -> None:
    build_small(tmp_path / "again")
    first, second = (_bytes(folder) for folder in (built, tmp_path / "again"))
    assert first.keys() == second.keys()
    assert not [path for path in first if first[path] != second[path]]


def test_pages_manual_and_feeds(built: Path) -> None:
    expected = ("index.html", "models/qwen3_coder.html", DEFECT, "releases/0.32.0.html", "rules/CC110.html")
    assert all((built / page).is_file() for page in (*expected, "manual.html", "compatibility.json"))
    for feed in ("feed.xml", "models/qwen3_coder.xml"):
        assert ET.parse(built / feed).getroot().tag == "{http://www.w3.org/2005/Atom}feed"


def test_only_an_earlier_site_is_replaced(built: Path, tmp_path: Path) -> None:
    (tmp_path / "precious.txt").write_text("mine")
    with pytest.raises(UsageError, match="do not belong to an earlier site"):
        build_small(tmp_path)
    assert (tmp_path / "precious.txt").read_text() == "mine"
    (built / "stale.html").write_text("of an earlier build")
    build_small(built)
    assert not (built / "stale.html").exists()


def test_from_a_model_to_a_workaround_in_two_clicks(opened: Open) -> None:
    page = opened("index.html")
    page.fill("#vh-filter", "qwen3-coder")
    assert page.locator("#vh-models tbody tr:visible").count() == 1
    page.click("#vh-models a[href$='#v0.32.0']")
    page.wait_for_selector("h1:has-text('Qwen3-Coder')")
    row = page.locator("tr", has=page.locator("a[href$='hermes-loses-a-call.html']")).first
    assert "Do not stream." in row.inner_text()
    row.locator("a").first.click()
    page.wait_for_selector("h2:has-text('What to do')")
    assert "Do not stream." in page.locator(".vh-ways").inner_text()


def test_filter_without_matches(opened: Open) -> None:
    page = opened("index.html")
    page.fill("#vh-filter", "no-such-model")
    assert page.locator("output").inner_text() == "0 of 1"
    assert page.url.endswith("?filter=no-such-model")


def test_filter_in_the_address(opened: Open) -> None:
    page = opened("index.html?filter=qwen3-coder")
    assert page.locator("#vh-filter").input_value() == "qwen3-coder"
    assert page.locator("output").inner_text() == "1 of 1"
    assert page.locator(".md-search__input").input_value() == ""


@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize("name", ["index.html", "models/qwen3_coder.html", DEFECT, "releases/0.32.0.html"])
def test_narrow_page_does_not_scroll_sideways(opened: Open, name: str, theme: str) -> None:
    page = opened(name, width=400, theme=theme)
    assert page.evaluate("document.documentElement.scrollWidth") <= 400


def test_answers_are_escaped(opened: Open) -> None:
    page = opened(DEFECT)
    page.on("dialog", lambda dialog: pytest.fail(f"a script ran: {dialog.message}"))
    assert page.locator("a[href^='javascript']").count() == 0
    assert "<script>alert(1)</script>" in page.locator("h1").inner_text()
    assert "*a* _b_ &amp;" in page.locator("table code").first.inner_text()


def _bytes(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}
