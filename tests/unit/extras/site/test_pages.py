"""The pages and feeds, before mkdocs builds them."""

from __future__ import annotations

import html
import json
import xml.etree.ElementTree as ET
from pathlib import Path

import markdown
import pytest

from tests.unit.extras.site.samples import HOSTILE, cell, entry, failing, site
from vllm_harness._errors import HarnessError, UsageError
from vllm_harness.extras.site.build import check_links, check_out, site_of
from vllm_harness.extras.site.changes import changes_of
from vllm_harness.extras.site.feed import feeds
from vllm_harness.extras.site.files import files
from vllm_harness.extras.site.pages import pages, rule_addition
from vllm_harness.extras.site.render import code, escaped, fenced, front, marked
from vllm_harness.extras.site.site import Site

ATOM = "{http://www.w3.org/2005/Atom}"


@pytest.fixture(scope="module")
def sample() -> Site:
    """A site on which hermes loses a call, only with 0.32.0."""
    return site(cell("0.31.0"), failing("0.32.0", answer=HOSTILE), title=f"lost {HOSTILE}", actual=HOSTILE)


@pytest.fixture(scope="module")
def written(sample: Site) -> dict[str, str]:
    """The pages of the sample."""
    return dict(pages(sample))


def _html(text: str) -> str:
    return markdown.markdown(text, extensions=["tables"])


@pytest.mark.parametrize(
    "text", [HOSTILE, "1. one", "- one", "# one", "a\n\n    b", "[a][b]", "![x](y)", "a_b_c"]
)
def test_text_is_never_markup(text: str) -> None:
    shown = _html(f"{escaped(text)}")
    assert shown.startswith("<p>")
    inner = shown.removeprefix("<p>").removesuffix("</p>")
    assert "<" not in inner
    assert html.unescape(inner) == " ".join(text.replace("\x1b", "\\x1b").split())


def test_text_in_a_table_and_in_code_is_never_markup() -> None:
    shown = _html(f"| a |\n|---|\n| {code(HOSTILE)} |")
    assert shown.count("<td>") == 1
    assert "<script" not in shown
    assert "<em>" not in shown


def test_fence_is_longer_than_those_in_the_text() -> None:
    assert fenced("```` a", "json").startswith("`````json\n")


def test_backticks_mark_code() -> None:
    assert marked("set `a` to b") == "set <code>a</code> to b"


def test_front_matter_is_one_escaped_line() -> None:
    assert json.loads(front('a: "b"\n---\n<i>')) == "a: &quot;b&quot; --- &lt;i&gt;"


def test_answers_are_escaped_on_all_pages(written: dict[str, str]) -> None:
    bodies = [text.split("\n---\n", 1)[1] for text in written.values()]
    assert all("<script" not in text for text in written.values())
    assert all("](javascript" not in body for body in bodies)
    assert any("alert(1)" in body for body in bodies)


def test_broken_links(sample: Site, written: dict[str, str]) -> None:
    known = {f"{path.removesuffix('.md')}.html" for path in written}
    manual = {"manual.html", "rules/index.html", "how-to/parser-regression.html"}
    addresses = {*known, *manual, *dict(files(sample)), *dict(feeds(sample, ""))}
    check_links(written, addresses)
    with pytest.raises(HarnessError, match=r"broken link: .*0\.31\.0"):
        check_links(written, addresses - {"releases/0.31.0.html"})


def test_family_page(written: dict[str, str]) -> None:
    page = written["models/hermes.md"]
    assert "--tool-call-parser hermes" in page
    assert "Do not stream." in page
    assert "Use vLLM 0.31.0." in page


def test_family_that_a_release_was_not_run_with() -> None:
    other = cell("0.33.0", family="kimi_k2", tool_parser="kimi_k2")
    written = dict(pages(site(cell("0.32.0"), other)))
    assert written["index.md"].count("not measured</span>") == 2


def test_changes_of_a_release(sample: Site) -> None:
    changes = changes_of(sample, "0.32.0")
    assert [(each.feature.value, each.broken) for each in changes.worse] == [("several tokens a step", 1)]
    assert not changes.better
    back = changes_of(site(failing("0.31.0"), cell("0.32.0")), "0.32.0")
    assert [(each.feature.value, each.fixed) for each in back.better] == [("several tokens a step", 1)]


def test_rule_page_names_its_defects() -> None:
    sample = site(cell(), deviations=[{"code": "CC110", "path": "$.choices"}])
    assert "../defects/hermes-loses-a-call.html" in rule_addition(sample, "CC110")
    assert rule_addition(sample, "CC111") == ""


def test_script_uses_a_delivery_that_shows_the_defect() -> None:
    sample = site(failing("0.32.0", {"tokens_3": ("call_lost",)}))
    exported = sample.exported["hermes-loses-a-call"]
    compile(exported.files.script, "reproduce.py", "exec")
    assert "--stream-interval" in exported.files.script
    assert exported.shown_on == "0.32.0"


def test_no_script_for_a_delivery_that_no_server_has() -> None:
    assert not site(failing("0.32.0", {"every_cut": ("call_lost",)})).exported


def test_table_as_json(sample: Site) -> None:
    document = json.loads(dict(files(sample))["compatibility.json"])
    several = document["families"]["hermes"]["versions"]["0.32.0"]["features"]["several tokens a step"]
    assert several["state"] == "broken"
    assert several["defects"] == ["hermes-loses-a-call"]
    assert document["families"]["hermes"]["page"] == "models/hermes.html"


def test_feeds(sample: Site) -> None:
    trees = {path: ET.fromstring(text) for path, text in feeds(sample, "https://example.org/")}
    assert trees.keys() == {"feed.xml", "models/hermes.xml"}
    (item,) = trees["models/hermes.xml"].findall(f"{ATOM}entry")
    assert item.findtext(f"{ATOM}updated") == "2026-11-21T00:00:00Z"
    link = item.find(f"{ATOM}link")
    assert link is not None
    assert link.get("href") == "https://example.org/defects/hermes-loses-a-call.html"
    ids = [each.findtext(f"{ATOM}id") for each in trees["feed.xml"].findall(f"{ATOM}entry")]
    assert len(ids) == len(set(ids))


def test_feed_id_changes_with_the_content() -> None:
    one, other = (dict(feeds(site(cell(), actual=text), "")) for text in ("a", "b"))
    assert one["models/hermes.xml"] != other["models/hermes.xml"]


def test_folder_with_other_files_is_refused(tmp_path: Path) -> None:
    check_out(tmp_path)
    (tmp_path / "precious.txt").write_text("mine")
    with pytest.raises(UsageError, match="do not belong to an earlier site"):
        check_out(tmp_path)
    (tmp_path / "compatibility.json").write_text("{}")
    check_out(tmp_path)


def test_needs_a_checkout(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr("vllm_harness.extras.site.build.checkout", lambda: None)
    with pytest.raises(UsageError, match="checkout"):
        check_out(tmp_path)


def test_defect_without_a_run_has_a_page() -> None:
    """A defect that no regression run shows, only a server, has a page as well."""
    defect = entry(failures=[])
    assert "defects/hermes-loses-a-call.md" in dict(pages(site_of([], [], {defect.id: defect})))
