"""The curves of a cell that is measured over HTTP, kept one by one: each takes minutes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from pydantic import ValidationError

from vllm_harness._regression.cases.case import CaseInput
from vllm_harness._regression.engines.answer import CaseAnswer


@dataclass(frozen=True)
class CurveStore:
    """The curves that an interrupted run has measured of a cell.

    Attributes:
        path: of the file: a line that says what is measured, then a line for each curve.
        measured: what is measured; what was kept of anything else counts as nothing.
    """

    path: Path
    measured: str

    def read(self) -> list[CaseAnswer]:
        """Those that are kept; the last line may have been cut."""
        found: list[CaseAnswer] = []
        with suppress(OSError, ValidationError):
            head, *lines = self.path.read_text().splitlines() or [""]
            if head == self.measured:
                for line in lines:
                    found.append(CaseAnswer.model_validate_json(line))
        return found

    def begin(self, known: Sequence[CaseAnswer]) -> None:
        """Writes the file anew, with these alone; nowhere, where the run's folder is on another machine."""
        if self.path.parents[2].is_dir():
            self.path.parent.mkdir(parents=True, exist_ok=True)
            self.path.write_text("\n".join([self.measured, *map(_line, known), ""]))

    def add(self, answer: CaseAnswer) -> None:
        """Keeps a further one; an error in its place is not kept, since it may be one of chance."""
        if answer.curve is not None and self.path.exists():
            with self.path.open("a") as file:
                file.write(f"{_line(answer)}\n")


def not_measured(inputs: Sequence[CaseInput], known: Sequence[CaseAnswer]) -> Iterator[CaseInput]:
    """What is left to measure: inputs with the deliveries of which there is no curve."""
    done = {(answer.case, answer.delivery) for answer in known}
    for input_ in inputs:
        left = tuple(each for each in input_.deliveries if (input_.name, each) not in done)
        if left:
            yield input_.model_copy(update={"deliveries": left})


def _line(answer: CaseAnswer) -> str:
    return answer.model_dump_json(exclude_defaults=True)
