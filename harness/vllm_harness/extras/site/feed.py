"""Feeds about changes (Atom, RFC 4287), with an entry for each defect and for each release.

The date of an entry is that of the last judgement about its defect, not of the build, so the same input
produces the same bytes. The id of an entry changes with its content, so that feed readers show it again.
"""

from __future__ import annotations

import xml.etree.ElementTree as ET
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import date

from vllm_harness._defects.entry import Defect
from vllm_harness._regression.cases.case import short_digest
from vllm_harness.extras.site.changes import changes_of
from vllm_harness.extras.site.paths import defect_page, model_feed, release_page
from vllm_harness.extras.site.render import address, visible
from vllm_harness.extras.site.site import BEGINNING, Site, day_of, model_name
from vllm_harness.extras.triage.severity import severity_of

MAIN = "feed.xml"
MOST = 100
"""The maximum number of entries in a feed; the newest are kept."""
_ATOM = "http://www.w3.org/2005/Atom"
_TAG = "tag:vllm-harness,2026:"


@dataclass(frozen=True)
class Item:
    """An entry of a feed.

    Attributes:
        id: the id, without the prefix that all ids of the harness share.
        title, summary: plain text.
        page: the path of the page that the entry links to.
        day: the date of the change.
    """

    id: str
    title: str
    summary: str
    page: str
    day: date


def feeds(site: Site, url: str) -> Iterator[tuple[str, str]]:
    """The path and text of each feed: one for the whole site, and one for each family.

    Args:
        site: the data of the site.
        url: the address of the site, ending with a slash; empty for relative links.
    """
    of_defects = {defect.id: _of_defect(defect, site) for defect in site.table.defects.values()}
    items = [*of_defects.values(), *(_of_release(site, version) for version in site.versions)]
    yield MAIN, _atom("Which vLLM can I trust with my model?", MAIN, "index.md", items, url)
    for family in site.shown_families:
        path = model_feed(family.name)
        ids = {defect.id for defect in site.table.defects.values() if family.name in defect.families}
        ids |= {each for measured in site.table.families[family.name].values() for each in measured.shown}
        items = [of_defects[id_] for id_ in sorted(ids)]
        page = path.replace(".xml", ".md")
        yield path, _atom(f"vLLM and {model_name(family)} ({family.name})", path, page, items, url)


def _of_defect(defect: Defect, site: Site) -> Item:
    shown = [version for version in reversed(site.versions) if site.is_known_of(defect, version)]
    versions = f"Shown by vLLM {', '.join(shown)}." if shown else "No measured release shows it."
    summary = f"{defect.kind}, {severity_of(defect)}. {versions} {defect.actual}"
    digest = short_digest([shown, defect.title, defect.actual])
    return Item(f"defect/{defect.id}/{digest}", defect.title, summary, defect_page(defect.id), day_of(defect))


def _of_release(site: Site, version: str) -> Item:
    changes = changes_of(site, version)
    known = [defect for defect in site.table.defects.values() if site.is_known_of(defect, version)]
    better = [f"{change.family} {change.feature.value}" for change in changes.better]
    worse = [f"{change.family} {change.feature.value}" for change in changes.worse]
    parts = [
        f"{len(known)} known defects.",
        f"Fixed: {', '.join(defect.id for defect in changes.gone)}." if changes.gone else "",
        f"New: {', '.join(defect.id for defect in changes.new)}." if changes.new else "",
        f"Better: {', '.join(better)}." if better else "",
        f"Worse: {', '.join(worse)}." if worse else "",
    ]
    summary = " ".join(filter(None, parts))
    day = max(map(day_of, known), default=BEGINNING)
    digest = short_digest(summary)
    return Item(f"release/{version}/{digest}", f"vLLM {version}", summary, release_page(version), day)


def _atom(title: str, path: str, page: str, items: Iterable[Item], url: str) -> str:
    newest = sorted(items, key=lambda item: (item.day, item.id), reverse=True)[:MOST]
    feed = ET.Element("feed", xmlns=_ATOM)
    _text(feed, "title", title)
    _text(feed, "id", f"{_TAG}{path.removesuffix('.xml')}")
    _text(feed, "updated", _moment(max((item.day for item in newest), default=BEGINNING)))
    ET.SubElement(ET.SubElement(feed, "author"), "name").text = "vLLM harness"
    up = "../" * path.count("/")
    ET.SubElement(feed, "link", rel="self", href=f"{url or up}{path}")
    ET.SubElement(feed, "link", href=f"{url or up}{address(page)}")
    for item in newest:
        entry = ET.SubElement(feed, "entry")
        _text(entry, "title", item.title)
        _text(entry, "id", f"{_TAG}{item.id}")
        _text(entry, "updated", _moment(item.day))
        ET.SubElement(entry, "link", href=f"{url or up}{address(item.page)}")
        _text(entry, "summary", item.summary)
    ET.indent(feed)
    return f"<?xml version='1.0' encoding='utf-8'?>\n{ET.tostring(feed, encoding='unicode')}\n"


def _text(parent: ET.Element, name: str, text: str) -> None:
    ET.SubElement(parent, name).text = " ".join(visible(text).split())


def _moment(day: date) -> str:
    return f"{day.isoformat()}T00:00:00Z"
