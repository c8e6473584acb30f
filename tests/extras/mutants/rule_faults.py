"""Reads the faults that make real servers break the validator's rules: tests/cases/rule_faults.yaml."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path

from pydantic import model_validator

from tests.case_files import FOLDER
from tests.regression.asks import Ask
from vllm_harness._files.located_yaml import read_yaml
from vllm_harness._files.strict import StrictModel
from vllm_harness._protocol.rules import RULES
from vllm_harness.extras.mutants.mutant import HandMutant, changed_text, load_by_hand


class Fault(StrictModel):
    """A fault in vLLM's serving code, and the rules of the validator that detect it.

    Attributes:
        id: the id of a mutant made by hand, unless `file`, `what`, `old` and `new` are given here.
        fires: name of a request -> codes of the rules that the answer then breaks. Empty for a change that
            breaks no rule by itself, such as one that makes a server refuse, so that others can break rules.
        file, what, old, new: as in a mutant made by hand.
    """

    id: str
    fires: Mapping[str, tuple[str, ...]] = {}
    file: str | None = None
    what: str | None = None
    old: str | None = None
    new: str | None = None

    @property
    def mutant(self) -> HandMutant:
        """The mutant to apply. Raises KeyError if no mutant has the id."""
        if self.file is None:
            return _by_hand()[self.id]
        return HandMutant.model_validate(self.model_dump(exclude={"fires"}))

    @model_validator(mode="after")
    def _is_whole(self) -> Fault:
        assert self.mutant
        for name, codes in self.fires.items():
            assert Ask.named(name)
            assert set(codes) <= set(RULES), f"{name}: no such rule"
        return self


class RuleFaults(StrictModel):
    """The table of faults.

    Attributes:
        elsewhere: band of rules -> the reason why no fault in a server can break them.
        servers: name of a server -> the faults in it, all at the same time.
    """

    elsewhere: Mapping[str, str]
    servers: Mapping[str, tuple[Fault, ...]]


@cache
def load_faults() -> RuleFaults:
    """Reads the whole table."""
    return RuleFaults.model_validate(read_yaml(FOLDER / "rule_faults.yaml").data)


def band_of(code: str) -> str:
    """The band of a rule: the two letters of its area and the first digit of its code."""
    return code[:3]


def fired(faults: Sequence[Fault]) -> dict[str, list[str]]:
    """Name of a request -> all codes that the faults of one server produce."""
    by_request: dict[str, set[str]] = defaultdict(set)
    for fault in faults:
        for ask, codes in fault.fires.items():
            by_request[ask].update(codes)
    return {ask: sorted(codes) for ask, codes in by_request.items()}


def model_of(faults: Sequence[Fault]) -> str:
    """The name of the model entry for a server with these faults."""
    (model,) = {Ask.named(ask).model for ask in fired(faults)}
    return model


def sound(faults: Sequence[Fault]) -> list[Fault]:
    """The faults that break no rule by themselves."""
    return [fault for fault in faults if not fault.fires]


def changed_files(faults: Sequence[Fault], package: Path) -> dict[str, str]:
    """File -> its text with all faults applied. Raises AssertionError if a fault does not fit."""
    texts: dict[str, str] = {}
    for mutant in (fault.mutant for fault in faults):
        before = texts.get(mutant.file) or (package / mutant.file).read_text()
        after = changed_text(mutant, before)
        assert after is not None, f"{mutant.id} does not fit {mutant.file}"
        assert after.count("\n") == before.count("\n"), f"{mutant.id} moves the functions of {mutant.file}"
        texts[mutant.file] = after
    return texts


@cache
def _by_hand() -> dict[str, HandMutant]:
    return {mutant.id: mutant for mutant in load_by_hand()}
