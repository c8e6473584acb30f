"""Builds the site with mkdocs: the pages and the manual. The same input produces the same bytes."""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import sys
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, time
from pathlib import Path
from typing import Any

import yaml

from vllm_harness._configuration.model_entries import load_models
from vllm_harness._defects.registry import Defects, load_defects
from vllm_harness._defects.repro.run import MeasuredRun
from vllm_harness._defects.repro.verdict import Measured
from vllm_harness._errors import HarnessError, UsageError
from vllm_harness._files.paths import checkout, run_folder
from vllm_harness._files.temporary import temporary_folder
from vllm_harness._machine.processes import run_captured
from vllm_harness._regression.results.cells import Cell, RegressionRun
from vllm_harness._scripted.families import load_families
from vllm_harness.extras.site import feed
from vllm_harness.extras.site.files import files
from vllm_harness.extras.site.pages import pages, rule_addition
from vllm_harness.extras.site.render import address
from vllm_harness.extras.site.scripts import exported
from vllm_harness.extras.site.site import BEGINNING, Site, day_of
from vllm_harness.extras.site.table import compatibility
from vllm_harness.extras.triage.table import Table

HERE = Path(__file__).parent
MARKER = "compatibility.json"
"""A file that every site contains; only a folder that contains it may be replaced."""
MANUAL = "manual.md"
STYLE, SCRIPT = "compatibility.css", "compatibility.js"
_HREF = re.compile(r'<a (?:href="([^"]*)"|id="([^"]*)")')
Say = Callable[[str], None]


@dataclass(frozen=True)
class BuiltSite:
    """The number and size of the files of a site that was built.

    Attributes:
        pages: the number of HTML pages.
        files: the number of files.
        size: the total size in bytes.
    """

    pages: int
    files: int
    size: int


def read_runs(names: Iterable[str]) -> tuple[list[Cell], list[Measured]]:
    """Reads the cells of parser regression runs, and the verdicts of `repro` runs.

    Args:
        names: the names of the runs, or their folders.

    Raises:
        UsageError: a run does not exist, or is empty.
    """
    cells: list[Cell] = []
    verdicts: list[Measured] = []
    for name in names:
        measured = MeasuredRun(run_folder("repro", name))
        if measured.path.is_file():
            verdicts += measured.verdicts().values()
        else:
            cells += RegressionRun.named(name).cells()
    return cells, verdicts


def site_of(cells: Iterable[Cell], verdicts: Iterable[Measured], defects: Defects | None = None) -> Site:
    """The data that the pages are made from. Raises UsageError if a cell is not from a release or a graft."""
    known = load_defects() if defects is None else defects
    table = compatibility(cells, known)
    families, entries = load_families(), tuple(load_models())
    return Site(table, Table.read(), families, entries, dict(exported(table, verdicts)))


def check_out(out: Path) -> None:
    """Raises UsageError if a folder contains anything but an earlier site, or no site can be built here."""
    if checkout() is None:
        raise UsageError(
            "the site includes the manual, which only a checkout of the harness has",
            hint="clone the harness, run scripts/test once, and run the command there",
        )
    if importlib.util.find_spec("material") is None or importlib.util.find_spec("mkdocs") is None:
        raise UsageError(
            "mkdocs-material, which builds the site, is not installed",
            hint="pip install mkdocs-material, or run scripts/docs",
        )
    if out.exists() and not out.is_dir():
        raise UsageError(f"{out} is not a folder", hint="name an empty or a new folder")
    if out.is_dir() and any(out.iterdir()) and not (out / MARKER).is_file():
        raise UsageError(
            f"{out} has files that do not belong to an earlier site",
            hint="name an empty or a new folder",
        )


def build(site: Site, out: Path, url: str = "", say: Say = lambda line: None) -> BuiltSite:
    """Builds the site, and replaces the output folder once the site is complete.

    Args:
        site: the data of the pages.
        out: the output folder.
        url: the address of the site, for its feeds, sitemap and canonical links.
        say: is called with a line about each step.

    Raises:
        HarnessError: mkdocs fails, or a page contains a broken link.
        UsageError: see `check_out`.
    """
    check_out(out)
    root = checkout()
    assert root is not None
    url = url and f"{url.rstrip('/')}/"
    out.parent.mkdir(parents=True, exist_ok=True)
    with temporary_folder(out.parent) as folder:
        staged, built = folder / "staged", folder / "built"
        written = dict(pages(site))
        table = site.table
        say(f"{len(written)} pages of {len(table.families)} families and {len(table.defects)} defects")
        extra = {**dict(files(site)), **dict(feed.feeds(site, url))}
        manual = _stage_manual(site, root, staged / "docs")
        check_links(written, {address(page) for page in (*written, *manual)} | extra.keys())
        _write(staged / "docs", written)
        shutil.copy(HERE / "site.css", staged / "docs" / STYLE)
        shutil.copy(HERE / "site.js", staged / "docs" / SCRIPT)
        (staged / "mkdocs.yml").write_text(yaml.safe_dump(_configuration(site, root, url), sort_keys=False))
        say("building the pages and the manual with mkdocs")
        _mkdocs(staged / "mkdocs.yml", built, _epoch(site))
        _write(built, extra)
        if out.exists():
            shutil.rmtree(out)
        built.replace(out)
    paths = [path for path in out.rglob("*") if path.is_file()]
    html = sum(path.suffix == ".html" for path in paths)
    return BuiltSite(html, len(paths), sum(path.stat().st_size for path in paths))


def _stage_manual(site: Site, root: Path, docs: Path) -> list[str]:
    """Copies the manual, renames its first page, and lists on each rule's page the defects that it finds."""
    shutil.copytree(root / "docs", docs, ignore=shutil.ignore_patterns("hooks", "__pycache__"))
    (docs / "index.md").rename(docs / MANUAL)
    for page in sorted((docs / "rules").glob("*.md")):
        if addition := rule_addition(site, page.stem):
            page.write_text(page.read_text() + addition)
    return [path.relative_to(docs).as_posix() for path in docs.rglob("*.md")]


def _write(folder: Path, texts: Mapping[str, str]) -> None:
    for path, text in texts.items():
        file = folder / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)


def _configuration(site: Site, root: Path, url: str) -> dict[str, Any]:
    """The mkdocs configuration for the site: that of the manual, with some changes."""
    manual = yaml.safe_load((root / "mkdocs.yml").read_text())
    releases = [{version: f"releases/{version}.md"} for version in site.versions]
    navigation: list[Any] = [
        {"Models": "index.md"},
        {"Releases": [{"All releases": "releases/index.md"}, *releases]},
        {"Defects": "defects/index.md"},
        {"Rules": "rules/README.md"},
        {"Manual": _manual_navigation(manual["nav"])},
    ]
    return {
        "INHERIT": str(root / "mkdocs.yml"),
        "site_name": "vLLM compatibility",
        "site_description": "Which vLLM can I trust with my model?",
        "site_url": url,
        "docs_dir": "docs",
        "theme": {
            "custom_dir": str(HERE / "templates" / "theme"),
            "features": [*manual["theme"]["features"], "navigation.tabs"],
        },
        "hooks": [str(root / "docs" / "hooks" / "generated.py")],
        "extra_css": [STYLE],
        "extra_javascript": [SCRIPT],
        "extra": {"generator": False},
        "not_in_nav": "/rules/*\n/defects/*\n/models/*\n/releases/*\n",
        "nav": navigation,
    }


def _manual_navigation(navigation: list[Any]) -> list[Any]:
    """The navigation menu of the manual, without the rules, which have their own tab."""
    return [
        {title: [page for page in pages if page != {"The rules": "rules/README.md"}]}
        if isinstance(pages, list)
        else {title: MANUAL if pages == "index.md" else pages}
        for entry in navigation
        for title, pages in entry.items()
    ]


def check_links(written: Mapping[str, str], addresses: set[str]) -> None:
    """Raises HarnessError, which names the page and the address, if a link between pages is broken."""
    anchors = {
        address(page): {id_ for _, id_ in _HREF.findall(text) if id_} for page, text in written.items()
    }
    for page, text in written.items():
        folder = Path(address(page)).parent
        for href, _ in _HREF.findall(text):
            if not href or href.startswith("https:"):
                continue
            path, _, anchor = href.partition("#")
            target = os.path.normpath(folder / path) if path else address(page)
            if target not in addresses or (anchor and anchor not in anchors.get(target, {anchor})):
                raise HarnessError(
                    f"{page} has a broken link: {href}", hint="report it: this is a bug of the harness"
                )


def _epoch(site: Site) -> int:
    """The build time to pass to mkdocs: the newest date of any defect."""
    newest = max(map(day_of, site.table.defects.values()), default=BEGINNING)
    return int(datetime.combine(newest, time(), UTC).timestamp())


def _mkdocs(configuration: Path, built: Path, epoch: int) -> None:
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet"]
    command += ["--config-file", str(configuration), "--site-dir", str(built)]
    variables = {"SOURCE_DATE_EPOCH": str(epoch), "NO_MKDOCS_2_WARNING": "1", "PYTHONHASHSEED": "0"}
    result = run_captured(*command, env={**os.environ, **variables})
    if result.returncode:
        output = "\n".join((result.stderr or result.stdout).strip().splitlines()[-20:])
        raise HarnessError(
            f"mkdocs cannot build the site:\n{output}", hint="check the manual alone with scripts/docs"
        )
