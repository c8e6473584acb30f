"""`vllm-harness compare`: compares two cassettes, runs or recordings."""

from __future__ import annotations

from collections.abc import Iterator
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from vllm_harness import _extensions as extensions
from vllm_harness._errors import UsageError


class CompareFormat(StrEnum):
    """The output formats for a comparison of runs."""

    TEXT = "text"
    HTML = "html"
    MARKDOWN = "markdown"
    JSON = "json"


class ComparedKind(StrEnum):
    """The kinds of files and folders that can be compared."""

    CASSETTE = "cassette"
    REGRESSION = "regression"
    RUN = "run"
    RECORDING = "recording"


_WORDS = {
    ComparedKind.CASSETTE: "a cassette",
    ComparedKind.REGRESSION: "a run of `regression`",
    ComparedKind.RUN: "a run folder",
    ComparedKind.RECORDING: "a recording of a gateway",
}
_HAVING = {
    "--format": (ComparedKind.RUN,),
    "--output": (ComparedKind.RUN,),
    "--open": (ComparedKind.RUN,),
    "--json": (ComparedKind.CASSETTE, ComparedKind.RECORDING),
    "--product": (ComparedKind.RECORDING,),
}
"""The kinds for which each option is allowed; for other kinds it is an error."""


def compare(
    before: Annotated[
        str,
        typer.Argument(
            metavar="A",
            help="A cassette, a run of `regression` (NAME or NAME@ENVIRONMENT), a run folder, "
            "or a recording of `gateway`.",
        ),
    ],
    after: Annotated[str, typer.Argument(metavar="B", help="What to compare with A; of the same kind.")],
    as_: ComparedKind | None = None,
    format: CompareFormat | None = None,
    output: Path | None = None,
    open_: bool = False,
    json_: bool = False,
    product: str = "",
) -> None:
    """Compare two cassettes, two runs, or two recordings of a gateway.

    Cassettes are compared in meaning and in protocol, turn by turn; runs case
    by case; recordings of the same requests by the rules for gateways, with
    the known defects of --product. --format, --output and --open are for run
    folders, --json for cassettes and recordings.

    The exit code is 1 if the cassettes differ, a case became worse, or a
    gateway has an error or a warning; it is 2 if the kinds of A and B differ.
    """
    kind = as_ or _kind_of(before, after)
    for option, given in zip(_HAVING, (format, output, open_, json_, product), strict=True):
        if given:
            _check(option, kind)
    if kind is ComparedKind.CASSETTE:
        from vllm_harness.cli.cassette_differences import compare_cassettes

        worse = compare_cassettes(Path(before), Path(after), json_)
    elif kind is ComparedKind.REGRESSION:
        from vllm_harness.cli.regression import compare_regressions

        worse = compare_regressions(before, after)
    elif kind is ComparedKind.RUN:
        from vllm_harness.cli.report import compare_runs

        worse = compare_runs(before, after, format or CompareFormat.TEXT, output, open_)
    else:
        compare_recordings = extensions.load(extensions.COMPARE_RECORDINGS, "to compare recordings")
        worse = compare_recordings(Path(before), Path(after), product, json_)
    if worse:
        raise typer.Exit(1)


def _kind_of(before: str, after: str) -> ComparedKind:
    """The kind that both arguments have. Raises UsageError if they have no kind in common."""
    kinds = {name: list(_kinds(name)) for name in (before, after)}
    for kind in kinds[before]:
        if kind in kinds[after]:
            return kind
    both = "; ".join(f"{name} is {_in_words(each)}" for name, each in kinds.items())
    raise UsageError(
        f"these cannot be compared: {both}",
        hint="give two cassettes, two runs of `regression` (NAME or NAME@ENVIRONMENT), two run folders, "
        "or two recordings of `gateway`",
    )


def _kinds(name: str) -> Iterator[ComparedKind]:
    """The possible kinds of an argument; the folder of a run of `regression` is a run folder as well."""
    from vllm_harness._cassettes.reading import is_cassette

    path = Path(name)
    if path.is_file():
        if is_cassette(name):
            yield ComparedKind.CASSETTE
        return
    from vllm_harness._regression.results.cells import RegressionRun
    from vllm_harness._runs.lookup import find_run

    if (path / extensions.RECORDING).is_file():
        yield ComparedKind.RECORDING
    if RegressionRun.named(name.partition("@")[0]).has_cells():
        yield ComparedKind.REGRESSION
    try:
        find_run(name)
    except UsageError:
        return
    yield ComparedKind.RUN


def _in_words(kinds: list[ComparedKind]) -> str:
    return _WORDS[kinds[0]] if kinds else "nothing that `compare` can read"


def _check(option: str, kind: ComparedKind) -> None:
    """Raises UsageError if an option is not allowed for a kind."""
    having = _HAVING[option]
    if kind in having:
        return
    hint = f"leave {option} out"
    if kind is ComparedKind.REGRESSION and ComparedKind.RUN in having:
        hint += ", or add `--as run`: the folder of such a run is a run folder as well"
    words = " and ".join(_WORDS[each] for each in having)
    raise UsageError(f"{option} is for {words}; these are each {_WORDS[kind]}", hint=hint)
