"""Searches for the smallest answers that a family's parsers get wrong, and writes them to files."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from rich.console import Console

from vllm_harness._environments.spec import Environment
from vllm_harness._environments.under_test import VllmUnderTest
from vllm_harness._exchange.delivery import Chunking, Delivery, deliveries
from vllm_harness._files.plain_yaml import plain_yaml
from vllm_harness._files.temporary import temporary_folder
from vllm_harness._machine.tasks import run_tasks
from vllm_harness._regression.cases.case import Topic
from vllm_harness._regression.cases.groups import GenerationPlan, generated_case
from vllm_harness._regression.cases.meanings import load_meanings
from vllm_harness._regression.cases.properties import GeneratedMeaning, failure_kinds
from vllm_harness._regression.engines.in_process import Parse, parse_session
from vllm_harness._regression.results.cells import RegressionRun
from vllm_harness._regression.results.judge import judge
from vllm_harness._regression.results.mismatches import Mismatch
from vllm_harness._regression.run import LIMIT_S, shares
from vllm_harness._regression.selection import Selection
from vllm_harness._scripted.families import Family
from vllm_harness._terminal.tables import show_table
from vllm_harness.cli.counting import counted
from vllm_harness.cli.regression_options import console
from vllm_harness.cli.regression_table import show_titles

OWN_CUTS = Delivery(Chunking.CUT_AT)
"""Represents the delivery with a meaning's own cuts, so that failures of one kind may have other cuts."""
FailureKind = tuple[Delivery, Mismatch]
_DELIVERIES = deliveries("whole tokens_1")


@dataclass(frozen=True)
class SmallestFailure:
    """The smallest meaning that shows a kind of failure.

    Attributes:
        file: a meanings file with the meaning, its tools and its delivery, for `regression --meanings`.
    """

    family: str
    delivery: Delivery
    mismatch: Mismatch
    file: Path


def search_run(
    run: RegressionRun, environments: Sequence[VllmUnderTest], selection: Selection, parallel: int
) -> list[SmallestFailure]:
    """Searches for a run's smallest failures; stores them beside the cells, and prints them."""
    generation, families = selection.generation, selection.families
    failures: list[SmallestFailure] = []
    with counted("families searched", len(environments) * len(families)) as advance:
        for vllm in environments:
            failures += search(
                vllm.environment,
                families,
                generation,
                run.folder_of(vllm.name) / f"found-{generation.budget}-{generation.seed}",
                parallel=parallel,
                done=lambda _: advance(),
            )
    show_smallest_failures(console, failures, run.folder)
    return failures


def search(
    environment: Environment,
    families: Iterable[Family],
    generation: GenerationPlan,
    folder: Path,
    *,
    parallel: int = 1,
    done: Callable[[Family], None] = lambda _: None,
) -> list[SmallestFailure]:
    """Searches for failures of each family's parsers in process, and writes them to a folder for each family.

    A family whose folder exists is not searched again.

    Args:
        environment, families, generation: the vLLM, the families, and how many meanings to generate.
        folder: the parent of the families' folders.
        parallel: the number of interpreters to run at a time.
        done: called with each family when its search ends.

    Raises:
        InProcessError: vLLM cannot be imported, or takes longer than an hour.
    """

    def search_share(share: Iterable[Family]) -> None:
        with parse_session(environment, limit_s=LIMIT_S) as parse:
            for family in share:
                failures = _search_family(parse, family, generation)
                write_failures(environment, family, failures, generation, folder / family.name)
                done(family)

    families = list(families)
    remaining = [family for family in families if not (folder / family.name).is_dir()]
    tasks = [partial(search_share, share) for share in shares(remaining, parallel)]
    if errors := run_tasks(tasks, parallel):
        raise errors[0]
    return [failure for family in families for failure in read_failures(family, folder / family.name)]


def _search_family(
    parse: Parse, family: Family, generation: GenerationPlan
) -> Iterator[tuple[FailureKind, GeneratedMeaning]]:
    parsed: dict[str, list[FailureKind]] = {}

    def kinds(generated: GeneratedMeaning) -> list[FailureKind]:
        key = repr(generated)
        if key not in parsed:
            parsed[key] = _kinds(parse, family, generated)
        return parsed[key]

    return failure_kinds(family, kinds, generation.budget, generation.seed)


def _kinds(parse: Parse, family: Family, generated: GeneratedMeaning) -> list[FailureKind]:
    """A meaning's mismatches, each with the first delivery (whole, by tokens, own cuts) that shows it."""
    own = generated.own_delivery
    case = generated_case(family, generated, "generated", (*_DELIVERIES, own))
    first: dict[Mismatch, Delivery] = {}
    for answer, mismatches in judge(case, parse(family, [case.input])):
        assert answer.delivery is not None
        for mismatch in mismatches:
            first.setdefault(mismatch, OWN_CUTS if answer.delivery == own else answer.delivery)
    return [(delivery, mismatch) for mismatch, delivery in first.items()]


def write_failures(
    environment: Environment,
    family: Family,
    failures: Iterable[tuple[FailureKind, GeneratedMeaning]],
    generation: GenerationPlan,
    folder: Path,
) -> None:
    """Writes a meanings file for each failure; the folder appears once all files are written."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    with temporary_folder(folder.parent) as half:
        for number, ((delivery, mismatch), generated) in enumerate(failures, start=1):
            origin = f"--budget {generation.budget} --seed {generation.seed}"
            lines = (f"{family.name} on {environment.describe()}: {origin}", f"text: {generated.text!r}")
            header = "".join(f"# {line}\n" for line in lines)
            shown_by = generated.own_delivery if delivery == OWN_CUTS else delivery
            text = plain_yaml(_document(generated, mismatch, shown_by), allow_unicode=True)
            (half / f"{number}.yaml").write_text(header + text)
        half.rename(folder)


def _document(generated: GeneratedMeaning, mismatch: Mismatch, delivery: Delivery) -> dict[str, Any]:
    """The content of a meanings file with one case, whose name is the mismatch."""
    meaning = generated.meaning
    fields = {
        "reasoning": meaning.reasoning,
        "text": meaning.text,
        "calls": [{call.name: call.arguments} for call in meaning.calls],
    }
    case = {"name": str(mismatch), "topic": str(Topic.FOUND), "deliveries": [delivery.code]}
    return {
        "tools": generated.tools,
        "cases": [case | {name: value for name, value in fields.items() if value}],
    }


def read_failures(family: Family, folder: Path) -> Iterator[SmallestFailure]:
    """Reads the failures in a folder, in the order in which they were found."""
    for file in sorted(folder.iterdir(), key=lambda path: int(path.stem)):
        (case,) = load_meanings(file).cases
        yield SmallestFailure(family.name, case.deliveries[0], Mismatch.parse(case.name), file)


def show_smallest_failures(console: Console, failures: Sequence[SmallestFailure], folder: Path) -> None:
    """Prints the failures that a search found, with the paths of their files in the run folder."""
    if not failures:
        return
    rows = [
        (
            failure.family,
            failure.delivery.code,
            str(failure.mismatch),
            str(failure.file.relative_to(folder)),
        )
        for failure in failures
    ]
    show_table(console, ("family", "delivery", "mismatch", "file"), rows)
    show_titles(console, (failure.mismatch for failure in failures))
    console.print("these are the smallest failures of each kind; to run such a file:")
    console.print("  --parsers FAMILY --cases canonical --meanings FILE")
