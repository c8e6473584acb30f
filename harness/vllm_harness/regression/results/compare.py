"""Two runs, or a run and a baseline, case by case."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import yaml
from pydantic import ValidationError

from vllm_harness.errors import UsageError
from vllm_harness.files.strict import StrictModel
from vllm_harness.regression.results.results import Cell, Engine

Place = tuple[str, str, str]
"""Family, group and case."""
MADE = "parsers can be made"
Wrong = dict[str, tuple[str, ...]]
"""Way of asking -> what is wrong."""


@dataclass(frozen=True)
class Change:
    """A case that came out otherwise.

    Attributes:
        family, group, case: which.
        before, after: way of asking -> what is wrong; empty: nothing.
    """

    family: str
    group: str
    case: str
    before: Wrong
    after: Wrong

    @property
    def worse(self) -> bool:
        """Whether it is wrong now in a way, or by a difference, that it was not wrong in before."""
        return any(set(kinds) - set(self.before.get(way, ())) for way, kinds in self.after.items())


SAME: dict[str, tuple[str, ...]] = {
    "chat": ("whole",),
    "responses": ("whole",),
    "chat stream": ("1", "1+end"),
    "responses stream": ("1", "1+end"),
}
"""Way of asking a server -> the ways of parsing in process that must give the same."""


@dataclass(frozen=True)
class Disagreement:
    """A case that a server answers otherwise than its parsers do in process.

    Attributes:
        environment, family, case, way: which, and how the server was asked.
        in_process, http: what is wrong there; empty: nothing.
    """

    environment: str
    family: str
    case: str
    way: str
    in_process: tuple[str, ...]
    http: tuple[str, ...]


class Baseline(StrictModel):
    """What is known to come out wrong.

    Attributes:
        vllm, engine: whose run it was.
        covers: family -> groups that were asked; nothing is known of others.
        wrong: family -> group -> case -> way of asking -> what is wrong.
    """

    vllm: str
    engine: Engine
    covers: dict[str, tuple[str, ...]]
    wrong: dict[str, dict[str, dict[str, Wrong]]]

    def covers_cell(self, cell: Cell) -> bool:
        """Whether it says anything of a cell."""
        return cell.group in self.covers.get(cell.family, ())

    def of(self, place: Place) -> Wrong:
        """What is known to be wrong with a case."""
        family, group, case = place
        return self.wrong.get(family, {}).get(group, {}).get(case, {})


def changes(before: Iterable[Cell], after: Iterable[Cell]) -> list[Change]:
    """The cases that both have, and that differ."""
    return _changes(_wrong(before), _wrong(after))


def disagreements(cells: Iterable[Cell]) -> tuple[int, list[Disagreement]]:
    """Where the two engines differ, case by case: how many answers were compared, and which differ."""
    by_engine: dict[Engine, dict[tuple[str, str, str], Cell]] = {"in-process": {}, "http": {}}
    for cell in cells:
        by_engine[cell.engine][cell.environment, cell.family, cell.group] = cell
    compared, found = 0, []
    for place in sorted(by_engine["http"].keys() & by_engine["in-process"].keys()):
        served, parsed = by_engine["http"][place].cases, by_engine["in-process"][place].cases
        for name in served.keys() & parsed.keys():
            for way, came in served[name].came.items():
                compared += 1
                if came not in (parsed[name].came.get(same) for same in SAME[way]):
                    wrong = parsed[name].wrong.get(SAME[way][0], ())
                    there = served[name].wrong.get(way, ())
                    found.append(Disagreement(*place[:2], name, way, wrong, there))
    return compared, found


def against(baseline: Baseline, cells: Iterable[Cell]) -> list[Change]:
    """The cases that differ from the baseline, of those it covers; what it does not name is right there."""
    after = _wrong(cell for cell in cells if baseline.covers_cell(cell))
    return _changes({place: baseline.of(place) for place in after}, after)


def _wrong(cells: Iterable[Cell]) -> dict[Place, Wrong]:
    """What is wrong, case by case; that parsers cannot be made counts as a case of its own."""
    found: dict[Place, Wrong] = {}
    for cell in cells:
        found[cell.family, cell.group, MADE] = {"any": ("refused",)} if cell.refused else {}
        for name, case in cell.cases.items():
            if case.verdict != "left out":
                found[cell.family, cell.group, name] = case.wrong
    return found


def _changes(before: dict[Place, Wrong], after: dict[Place, Wrong]) -> list[Change]:
    return [
        Change(*place, before[place], after[place])
        for place in sorted(before.keys() & after.keys())
        if before[place] != after[place]
    ]


def baseline_of(vllm: str, cells: Iterable[Cell]) -> Baseline:
    """A run's failures, of one engine, as a baseline."""
    wrong: dict[str, dict[str, dict[str, Wrong]]] = {}
    covers: dict[str, tuple[str, ...]] = {}
    engine: Engine = "in-process"
    for cell in cells:
        engine = cell.engine
        if cell.refused is None:
            covers[cell.family] = (*covers.get(cell.family, ()), cell.group)
        for name, case in cell.cases.items():
            if case.wrong:
                wrong.setdefault(cell.family, {}).setdefault(cell.group, {})[name] = case.wrong
    return Baseline(vllm=vllm, engine=engine, covers=covers, wrong=wrong)


def read_baseline(path: Path) -> Baseline:
    """Reads a baseline; raises UsageError, naming the key, where it is none."""
    try:
        return Baseline.model_validate(yaml.safe_load(path.read_text()))
    except OSError as error:
        raise UsageError(f"cannot read the baseline {path}: {error.strerror}") from error
    except (yaml.YAMLError, ValidationError) as error:
        raise UsageError(f"{path} is no baseline: {error}", hint="write one with --write-baseline") from error


def write_baseline(baseline: Baseline, path: Path) -> None:
    """Writes a baseline as YAML, in a stable order, what is wrong on one line a case."""
    told = baseline.model_dump(mode="json")
    path.write_text(
        yaml.safe_dump(told, sort_keys=True, allow_unicode=True, width=1000, default_flow_style=None)
    )
