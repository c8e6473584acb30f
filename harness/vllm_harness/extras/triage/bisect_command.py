"""`vllm-harness repro bisect`: finds the release or commit that introduced or fixed a defect."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from vllm_harness._defects.entry import Defect
from vllm_harness._defects.registry import find, load_defects
from vllm_harness._defects.repro.reproducer import checked, jobs_of, run_job
from vllm_harness._defects.repro.run import shards_of
from vllm_harness._defects.repro.verdict import Measured, Reproduction
from vllm_harness._environments import store
from vllm_harness._environments.resolve import resolve
from vllm_harness._environments.spec import Environment
from vllm_harness._environments.under_test import VllmUnderTest
from vllm_harness._errors import HarnessError, UsageError
from vllm_harness._files.temporary import temporary_folder
from vllm_harness._machine.shard import Executor
from vllm_harness._server.progress import StartProgress
from vllm_harness._terminal.tables import plain_console
from vllm_harness.cli.executor import executor_of
from vllm_harness.extras.triage.bisect import (
    Bisection,
    Try,
    bisect,
    checkouts,
    commit_of,
    commits_between,
    releases_between,
    subject,
)


def bisect_(
    defect_id: Annotated[str, typer.Argument(help="The id of the entry, such as vllm-46940.")],
    good: str,
    bad: str,
    tree: str = "",
    ray: str = "",
    bundle: list[Path] | None = None,
    folder: Path | None = None,
) -> None:
    """Find the release, or the commit of a checkout, that introduced or fixed a defect.

    With --tree DIR@0.32.0, the commits between two revisions are tried. Releases
    that lack the parser are skipped and listed, as are commits that need
    kernels other than those of the release.
    """
    defect = checked(find(defect_id, load_defects(folder))).defect
    console = plain_console()
    if tree and ray:
        raise UsageError(
            "--tree cannot be combined with --ray", hint="leave out --ray: commits are tried on this machine"
        )
    if tree:
        _in_commits(defect, tree, good, bad, console)
        return
    names = releases_between(good, bad)
    if ray:
        with temporary_folder() as out, executor_of(ray, None, out, bundles=bundle, vllm=names) as executor:
            bisection = _on_nodes(defect, names, good, bad, executor, console)
    else:
        bisection = bisect(names, good, bad, _in_turn(defect, _release, console))
    _print_result(bisection, lambda name: name, console)


def _on_nodes(
    defect: Defect, names: Sequence[str], good: str, bad: str, executor: Executor, console: Console
) -> Bisection:
    """Tries several releases at the same time, each on a different node."""

    def try_(chosen: Sequence[str]) -> list[Reproduction]:
        vllms = [VllmUnderTest(name, _release(name)) for name in chosen]
        outcomes: dict[str, Reproduction] = {}

        def keep(measured: Measured) -> None:
            outcomes[measured.vllm] = _printed(measured.vllm, measured.outcome, console)

        errors = executor.run(shards_of([defect], vllms), keep)
        message = errors[0].message if errors else ""
        return [outcomes.get(name) or Reproduction("other failure", message) for name in chosen]

    return bisect(names, good, bad, try_, executor.deal(len(names), apart=False))


def _in_commits(defect: Defect, tree: str, good: str, bad: str, console: Console) -> None:
    path, at, kernels = tree.rpartition("@")
    if not at:
        raise UsageError(
            f"--tree {tree} does not name the release of its kernels",
            hint=f"add the release that is nearest to the tree: {tree}@0.32.0",
        )
    root = Path(path).resolve()
    names = commits_between(root, good, bad)
    created = set[str]()
    with checkouts(root) as check_out, _removed(created):

        def environment_at(commit: str) -> Environment:
            environment = resolve(f"tree:{check_out(commit)}@{kernels}", create=True, progress=console.print)
            created.add(store.folder_of(environment).name)
            return environment

        ends = commit_of(root, good), commit_of(root, bad)
        bisection = bisect(names, *ends, _in_turn(defect, environment_at, console))
    _print_result(bisection, lambda name: subject(root, name), console)


@contextmanager
def _removed(environments: Collection[str]) -> Iterator[None]:
    """Removes environments on exit, when their source trees no longer exist."""
    try:
        yield
    finally:
        for name in environments:
            store.remove(name)


def _release(version: str) -> Environment:
    return resolve(version, create=True, progress=plain_console(stderr=True).print)


def _in_turn(defect: Defect, environment: Callable[[str], Environment], console: Console) -> Try:
    """Returns a function that tries versions one after the other on this machine."""
    (job,) = jobs_of([defect])

    def reproduced(name: str) -> Reproduction:
        try:
            ((_, outcome),) = run_job(job, environment(name), progress=StartProgress())
        except UsageError:
            raise
        except HarnessError as error:  # such as kernels that this commit needs and the release lacks
            outcome = Reproduction("other failure", error.message)
        return _printed(name, outcome, console)

    return lambda chosen: [reproduced(name) for name in chosen]


def _printed(name: str, outcome: Reproduction, console: Console) -> Reproduction:
    """Prints the outcome for a version, and returns it."""
    console.print(f"{name}: {outcome.verdict} {outcome.why}".rstrip(), soft_wrap=True)
    return outcome


def _print_result(bisection: Bisection, named: Callable[[str], str], console: Console) -> None:
    change = "introduced" if bisection.tried[bisection.after] == "reproduced" else "fixed"
    for name, why in bisection.skipped.items():
        console.print(f"skipped {named(name)}: {why}", soft_wrap=True)
    among = ", or by a skipped version before it" if bisection.skipped else ""
    console.print(
        f"{change} by {named(bisection.after)}{among} (before: {named(bisection.before)})", soft_wrap=True
    )
