"""`vllm-harness repro bisect`: the release or commit that brought a defect, or fixed it."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from vllm_harness._defects.entry import Defect
from vllm_harness._defects.registry import find, load_defects
from vllm_harness._defects.repro.bisect import (
    Bisection,
    Try,
    bisect,
    checkouts,
    commit_of,
    commits_between,
    releases_between,
    subject,
)
from vllm_harness._defects.repro.measured import Measured, shards_of
from vllm_harness._defects.repro.reproducer import checked, jobs_of, run_job
from vllm_harness._defects.repro.verdict import Reproduction
from vllm_harness._environments import store
from vllm_harness._environments.resolve import resolve
from vllm_harness._environments.spec import Environment
from vllm_harness._environments.under_test import VllmUnderTest
from vllm_harness._errors import HarnessError, UsageError
from vllm_harness._machine.shard import Executor
from vllm_harness._server.progress import StartProgress
from vllm_harness._terminal.tables import plain_console
from vllm_harness.cli.defects import FOLDER
from vllm_harness.cli.executor import BUNDLE, RAY, executor_of


def bisect_(
    defect_id: Annotated[str, typer.Argument(help="The id of the entry, such as vllm-46940.")],
    good: Annotated[str, typer.Option(help="A release, or with --tree a revision, that is right.")],
    bad: Annotated[str, typer.Option(help="A release, or with --tree a revision, that shows the defect.")],
    tree: Annotated[
        str,
        typer.Option(help="A checkout of vLLM with its history, and the release of its kernels: DIR@0.32.0."),
    ] = "",
    ray: RAY = "",
    bundle: BUNDLE = None,
    folder: FOLDER = None,
) -> None:
    """Find the release, or the commit of a checkout, that brought a defect, or fixed it.

    What cannot tell is skipped, and said: a release that lacks the parser, a
    commit that needs other kernels than those of the release.
    """
    defect = checked(find(defect_id, load_defects(folder))).defect
    console = plain_console()
    if tree and ray:
        raise UsageError("the commits of --tree are tried on this machine", hint="leave --ray out")
    if tree:
        _in_commits(defect, tree, good, bad, console)
        return
    names = releases_between(good, bad)
    if ray:
        with (
            tempfile.TemporaryDirectory() as kept,
            executor_of(ray, None, Path(kept), bundles=bundle, vllm=names) as executor,
        ):
            found = _on_nodes(defect, names, good, bad, executor, console)
    else:
        found = bisect(names, good, bad, _in_turn(defect, _release, console))
    _say(found, lambda name: name, console)


def _on_nodes(
    defect: Defect, names: Sequence[str], good: str, bad: str, executor: Executor, console: Console
) -> Bisection:
    """Tries several releases at the same time, each on a node."""

    def try_(chosen: Sequence[str]) -> list[Reproduction]:
        vllms = [VllmUnderTest(name, _release(name)) for name in chosen]
        found: dict[str, Reproduction] = {}

        def take(measured: Measured) -> None:
            found[measured.vllm] = _said(measured.vllm, measured.outcome, console)

        errors = executor.run(shards_of([defect], vllms), take)
        message = errors[0].message if errors else ""
        return [found.get(name) or Reproduction("other failure", message) for name in chosen]

    return bisect(names, good, bad, try_, executor.deal(len(names), apart=False))


def _in_commits(defect: Defect, tree: str, good: str, bad: str, console: Console) -> None:
    path, at, kernels = tree.rpartition("@")
    if not at:
        raise UsageError(
            "--tree names no release whose kernels to use",
            hint=f"write {tree}@0.32.0: the release next to it",
        )
    root = Path(path).resolve()
    names = commits_between(root, good, bad)
    made = set[str]()
    with checkouts(root) as check_out, _removed(made):

        def environment(commit: str) -> Environment:
            found = resolve(f"tree:{check_out(commit)}@{kernels}", create=True, progress=console.print)
            made.add(store.folder_of(found).name)
            return found

        ends = commit_of(root, good), commit_of(root, bad)
        found = bisect(names, *ends, _in_turn(defect, environment, console))
    _say(found, lambda name: subject(root, name), console)


@contextmanager
def _removed(environments: Collection[str]) -> Iterator[None]:
    """Removes environments at the end: their trees are gone then."""
    try:
        yield
    finally:
        for name in environments:
            store.remove(name)


def _release(version: str) -> Environment:
    return resolve(version, create=True, progress=plain_console(stderr=True).print)


def _in_turn(defect: Defect, environment: Callable[[str], Environment], console: Console) -> Try:
    """Tries one after the other on this machine."""
    (job,) = jobs_of([defect])

    def reproduced(name: str) -> Reproduction:
        try:
            ((_, outcome),) = run_job(job, environment(name), progress=StartProgress())
        except UsageError:
            raise
        except HarnessError as error:  # such as kernels that this commit needs and the release lacks
            outcome = Reproduction("other failure", error.message)
        return _said(name, outcome, console)

    return lambda chosen: [reproduced(name) for name in chosen]


def _said(name: str, outcome: Reproduction, console: Console) -> Reproduction:
    """Prints what came of a try, and returns it."""
    console.print(f"{name}: {outcome.verdict} {outcome.why}".rstrip(), soft_wrap=True)
    return outcome


def _say(found: Bisection, named: Callable[[str], str], console: Console) -> None:
    change = "brought" if found.tried[found.after] == "reproduced" else "fixed"
    for name, why in found.skipped.items():
        console.print(f"skipped {named(name)}: {why}", soft_wrap=True)
    among = " or one that was skipped before it" if found.skipped else ""
    console.print(f"{change} by {named(found.after)}{among} (before: {named(found.before)})", soft_wrap=True)
