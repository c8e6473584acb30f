"""The output of `vllm-harness regression`: the table of cells, and lists of changes, failures and defects."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from rich.console import Console
from rich.text import Text

from vllm_harness._defects.entry import Defect
from vllm_harness._regression.cases.case import GROUPS, Group
from vllm_harness._regression.engines.plan import Engine
from vllm_harness._regression.results.cells import CaseVerdict, Cell, not_judged
from vllm_harness._regression.results.compare import (
    Baseline,
    CaseChange,
    CaseMismatches,
    against,
)
from vllm_harness._regression.results.known_defects import (
    ExplainedFailures,
    ParserDefect,
    known_cases,
    known_elsewhere,
)
from vllm_harness._regression.results.mismatches import Mismatch
from vllm_harness._regression.results.selections import Failure
from vllm_harness._scripted.families import title_of
from vllm_harness._terminal.tables import Cell as Shown
from vllm_harness._terminal.tables import fits, on_terminal, one_line, show_table

ENGINES: dict[Engine, str] = {"in-process": "driven in process", "http": "requested over HTTP"}
LEGEND = "cases: passed / known / failed / left out because the format cannot express them"
FAILURES = "the counts are failures: mismatches of a case in one delivery; a failed case has one or more"
UNEXPLAINED_SHOWN = 20
ALIKE_SHOWN = 5
PARSERS = ("tool parser", "reasoning parser", "tokenizer")

Column = tuple[str, Group]
"""An environment and a group of cases."""
DefectsByFamily = Mapping[str, Sequence[ParserDefect]]


def show_cells(
    console: Console, cells: Sequence[Cell], baseline: Baseline | None, defects: DefectsByFamily
) -> None:
    """Prints the counts of cells, the cells whose parsers vLLM could not create, and the environments.

    A case is known if known defects explain all its mismatches, or if the baseline contains them. If the
    terminal is too narrow, the columns of the parsers are left out, and each environment gets its own table.

    Args:
        console: the console to print to.
        cells: the cells, in any order.
        baseline: the baseline, if there is one.
        defects: the known defects of each family.
    """
    counts = {id(cell): _counts(cell, baseline, defects) for cell in cells}
    columns = sorted(
        {(cell.environment, cell.group) for cell in cells},
        key=lambda column: (column[0], GROUPS.index(column[1])),
    )
    environments = list(dict.fromkeys(environment for environment, _ in columns))
    headings, rows = _table(cells, columns, counts, len(environments) > 1)
    parsers = zip(rows, _parsers(cells), strict=True)
    wide_headings, wide_rows = (*headings, *PARSERS), [(*row, *more) for row, more in parsers]
    if not on_terminal(console) or fits(console, wide_headings, wide_rows):
        headings, rows = wide_headings, wide_rows
    if len(environments) == 1 or not on_terminal(console) or fits(console, headings, rows):
        show_table(console, headings, rows, headings[1 : 1 + len(columns)])
    else:
        for environment in environments:
            console.print(f"{environment}:")
            own_cells = [cell for cell in cells if cell.environment == environment]
            own_columns = [column for column in columns if column[0] == environment]
            headings, rows = _table(own_cells, own_columns, counts, False)
            show_table(console, headings, rows, headings[1:])
    _show_legend(console, cells)


def _table(
    cells: Sequence[Cell], columns: Sequence[Column], counts: Mapping[int, Shown], named: bool
) -> tuple[tuple[str, ...], list[tuple[Shown, ...]]]:
    """The headings, which name the environments if `named`, and a row for each family."""
    headings = ("family", *("\n".join(column) if named else column[1] for column in columns))
    by_place = {(cell.family, cell.environment, cell.group): counts[id(cell)] for cell in cells}
    return headings, [
        (title_of(name), *(by_place.get((name, *column), "-") for column in columns))
        for name in _families(cells)
    ]


def _families(cells: Sequence[Cell]) -> list[str]:
    return sorted({cell.family for cell in cells})


def _parsers(cells: Sequence[Cell]) -> list[tuple[str, ...]]:
    by_family = {cell.family: cell for cell in cells}
    chosen = (by_family[family] for family in _families(cells))
    return [(cell.tool_parser or "-", cell.reasoning_parser or "-", cell.tokenizer) for cell in chosen]


def _counts(cell: Cell, baseline: Baseline | None, defects: DefectsByFamily) -> Shown:
    if cell.start_error:
        return Text("not created", "red")
    failed = {name for name, case in cell.cases.items() if case.verdict is CaseVerdict.FAILED}
    new = failed - known_cases(cell, defects)
    if baseline and baseline.covers_cell(cell):
        new &= {change.case for change in against(baseline, [cell]) if change.regressed}
    passed, left_out = cell.count(CaseVerdict.PASSED), cell.count(CaseVerdict.LEFT_OUT)
    return Text(f"{passed}/{len(failed - new)}/{len(new)}/{left_out}", "red" if new else "green")


def _show_legend(console: Console, cells: Sequence[Cell]) -> None:
    console.print(LEGEND)
    for cell in cells:
        if cell.start_error:
            reason = one_line(cell.start_error)
            console.print(f"not created: {cell.family}, {cell.group} on {cell.environment}: {reason}")
    for environment in dict.fromkeys(cell.environment for cell in cells):
        own = [cell for cell in cells if cell.environment == environment]
        if missed := not_judged(own):
            whole = sum(cell.count(CaseVerdict.NOT_JUDGED) for cell in own)
            console.print(
                f"not judged on {environment}: answers: {len(missed)}; cases with no judged answer: {whole}; "
                f"the first: {one_line(missed[0])}"
            )
    for described in dict.fromkeys(f"{cell.described}; parsers {ENGINES[cell.engine]}" for cell in cells):
        console.print(f"server environment: {described}")


def show_changes(console: Console, changed: Sequence[CaseChange], reference: str) -> int:
    """Prints the cases that regressed and those that are fixed; returns 1 if any regressed, else 0.

    Args:
        console: the console to print to.
        changed: the cases whose result changed.
        reference: the name of the run or baseline that they are compared with.
    """
    regressed = [change for change in changed if change.regressed]
    fixed = [change for change in changed if not change.regressed]
    for title, listed in (("regressed", regressed), ("fixed", fixed)):
        if listed:
            console.print(f"{title} compared with {reference}:")
            rows = [
                (change.case, change.family, change.group, _joined(change.before), _joined(change.after))
                for change in listed
            ]
            show_table(console, ("case", "family", "group", "before", "after"), rows)
    show_titles(
        console,
        (mismatch for change in regressed for mismatches in change.after.values() for mismatch in mismatches),
    )
    console.print(f"{len(regressed)} regressed, {len(fixed)} fixed compared with {reference}")
    return 1 if regressed else 0


def _joined(mismatches: CaseMismatches) -> str:
    """The mismatches of a case, each set of codes with the deliveries that show it."""
    by_codes: dict[str, list[str]] = {}
    for delivery, codes in mismatches.items():
        by_codes.setdefault(", ".join(map(str, codes)), []).append(delivery.code)
    return "; ".join(f"{codes} ({', '.join(shown)})" for codes, shown in by_codes.items()) or "passed"


def show_titles(console: Console, mismatches: Iterable[Mismatch]) -> None:
    """Prints the titles of mismatches."""
    for mismatch in dict.fromkeys(mismatches):
        console.print(f"  {mismatch}: {mismatch.title}", style="dim")


def show_explained(
    console: Console,
    known: Sequence[ParserDefect],
    explained: ExplainedFailures,
    *,
    every: bool,
    commands: bool,
) -> None:
    """Prints the known defects that a run shows, and the failures that no known defect explains.

    Args:
        console: the console to print to.
        known: all known parser defects.
        explained: the run's failures, sorted by known defect.
        every: whether to list all defects and all unexplained failures, not only some of them.
        commands: whether to print the commands that reproduce each defect.
    """
    places = list(dict.fromkeys(place for counts in explained.counts.values() for place in counts))
    listed = [each for each in known if every or each.id in explained.counts]
    columns = ["\n".join(place) for place in places]
    rows = [_defect_row(each.defect, explained, places) for each in listed]
    headings = (*columns, "families", "class", "defect", "")
    show_table(console, headings, rows, [*columns, "families"], whole=len(places) > 3)
    if commands:
        for each in listed:
            console.print(f"{each.id} ({each.defect.versions or 'all'}; {', '.join(each.defect.families)})")
            for selection in each.selections:
                console.print(selection.command, style="dim")
    console.print(FAILURES)
    console.print(
        f"{len(explained.counts)} of {len(known)} known parser defects appear; "
        f"{len(explained.unexplained)} failures have no known defect"
    )
    _show_unexplained(console, explained, None if every else UNEXPLAINED_SHOWN)
    _show_alike(console, known, [failure for _, _, failure in explained.unexplained])


def _show_unexplained(console: Console, explained: ExplainedFailures, limit: int | None) -> None:
    shown = explained.unexplained[:limit]
    for environment, engine, failure in shown:
        place = f"{failure.family}, {failure.group}, {failure.case}, {failure.delivery}"
        console.print(f"{environment}, {engine}: {place}: {failure.mismatch}")
    show_titles(console, (failure.mismatch for _, _, failure in shown))
    if more := len(explained.unexplained) - len(shown):
        console.print(f"... and {more} more; --all lists them")


def _show_alike(console: Console, known: Sequence[ParserDefect], failures: Sequence[Failure]) -> None:
    """Prints the defects of other families that may have the same cause."""
    for each, alike in known_elsewhere(known, failures)[:ALIKE_SHOWN]:
        families = each.defect.families
        others = ", ".join(families[:3]) + (", ..." if len(families) > 3 else "")
        own = ", ".join(dict.fromkeys(failure.plain_family for failure in alike))
        console.print(
            f"{len(alike)} failures of {own} resemble {each.id}, which shows the same mismatch for {others}: "
            "if the cause is the same, add the family to that entry; otherwise add an entry"
        )


def _defect_row(
    defect: Defect, explained: ExplainedFailures, places: Sequence[tuple[str, Engine]]
) -> tuple[str, ...]:
    counts = explained.counts.get(defect.id, {})
    numbers = (str(counts.get(place, "-")) for place in places)
    return (*numbers, str(len(defect.families)), defect.kind, defect.id, defect.title)
