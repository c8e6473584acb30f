"""Where a run is executed, according to `--ray` and `--jobs`, and how `--resume` repeats its command."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from itertools import chain
from pathlib import Path

from vllm_harness import _extensions as extensions
from vllm_harness._errors import UsageError
from vllm_harness._files.paths import run_folder
from vllm_harness._machine import interrupts
from vllm_harness._machine.shard import Executor, ThisMachine
from vllm_harness._server.leases.allocation import interpreters
from vllm_harness.cli.arguments import with_new_names

COMMAND = "command.json"


@contextmanager
def executor_of(
    ray: str,
    parallel: int | None,
    folder: Path,
    *,
    tests: bool = False,
    bundles: Sequence[Path] | None = None,
    vllm: Sequence[str] = (),
) -> Iterator[Executor]:
    """Yields the executor that the options choose.

    Args:
        ray: the address of a cluster; empty for this machine.
        parallel: the number of shards to run at a time on this machine.
        folder: the folder of the run.
        tests: whether the nodes need the tests of the checkout.
        bundles: the folders of the bundles from which the nodes are set up.
        vllm: the environments that the bundles must provide.

    Raises:
        UsageError: `--jobs` is given for a cluster, a bundle does not fit, or the extra `cluster` is missing.
        BundleError: a bundle is damaged, or was made for another kind of machine.
        ClusterError: the cluster cannot be reached, or Ray is not installed.
    """
    if not ray:
        yield ThisMachine(parallel or interpreters())
        return
    if parallel:
        raise UsageError(
            "--jobs applies to local runs only", hint="leave it out: each node runs as many as fit"
        )
    on_nodes = extensions.load(extensions.CLUSTER, "--ray")
    with on_nodes(ray, folder, tests=tests, bundles=bundles, vllm=vllm) as executor:
        yield executor


def keep_command(folder: Path) -> None:
    """Writes the command line of a run into its folder, for `--resume`."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / COMMAND).write_text(json.dumps(sys.argv[1:]))
    interrupts.keep(folder, *sys.argv[1:2], "--resume", str(folder))


def resume(
    kind: str,
    run: str,
    ray: str,
    main: Callable[[list[str]], object],
    option: str = "--run",
    bundles: Sequence[Path] | None = None,
) -> None:
    """Repeats the command of a run in its folder, as the command of this process, for what is left to do.

    Args:
        kind: the kind of the run, such as `regression`.
        run: the name or folder of the run.
        ray: the address of the cluster, if it differs from the original one.
        main: a function that runs a command line.
        option: the option that names the folder of the run.
        bundles: the bundles for the nodes, if they differ from the original ones.

    Raises:
        UsageError: the run does not exist, or its command line was not stored.
    """
    folder = run_folder(kind, run)
    try:
        arguments = with_new_names([str(argument) for argument in json.loads((folder / COMMAND).read_text())])
    except (OSError, ValueError) as error:
        raise UsageError(
            f"{folder} does not hold a run that can be resumed",
            hint="name the run folder that the command printed",
        ) from error
    given = [(option, str(folder)), *[("--ray", ray)] * bool(ray)]
    given += [("--bundle", str(bundle)) for bundle in bundles or ()]
    original = _without(arguments, *dict(given))
    end = original.index("--") if "--" in original else len(original)
    sys.argv[1:] = [*original[:end], *chain.from_iterable(given), *original[end:]]
    main(sys.argv[1:])


def _without(arguments: Sequence[str], *names: str) -> list[str]:
    """Removes options and their values from arguments."""
    others: list[str] = []
    is_value = False
    for argument in arguments:
        if not is_value and argument.partition("=")[0] not in names:
            others.append(argument)
        is_value = not is_value and argument in names
    return others
