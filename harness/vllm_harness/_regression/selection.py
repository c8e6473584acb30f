"""Selects what a run covers from user input: families, groups, tokenizers and server environments."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import get_args

from vllm_harness._configuration.model_entries import Frontend, load_models
from vllm_harness._environments.resolve import resolve
from vllm_harness._environments.under_test import VllmUnderTest
from vllm_harness._errors import UsageError
from vllm_harness._exchange.delivery import Api
from vllm_harness._regression.cases.case import DEFAULT_GROUPS, GROUPS, CaseSet, Group
from vllm_harness._regression.cases.groups import GenerationPlan, case_set
from vllm_harness._regression.cases.meanings import FILE as MEANINGS
from vllm_harness._regression.cases.meanings import load_meanings
from vllm_harness._regression.engines.plan import DEFAULT_APIS, Engine, plan_cases
from vllm_harness._scripted.families import Family, families_of_model, load_families, on_real_tokenizer


@dataclass(frozen=True)
class Selection:
    """The families and groups of cases that an engine should run.

    Attributes:
        only: the names of the cases to run; empty for all.
        meanings: the meanings file.
        generation: how many meanings the group `properties` generates.
        apis: the APIs over which requests are sent to servers.
        cpu_s: the CPU time limit for measuring the cost of one delivery; None for the engine's default.
    """

    families: tuple[Family, ...]
    groups: tuple[Group, ...]
    engine: Engine
    only: tuple[str, ...] = ()
    meanings: Path = MEANINGS
    generation: GenerationPlan = field(default_factory=GenerationPlan)
    apis: tuple[Api, ...] = DEFAULT_APIS
    cpu_s: float | None = None

    def case_sets(self) -> list[CaseSet]:
        """Returns the cases of each group for each family."""
        meanings = load_meanings(self.meanings)
        return [
            self._planned(case_set(group, family, meanings, self.generation))
            for group in self.groups
            for family in self.families
        ]

    def _planned(self, cases: CaseSet) -> CaseSet:
        planned = plan_cases(cases, self.engine, self.apis).only(self.only)
        if self.cpu_s is None or cases.group != "cost":
            return planned
        limit = {"cpu_s": self.cpu_s}
        limited = (replace(case, input=case.input.model_copy(update=limit)) for case in planned.cases)
        return replace(planned, cases=tuple(limited))


def select_families(parsers: str, models: str) -> list[Family]:
    """Returns the families of these parsers and of these models; all families if neither is specified.

    Args:
        parsers: comma-separated names of families or of vLLM parsers.
        models: comma-separated names of model entries.

    Raises:
        UsageError: a name is unknown, or no family has the parsers of a model.
    """
    families = _families_of_parsers(parsers) if parsers or not models else []
    for entry in map(load_models().get, split_names(models)):
        of_model = families_of_model(entry)
        if not of_model:
            raise UsageError(
                f"no family has the parsers of {entry.name}, which are {entry.tool_call_parser} and "
                f"{entry.reasoning_parser}",
                hint="name families or parsers with --parsers",
            )
        families += of_model
    return list({family.name: family for family in families}.values())


def _families_of_parsers(parsers: str) -> list[Family]:
    known = list(load_families().values())
    names = set(split_names(parsers))
    if not names:
        return known
    chosen = [family for family in known if names & _names(family)]
    if unknown := names - {name for family in chosen for name in _names(family)}:
        raise UsageError(
            f"no family has a parser {min(unknown)!r}",
            hint=f"the families are {', '.join(family.name for family in known)}",
        )
    return chosen


def _names(family: Family) -> set[str]:
    return {family.name, family.tool_parser or family.name, family.reasoning_parser or family.name}


def on_tokenizers(families: Sequence[Family], tokenizers: str) -> list[Family]:
    """Returns families on these kinds of tokenizers. Raises UsageError if no real tokenizer is available."""
    kinds = known_names(tokenizers, ("synthetic", "real"), "kind of tokenizer")
    chosen = list(families) if "synthetic" in kinds else []
    if "real" in kinds:
        real = list(filter(None, map(on_real_tokenizer, families)))
        if not real:
            available = (family.name for family in load_families().values() if on_real_tokenizer(family))
            raise UsageError(
                "no real tokenizer is available for these families",
                hint=f"these families have one: {', '.join(available)}",
            )
        chosen += real
    return chosen


def select_groups(names: str) -> tuple[Group, ...]:
    """Parses comma-separated group names into the order of `GROUPS`; defaults to `DEFAULT_GROUPS`."""
    chosen = known_names(names, GROUPS, "group of cases")
    return tuple(group for group in GROUPS if group in (chosen or DEFAULT_GROUPS))


def select_apis(names: str) -> tuple[Api, ...]:
    """Parses comma-separated API names. Raises UsageError if a name is unknown or there is none."""
    chosen = known_names(names, tuple(Api), "API")
    if not chosen:
        raise UsageError("--apis names no API", hint=f"name some of {', '.join(Api)}")
    return tuple(api for api in Api if api in chosen)


def select_environments(
    specs: str, frontends: str, engine: Engine, progress: Callable[[str], None]
) -> list[VllmUnderTest]:
    """Resolves server environments, creating missing ones, and combines each with these front ends.

    Raises:
        UsageError: a front end is unknown or missing in an environment, or the engine does not use any.
    """
    known: tuple[Frontend, ...] = get_args(Frontend)
    chosen = known_names(frontends, known, "front end")
    if engine != "http" and chosen != ["python"]:
        raise UsageError("parsers in process have no front end", hint="add --engine http")
    environments = [(spec, resolve(spec, create=True, progress=progress)) for spec in split_names(specs)]
    for _, environment in environments:
        if missing := set(chosen) - set(environment.frontends):
            raise UsageError(
                f"{environment.describe()} has no front end {min(missing)}",
                hint="name an environment that has one with --vllm, such as 0.33.0@0.32.0",
            )
    return [
        VllmUnderTest(spec, environment, frontend)
        for spec, environment in environments
        for frontend in known
        if frontend in chosen
    ]


def split_names(text: str) -> list[str]:
    """Splits comma-separated names."""
    return [name.strip() for name in text.split(",") if name.strip()]


def known_names(text: str, known: Sequence[str], kind: str) -> list[str]:
    """Splits comma-separated names of this kind. Raises UsageError if a name is unknown."""
    names = split_names(text)
    if unknown := set(names) - set(known):
        raise UsageError(f"unknown {kind} {min(unknown)!r}", hint=f"use one of {', '.join(known)}")
    return names
