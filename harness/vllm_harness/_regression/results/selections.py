"""Failures in parser regression, and the selectors of defect entries that match them."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase

from pydantic import Field, ValidationError

from vllm_harness._configuration.model_entries import Frontend
from vllm_harness._defects.entry import Defect, FailureSelector
from vllm_harness._defects.registry import DefectsError
from vllm_harness._exchange.delivery import Chunking, Delivery, DeliveryField, like_in_process
from vllm_harness._files.strict import StrictModel
from vllm_harness._regression.cases.case import DEFAULT_GROUPS, Group
from vllm_harness._regression.cases.groups import unforced
from vllm_harness._regression.results.mismatches import Mismatch, MismatchCode, MismatchField
from vllm_harness._scripted.families import REAL

WITH_RUST = "0.33.0@0.32.0"
"""A server environment that includes the Rust front end."""


class FailureSelection(StrictModel):
    """A validated failure selector from a defect entry; see `FailureSelector` and `Defect` for the fields."""

    families: tuple[str, ...]
    case: str
    groups: tuple[Group, ...] = Field(default=(*DEFAULT_GROUPS, "load"), min_length=1)
    cases: tuple[str, ...] = ()
    deliveries: tuple[DeliveryField, ...] = ()
    mismatches: tuple[MismatchField, ...] = ()
    says: str = ""
    served: bool = False
    frontends: tuple[Frontend, ...] = ("python",)

    @classmethod
    def of(cls, defect: Defect, selector: FailureSelector) -> FailureSelection:
        """Validates a selector from an entry. Raises DefectsError, which names the entry and the key."""
        try:
            fields = selector.model_dump(exclude_defaults=True)
            return cls.model_validate({**fields, "frontends": defect.frontends})
        except ValidationError as error:
            first = error.errors()[0]
            key = ".".join(map(str, first["loc"]))
            raise DefectsError(f"{defect.id}: failures: {key}: {first['msg']}") from error

    @property
    def command(self) -> str:
        """The command that reproduces the failure."""
        options = ["--parsers", self.families[0], "--cases", self.groups[0], "--only", self.case]
        rust = ("--vllm", WITH_RUST, "--frontends", "rust") if self.frontend == "rust" else ()
        engine = ("--engine", "http", *rust) if self.served or rust else ()
        return shlex.join(["vllm-harness", "regression", *options, *engine])

    @property
    def frontend(self) -> Frontend:
        """The front end that `command` uses."""
        return self.frontends[0]

    def explains(self, failure: Failure) -> bool:
        """Whether the selector matches a failure."""
        return failure.plain_family in self.families and self._fits(failure)

    def is_like(self, failure: Failure) -> bool:
        """Whether the selector would match a failure if it listed the failure's family."""
        return bool(self.mismatches) and failure.plain_family not in self.families and self._fits(failure)

    def _fits(self, failure: Failure) -> bool:
        name = unforced(failure.case) if failure.group == "forced" else failure.case
        return (
            failure.frontend in self.frontends
            and failure.group in self.groups
            and (not self.cases or any(fnmatchcase(name, case) for case in self.cases))
            and (not self.deliveries or not {failure.delivery, failure.like}.isdisjoint(self.deliveries))
            and (not self.mismatches or any(known.covers(failure.mismatch) for known in self.mismatches))
            and (not self.says or re.search(self.says, failure.text, re.DOTALL) is not None)
        )


@dataclass(frozen=True)
class Failure:
    """One mismatch of one case in one delivery, with one front end (`python` for parsers in process).

    `text` is the text that the model generates in the case.
    """

    family: str
    group: Group
    case: str
    delivery: Delivery
    mismatch: Mismatch
    frontend: Frontend = "python"
    text: str = field(default="", repr=False, compare=False)

    @property
    def plain_family(self) -> str:
        """The family's name without the suffix for a real tokenizer."""
        return self.family.removesuffix(REAL)

    @property
    def like(self) -> Delivery:
        """The in-process delivery that corresponds to the failure's delivery."""
        return like_in_process(self.delivery)

    @property
    def alternatives(self) -> Iterator[Failure]:
        """The failure, and equivalent failures in other deliveries and groups.

        A failure over HTTP in chunks of several tokens is equivalent to one with random cuts, and one in two
        chunks to one with every cut. An error while the cost of an answer is measured is equivalent to the
        same error in the canonical cases.
        """
        yield self
        if self.delivery.api is not None and (self.delivery.tokens > 1 or self.delivery.cuts):
            yield replace(self, delivery=Delivery(Chunking.RANDOM_CUTS))
        if self.delivery.api is not None and len(self.delivery.cuts) == 1:
            yield replace(self, delivery=Delivery(Chunking.EVERY_CUT))
        if self.group == "cost" and self.mismatch.code is MismatchCode.ERROR:
            yield from replace(self, group="canonical").alternatives


def selections_of(defect: Defect) -> tuple[FailureSelection, ...]:
    """Returns the selectors in a defect entry. Raises DefectsError if a selector is invalid."""
    return tuple(FailureSelection.of(defect, selector) for selector in defect.failures)
