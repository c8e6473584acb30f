"""What arbitrary meanings find wrong with a family's parsers, shrunk, and kept as files of cases."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from vllm_harness.environments.spec import Environment
from vllm_harness.regression.cases.meanings import load_meanings
from vllm_harness.regression.cases.properties import Kind, Made, failures
from vllm_harness.regression.cases.questions import Search, made_question
from vllm_harness.regression.engines.in_process import Ask, conversing
from vllm_harness.regression.run import LIMIT_S, shares, wrongs
from vllm_harness.scripted.families import Family
from vllm_harness.scripted.meaning import Reasoning, Text

CUT = "cut"
"""Whatever the cuts."""


class _Plain(yaml.SafeDumper):
    """Writes what stands twice twice."""

    def ignore_aliases(self, data: Any) -> bool:
        return True


@dataclass(frozen=True)
class Found:
    """The smallest meaning that shows a kind of failure.

    Attributes:
        family: whose parsers fail.
        way: how it was parsed, as in `Case.ways`.
        wrong: what came out wrong.
        file: with the meaning, its tools and its segmentation, for `matrix --meanings`.
    """

    family: str
    way: str
    wrong: str
    file: Path


def search(
    environment: Environment,
    families: Iterable[Family],
    how: Search,
    folder: Path,
    *,
    parallel: int = 1,
    done: Callable[[Family], None] = lambda _: None,
) -> list[Found]:
    """Looks for failures of each family's parsers in process, and keeps what it finds in a folder a family.

    A family whose folder is there has been searched before, and is not searched again.

    Raises:
        InProcessError: vLLM does not import, or takes longer than an hour.
    """

    def share(some: Iterable[Family]) -> None:
        with conversing(environment, limit_s=LIMIT_S) as ask:
            for family in some:
                keep(environment, family, _found(ask, family, how), how, folder / family.name)
                done(family)

    every = [family for family in families if family.form]
    left = [family for family in every if not (folder / family.name).is_dir()]
    with ThreadPoolExecutor(parallel) as pool:
        list(pool.map(share, shares(left, parallel)))
    return [one for family in every for one in kept(family, folder / family.name)]


def _found(ask: Ask, family: Family, how: Search) -> Iterator[tuple[Kind, Made]]:
    known: dict[str, list[Kind]] = {}

    def kinds(one: Made) -> list[Kind]:
        told = repr(one)
        if told not in known:
            known[told] = _kinds(ask, family, one)
        return known[told]

    return failures(family, kinds, how.budget, how.seed)


def _kinds(ask: Ask, family: Family, one: Made) -> list[Kind]:
    """What is wrong with it, each with the first way that shows it: not streamed, by tokens, in its cuts."""
    question = made_question(family, one, "made", ("whole", "1", one.cut))
    found: dict[str, str] = {}
    for answer, wrong in wrongs(question, ask(family, [question.case])):
        for kind in wrong:
            found.setdefault(kind, CUT if answer.way == one.cut else str(answer.way))
    return [(way, kind) for kind, way in found.items()]


def keep(
    environment: Environment, family: Family, found: Iterable[tuple[Kind, Made]], how: Search, folder: Path
) -> None:
    """Writes a file of meanings for each; the folder is there once all are."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    half = Path(tempfile.mkdtemp(dir=folder.parent, prefix="."))
    try:
        for number, ((way, wrong), one) in enumerate(found, start=1):
            said = (
                f"of {family.name}, on {environment.describe()}: --budget {how.budget} --seed {how.seed}",
                f"says {one.text!r}",
            )
            header = "".join(f"# {line}\n" for line in said)
            kept = _file(one, wrong, one.cut if way == CUT else way)
            text = yaml.dump(kept, Dumper=_Plain, allow_unicode=True, sort_keys=False)
            (half / f"{number}.yaml").write_text(header + text)
        half.replace(folder)
    finally:
        shutil.rmtree(half, ignore_errors=True)


def _file(one: Made, wrong: str, way: str) -> dict[str, Any]:
    """As a file of meanings has it."""
    said = {
        "reasoning": next((part.text for part in one.meaning.parts if isinstance(part, Reasoning)), None),
        "text": next((part.text for part in one.meaning.parts if isinstance(part, Text)), None),
        "calls": [{call.name: call.arguments} for call in one.meaning.calls],
    }
    case = {"name": wrong, "topic": "found", "ways": [way], **{key: it for key, it in said.items() if it}}
    return {"tools": one.tools, "cases": [case]}


def kept(family: Family, folder: Path) -> Iterator[Found]:
    """What a folder has, in the order it was found."""
    for file in sorted(folder.iterdir(), key=lambda path: int(path.stem)):
        (case,) = load_meanings(file).cases
        yield Found(family.name, case.ways[0], case.name, file)
