"""`vllm-harness validate`: checks recorded streams and bodies, and explains the findings."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated, Literal

import typer

from vllm_harness._errors import UsageError
from vllm_harness._terminal.tables import printable

_HINT = "`vllm-harness validate explain` lists all codes"


class FindingFormat(StrEnum):
    """The formats in which findings are written."""

    TEXT = "text"
    JSON = "json"
    SARIF = "sarif"
    GITHUB = "github"


def validate(
    files: Annotated[
        list[str],
        typer.Argument(
            help="The captures: .sse, .jsonl or .json files, cassettes, .har, or - for standard input."
        ),
    ],
    format: FindingFormat = FindingFormat.TEXT,
    select: str = "",
    ignore: str = "",
    api: Literal["responses", "chat", "messages"] | None = None,
) -> None:
    """Check recorded streams and bodies against the rules of their API.

    Without --api, the API is detected from the content of each file. The exit
    code is 0 if there are no errors or warnings, 1 if there are, and 2 if a
    file cannot be read or contains nothing to check; the findings in the other
    files are still printed.
    """
    from vllm_harness._cassettes import reading
    from vllm_harness._protocol.captures import check_not_empty, read_capture, validate_capture
    from vllm_harness._protocol.formats import FORMATS, PlacedFinding

    selected, ignored = _codes(select), _codes(ignore)
    findings: list[PlacedFinding] = []
    errors: list[UsageError] = []
    for file in files:
        try:
            capture = reading.read(Path(file)).capture if reading.is_cassette(file) else read_capture(file)
            check_not_empty(capture, api=api)
        except UsageError as error:
            errors.append(error)
            continue
        for line, finding in validate_capture(capture, api=api):
            if finding.code.startswith(selected or ("",)) and not finding.code.startswith(ignored):
                findings.append(PlacedFinding(capture.source, line, finding))
    if len(errors) < len(files):
        typer.echo(printable(FORMATS[format](findings)))
    if errors:
        raise errors[0] if len(errors) == 1 else UsageError("\n".join(map(str, errors)))
    if any(placed.finding.counts for placed in findings):
        raise typer.Exit(1)


def explain(
    code: Annotated[str, typer.Argument(help="The code of a rule; by default all codes are listed.")] = "",
    output: Path | None = None,
) -> None:
    """Print the page of a rule: what it finds and why, with a bad and a good example.

    With --output, the pages of all rules are written into that folder.
    """
    from vllm_harness._protocol.explain import page, pages
    from vllm_harness._protocol.rules import RULES

    if output is not None:
        output.mkdir(parents=True, exist_ok=True)
        for name, text in pages().items():
            (output / name).write_text(text)
        return
    if not code:
        typer.echo(
            printable("\n".join(f"{rule.code} {rule.severity:7} {rule.title}" for rule in RULES.values()))
        )
        return
    rule = RULES.get(code.upper())
    if rule is None:
        raise UsageError(f"no rule has the code {code!r}", hint=_HINT)
    typer.echo(printable(page(rule)))


def _codes(text: str) -> tuple[str, ...]:
    """Splits the value of an option into codes, each of which is a rule's code or a prefix of codes.

    Raises:
        UsageError: one of the codes is not a prefix of any rule's code.
    """
    from vllm_harness._protocol.rules import RULES

    codes = tuple(part.strip().upper() for part in text.split(",") if part.strip())
    for code in codes:
        if not any(known.startswith(code) for known in RULES):
            raise UsageError(f"no rule has a code that starts with {code!r}", hint=_HINT)
    return codes
