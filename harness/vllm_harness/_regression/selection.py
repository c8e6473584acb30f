"""What a run is of, from the names that users give: families, groups of cases, tokenizers, environments."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import get_args

from vllm_harness._configuration.model_entries import Frontend, load_models
from vllm_harness._environments.resolve import resolve
from vllm_harness._environments.under_test import VllmUnderTest
from vllm_harness._errors import UsageError
from vllm_harness._regression.cases.case import DEFAULT_GROUPS, GROUPS, CaseSet, Group
from vllm_harness._regression.cases.delivery import Api
from vllm_harness._regression.cases.groups import GenerationPlan, case_set
from vllm_harness._regression.cases.meanings import FILE as MEANINGS
from vllm_harness._regression.cases.meanings import load_meanings
from vllm_harness._regression.engines.plan import DEFAULT_APIS, Engine, planned
from vllm_harness._scripted.families import Family, families_of_model, load_families, on_real_tokenizer


@dataclass(frozen=True)
class Selection:
    """Families and groups of cases for an engine.

    Attributes:
        families, groups: which.
        engine: that runs the cases.
        only: names of cases; none: all.
        meanings: the file of meanings.
        generation: of the group `properties`.
        apis: over which servers are requested.
        cpu_s: CPU time for the cost of one answer in one delivery; None: the engine's own.
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
        """The cases of each group for each family."""
        meanings = load_meanings(self.meanings)
        made = (
            case_set(group, family, meanings, self.generation)
            for group in self.groups
            for family in self.families
        )
        return [self._within_cpu(planned(cases, self.engine, self.apis).only(self.only)) for cases in made]

    def _within_cpu(self, cases: CaseSet) -> CaseSet:
        if self.cpu_s is None or cases.group != "cost":
            return cases
        limit = {"cpu_s": self.cpu_s}
        limited = (replace(case, input=case.input.model_copy(update=limit)) for case in cases.cases)
        return replace(cases, cases=tuple(limited))


def select_families(parsers: str, models: str) -> list[Family]:
    """The families of these parsers and of these models' parsers; all where neither is given.

    Args:
        parsers: names of families or of vLLM's parsers, by commas.
        models: names of model entries, by commas.

    Raises:
        UsageError: a name is unknown, or no family has the parsers of a model.
    """
    named = _families_of_parsers(parsers) if parsers or not models else []
    of_models = (family for model in split_names(models) for family in _families_of_model(model))
    return list({family.name: family for family in (*named, *of_models)}.values())


def _families_of_model(model: str) -> tuple[Family, ...]:
    entry = load_models().get(model)
    families = families_of_model(entry)
    if not families:
        raise UsageError(
            f"no family has the parsers of {model}: {entry.tool_call_parser} and {entry.reasoning_parser}",
            hint="name families or parsers with --parsers",
        )
    return families


def _families_of_parsers(parsers: str) -> list[Family]:
    known = list(load_families().values())
    wanted = set(split_names(parsers))
    if not wanted:
        return known
    chosen = [family for family in known if wanted & _names(family)]
    if unknown := wanted - {name for family in chosen for name in _names(family)}:
        raise UsageError(
            f"no family has a parser {min(unknown)!r}",
            hint=f"the families are {', '.join(family.name for family in known)}",
        )
    return chosen


def _names(family: Family) -> set[str]:
    return {family.name, family.tool_parser or family.name, family.reasoning_parser or family.name}


def on_tokenizers(families: Sequence[Family], tokenizers: str) -> list[Family]:
    """The families on these kinds of tokenizers; UsageError where none has a real one that can be had."""
    kinds = known_names(tokenizers, ("synthetic", "real"), "no kind of tokenizer is named")
    real = (
        [on_real for family in families if (on_real := on_real_tokenizer(family))] if "real" in kinds else []
    )
    if "real" in kinds and not real:
        available = ", ".join(family.name for family in load_families().values() if on_real_tokenizer(family))
        raise UsageError(
            "none of these families has a real tokenizer that can be had", hint=f"these have: {available}"
        )
    return [*(families if "synthetic" in kinds else []), *real]


def select_groups(names: str) -> tuple[Group, ...]:
    """The groups of these names, by commas, in their order; without a name those that run by default."""
    wanted = known_names(names, GROUPS, "no group of cases is named")
    return tuple(group for group in GROUPS if group in (wanted or DEFAULT_GROUPS))


def select_apis(names: str) -> tuple[Api, ...]:
    """The APIs of these names, by commas; UsageError where one is unknown, or none is named."""
    wanted = known_names(names, tuple(Api), "no API is named")
    if not wanted:
        raise UsageError("no API is named", hint=f"there are {', '.join(Api)}")
    return tuple(api for api in Api if api in wanted)


def select_environments(
    specs: str, frontends: str, engine: Engine, progress: Callable[[str], None]
) -> list[VllmUnderTest]:
    """Resolves environments, made where they are not there yet, each with these front ends.

    Raises:
        UsageError: a front end is unknown, the environment has none of that name, or the engine needs none.
    """
    known: tuple[Frontend, ...] = get_args(Frontend)
    chosen = known_names(frontends, known, "vLLM has no front end")
    if engine != "http" and chosen != ["python"]:
        raise UsageError("parsers driven in process have no front end", hint="add --engine http")
    environments = [(spec, resolve(spec, create=True, progress=progress)) for spec in split_names(specs)]
    for _, environment in environments:
        if missing := set(chosen) - set(environment.frontends):
            raise UsageError(
                f"{environment.describe()} carries no {min(missing)} front end",
                hint="name one that does with --vllm, such as 0.33.0@0.32.0",
            )
    return [
        VllmUnderTest(spec, environment, frontend)
        for spec, environment in environments
        for frontend in known
        if frontend in chosen
    ]


def split_names(text: str) -> list[str]:
    """Names that are divided by commas."""
    return [name.strip() for name in text.split(",") if name.strip()]


def known_names(text: str, known: Sequence[str], refusal: str) -> list[str]:
    """Names that are divided by commas; UsageError, which begins with the refusal, where one is not known."""
    names = split_names(text)
    if unknown := set(names) - set(known):
        raise UsageError(f"{refusal} {min(unknown)!r}", hint=f"there are {', '.join(known)}")
    return names
