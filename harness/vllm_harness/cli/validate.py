"""`vllm-harness validate` and `explain`: the protocol's findings over recorded streams and bodies."""

from __future__ import annotations

import sys
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer

from vllm_harness.errors import UsageError
from vllm_harness.terminal.printable import printable


class Format(StrEnum):
    """How findings are written."""

    TEXT = "text"
    JSON = "json"
    SARIF = "sarif"
    GITHUB = "github"


def validate(
    files: Annotated[
        list[str], typer.Argument(help="Captures: .sse, .jsonl, .json, cassettes, or - for stdin.")
    ],
    format: Annotated[Format, typer.Option(help="How findings are written.")] = Format.TEXT,
    select: Annotated[str, typer.Option(help="Only these codes or beginnings of codes, by commas.")] = "",
    ignore: Annotated[str, typer.Option(help="Not these codes or beginnings of codes, by commas.")] = "",
    api: Annotated[
        str, typer.Option(help="responses, chat or messages; judged by the content where not given.")
    ] = "",
) -> None:
    """Check recorded streams and bodies; exit 0 when clean, 1 with errors or warnings, 2 on bad input.

    Bad input is also a file in which there is nothing to check. The other files are still reported.
    """
    from vllm_harness.protocol.captures import check_not_empty, read_capture, validate_capture
    from vllm_harness.protocol.errors import ProtocolInputError
    from vllm_harness.protocol.formats import FORMATS, Placed

    if api not in ("", "responses", "chat", "messages"):
        raise UsageError(f"--api {api!r} is neither responses, chat nor messages")
    wanted, unwanted = _codes(select), _codes(ignore)
    found: list[Placed] = []
    bad: list[ProtocolInputError] = []
    known: Any = api or None
    for file in files:
        try:
            capture = read_capture(file)
            check_not_empty(capture, api=known)
        except ProtocolInputError as error:
            bad.append(error)
            continue
        for line, finding in validate_capture(capture, api=known):
            if finding.code.startswith(wanted or ("",)) and not finding.code.startswith(unwanted):
                found.append(Placed(capture.source, line, finding))
    if len(bad) < len(files):
        _write(FORMATS[format](found))
    if bad:
        raise bad[0] if len(bad) == 1 else UsageError("\n".join(map(str, bad)))
    if any(placed.finding.counts for placed in found):
        raise typer.Exit(1)


def explain(
    code: Annotated[str, typer.Argument(help="A code; all of them are listed where none is given.")] = "",
    write: Annotated[Path | None, typer.Option(help="Write the pages of all rules into this folder.")] = None,
) -> None:
    """Print the page of a rule: what it finds, why, a bad and a good example."""
    from vllm_harness.protocol.explain import page, pages
    from vllm_harness.protocol.rules import RULES

    if write is not None:
        write.mkdir(parents=True, exist_ok=True)
        for name, text in pages().items():
            (write / name).write_text(text)
        return
    if not code:
        _write("\n".join(f"{rule.code} {rule.severity:7} {rule.title}" for rule in RULES.values()))
        return
    rule = RULES.get(code.upper())
    if rule is None:
        raise UsageError(f"no rule has the code {code!r}", hint="vllm-harness explain lists all codes")
    _write(page(rule))


def _codes(text: str) -> tuple[str, ...]:
    """The codes of an option, each known or the beginning of a known one.

    Raises:
        UsageError: one is neither.
    """
    from vllm_harness.protocol.rules import RULES

    codes = tuple(part.strip().upper() for part in text.split(",") if part.strip())
    for code in codes:
        if not any(known.startswith(code) for known in RULES):
            raise UsageError(f"no code begins with {code!r}", hint="vllm-harness explain lists all codes")
    return codes


def _write(text: str) -> None:
    """Prints text that may hold what the terminal cannot say, or would obey."""
    encoding = sys.stdout.encoding or "utf-8"
    typer.echo(printable(text).encode(encoding, "backslashreplace").decode(encoding))
