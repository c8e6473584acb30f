"""`vllm-harness models dialects`: lists the dialects, and compares them with the templates of vendors."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import typer

from vllm_harness._errors import UsageError
from vllm_harness._regression.selection import select_families
from vllm_harness._scripted.dialects import load_dialects
from vllm_harness._scripted.families import Family
from vllm_harness._terminal.status import shown
from vllm_harness._terminal.tables import plain_console, show_table
from vllm_harness.extras.templates.check import DialectCheck, checked
from vllm_harness.extras.templates.growth import grown

HEADINGS = ("family", "dialect", "template", "provenance", "verified", "differences")


def dialects(
    check: bool = False,
    growth: bool = False,
    parsers: str = "",
    chat_template: Path | None = None,
    json_: bool = False,
) -> None:
    """List the dialects, each with the source of its format.

    --check compares what the dialect of each family renders with what the chat
    template of its vendor writes. The exit code is 1 if they differ in a way
    that has no name yet. --growth shows the turns after which the next prompt
    does not begin with the last prompt and its answer.
    """
    if growth:
        _show_growth(select_families(parsers, ""), json_)
        return
    if not check:
        _list(json_)
        return
    if chat_template is not None and not (parsers and chat_template.is_file()):
        raise UsageError(
            f"--chat-template {chat_template} is not a file" if parsers else "--chat-template has no family",
            hint="name a template in Jinja" if parsers else "name the family of the template by --parsers",
        )
    with shown() as progress:
        results = checked(select_families(parsers, ""), chat_template, progress=progress)
    if json_:
        print(json.dumps([result.as_json() for result in results], indent=2, ensure_ascii=False))
    else:
        _show(results)
    if any(result.new for result in results):
        raise typer.Exit(1)


def _show_growth(families: Sequence[Family], json_: bool) -> None:
    with shown() as progress:
        found = grown(families, progress)
    if json_:
        print(json.dumps([each.as_json() for each in found], indent=2, ensure_ascii=False))
        return
    headings = ("family", "kept", "breaks at", "line", "the model wrote", "the template shows")
    rows = []
    for each in found:
        kept = f"{len(each.kept)} of {len(each.kept) + len(each.breaks)}"
        rows += [
            (each.family, kept, at.shape, str(at.line or "-"), repr(at.answered), repr(at.shown))
            for at in each.breaks
        ] or [(each.family, kept, "-", "", "", "")]
    show_table(plain_console(), headings, rows)
    print(f"{sum(not each.breaks for each in found)} of {len(found)} families keep every turn")


def _list(json_: bool) -> None:
    rows = [(dialect.name, dialect.source) for dialect in load_dialects().values()]
    if json_:
        print(json.dumps([{"dialect": name, "source": source} for name, source in rows], indent=2))
    else:
        show_table(plain_console(), ("dialect", "format"), rows)


def _show(results: Sequence[DialectCheck]) -> None:
    rows = [
        (
            result.family,
            result.dialect,
            result.template or "-",
            result.provenance or "-",
            "yes" if result.verified else "unverified",
            ", ".join(each.name for each in result.differences if each.reason),
        )
        for result in results
    ]
    show_table(plain_console(), HEADINGS, rows)
    for result in results:
        for each in result.new:
            place = f", line {each.line} of {result.template}" if each.line else f", {result.template}"
            print(f"{result.family}{place}: {each.name}")
        if result.spelled:
            print(f"{result.family}: its tokenizer spells {' '.join(result.spelled)} in several tokens")
    verified = [result for result in results if result.verified]
    templates = {result.template for result in verified}
    dialects = {result.dialect for result in verified}
    new = sum(len(result.new) for result in results)
    proven = f"{len(dialects)} dialects by {len(templates)} templates"
    print(
        f"{len(verified)} of {len(results)} families are verified, {proven}; {new} differences have no name"
    )
