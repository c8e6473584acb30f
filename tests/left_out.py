"""Records the cases that a run of the suites leaves out, counted by target and reason."""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path


@dataclass
class LeftOut:
    """The cases that a run leaves out.

    Attributes:
        total: the number of cases of each target.
        cases: target -> case -> why the case was left out.
        uncovered: the behaviours and reported defects in coverage.yaml that no remaining case covers.
    """

    total: Counter[str] = field(default_factory=Counter)
    cases: dict[str, dict[str, str]] = field(default_factory=lambda: defaultdict(dict))
    uncovered: Sequence[str] = ()

    def add(self, target: str, case: str, reason: str) -> None:
        """Adds a case, unless it already has a reason."""
        self.cases[target].setdefault(case, reason)

    def forget(self, target: str) -> None:
        """Removes a target that another process counts."""
        self.total.pop(target, None)
        self.cases.pop(target, None)

    def lines(self) -> list[str]:
        """Returns a line for each target, and a line for uncovered behaviours."""
        lines = [
            f"{target}: {self.total[target] - len(cases)} of {self.total[target]} cases run; "
            f"left out: {_counted(cases)}"
            for target, cases in self.cases.items()
            if cases
        ]
        if self.uncovered:
            lines.append(f"behaviours and reported defects without a case: {', '.join(self.uncovered)}")
        return lines

    def write(self, path: Path) -> None:
        """Writes all cases with their reasons as JSON."""
        path.write_text(json.dumps({"cases": self.cases, "uncovered": list(self.uncovered)}, indent=2))


def _counted(cases: Mapping[str, str]) -> str:
    return ", ".join(f"{count} {reason}" for reason, count in sorted(Counter(cases.values()).items()))
