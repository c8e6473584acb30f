"""Stores cost curves that are measured over HTTP, one by one, since each takes minutes."""

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
    """The cost curves that a run has measured so far for a cell, the parsers of one family.

    Attributes:
        path: the file; its first line identifies what is measured, and each other line is a curve.
        measured: the expected first line; a file with another first line is ignored.
    """

    path: Path
    measured: str

    def read(self) -> list[CaseAnswer]:
        """Reads the stored curves; an incomplete last line is ignored."""
        curves: list[CaseAnswer] = []
        with suppress(OSError, ValidationError):
            head, *lines = self.path.read_text().splitlines() or [""]
            if head == self.measured:
                for line in lines:
                    curves.append(CaseAnswer.model_validate_json(line))
        return curves

    def start(self, known: Sequence[CaseAnswer]) -> None:
        """Writes the file with only the known curves, unless the run folder is on another machine."""
        if self.path.parents[2].is_dir():
            self.path.parent.mkdir(parents=True, exist_ok=True)
            self.path.write_text("\n".join([self.measured, *map(_line, known), ""]))

    def add(self, answer: CaseAnswer) -> None:
        """Adds an answer's curve; an answer with an error is not stored, since the error may not recur."""
        if answer.curve is not None and self.path.exists():
            with self.path.open("a") as file:
                file.write(f"{_line(answer)}\n")


def not_measured(inputs: Sequence[CaseInput], known: Sequence[CaseAnswer]) -> Iterator[CaseInput]:
    """Yields the inputs that are still to be measured, each with the deliveries that have no curve yet."""
    done = {(answer.case, answer.delivery) for answer in known}
    for input_ in inputs:
        left = tuple(delivery for delivery in input_.deliveries if (input_.name, delivery) not in done)
        if left:
            yield input_.model_copy(update={"deliveries": left})


def _line(answer: CaseAnswer) -> str:
    return answer.model_dump_json(exclude_defaults=True)
