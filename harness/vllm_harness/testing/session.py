"""One pytest run: what it exercises, in which environment, and what it has seen."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest
from rich.console import Console

from vllm_harness.configuration.model_entries import load_registry
from vllm_harness.configuration.targets import Choice, Machine, RunLane, Target, choose
from vllm_harness.endpoint import API_PATHS
from vllm_harness.environments.resolve import resolve, spec_of
from vllm_harness.environments.spec import Environment
from vllm_harness.errors import HarnessError, UsageError
from vllm_harness.machine.gpus import visible_gpus
from vllm_harness.server.attached import AttachedServer
from vllm_harness.server.remote import RemoteServer
from vllm_harness.testing import deviations
from vllm_harness.testing.attempts import refuse_more
from vllm_harness.testing.pool import Pool
from vllm_harness.testing.quality import Decisions, read_reference
from vllm_harness.testing.recorder import Recorder
from vllm_harness.testing.results import TargetResult
from vllm_harness.testing.skips import NOT_SERVED, SLOW

Server = RemoteServer | AttachedServer


@dataclass
class Run:
    """The state of one pytest run.

    Attributes:
        config: pytest's.
        choice: its targets.
        environment: of the servers it starts; None for one that somebody else started.
        reference: decisions to call tools that this run's are held against.
        narrowed: whether tests were left out.
        results: what was seen of each target, by its id.
        servers: the server of each target by its id, or why there is none.
        pool: the servers that it has started.
    """

    config: pytest.Config
    choice: Choice
    environment: Environment | None
    reference: Decisions | None = None
    narrowed: bool = False
    results: dict[str, TargetResult] = field(default_factory=dict)
    servers: dict[str, Server | HarnessError] = field(default_factory=dict)
    pool: Pool = field(default_factory=Pool)

    @property
    def repeats(self) -> int:
        """How often each live test runs."""
        return int(self.config.option.vllm_repeat)

    def result(self, target: str) -> TargetResult:
        """The record of a target, by its id."""
        return self.results.setdefault(target, TargetResult(reference=self.reference))

    def seeds(self, target: Target, item: pytest.Item) -> range:
        """The seeds that a test runs with on a target."""
        once = target.lane == "scripted" or item.get_closest_marker("vllm_greedy")
        return range(1 if once else self.repeats)

    def version(self, target: Target) -> str:
        """Version of the target's server; of one that somebody else started, once it has been asked."""
        return self.environment.vllm_version if self.environment else self.result(target.id).version

    def expected_skips(self, target: Target) -> set[str]:
        """Reason codes that a target's tests may skip for."""
        narrow = target.lane == "attached" or self.config.option.vllm_frontend == "rust"
        return {SLOW, *([NOT_SERVED] if narrow else []), *target.entry.expected_skips}

    def find_gone(self, session: pytest.Session) -> bool:
        """Looks for known deviations that have gone, where the run was full enough; whether there are any.

        Full enough is a run of all the suites, whole, on the scripted lane, where what the model says does
        not depend on luck: no test left out, none failed, none interrupted; and with the flags and the Python
        front end on which the deviations are measured. A deviation that never occurred then is fixed, or no
        test shows it.
        """
        if not self._is_whole(session):
            return False
        for target in self.choice.targets:
            result = self.results.get(target.id)
            if result and target.lane == "scripted" and not result.counts()["failed"]:
                known = target.entry.known_deviations
                result.gone = deviations.gone(known, self.version(target), result.findings.values())
        return any(result.gone for result in self.results.values())

    def _is_whole(self, session: pytest.Session) -> bool:
        option, start = self.config.option, self.config.invocation_params.dir
        narrowing = ("ignore_glob", "lf", "vllm_replay_tokens", "vllm_server_arg")
        return (
            not self.narrowed
            and not any(getattr(option, name, None) for name in narrowing)
            and not (session.shouldstop or session.shouldfail)
            and option.vllm_frontend == "python"
            and deviations.has_every_suite(self.config.rootpath, self.config.args, option.ignore or (), start)
        )


RUN = pytest.StashKey[Run]()
REFUSED = pytest.StashKey[HarnessError]()  # why no memory was set aside for a test
TARGET = pytest.StashKey[Target]()
SEED = pytest.StashKey[int]()
BODY = pytest.StashKey[str]()  # what became of a test's own code


def the_run(config: pytest.Config) -> Run:
    """The run, made when the first test asks for a server. Raises pytest.UsageError."""
    if RUN not in config.stash:
        try:
            run = config.stash[RUN] = _prepare(config)
        except HarnessError as error:
            raise pytest.UsageError(str(error)) from error
        config.pluginmanager.register(Recorder(run.result))
    return config.stash[RUN]


def target_of(item: pytest.Item) -> Target:
    """The target of a test that has one."""
    return item.stash[TARGET]


def result_of(item: pytest.Item) -> TargetResult:
    """The record of a test's target."""
    return the_run(item.config).result(item.stash[TARGET].id)


def case_of(item: pytest.Item) -> str:
    """A test's id without its seed."""
    target = item.stash[TARGET].id
    return item.nodeid.replace(f"{target}-seed{item.stash[SEED]}", target)


def case_anywhere(item: pytest.Item) -> str:
    """A test's id without target and seed, so that runs of several targets can be compared."""
    target = item.stash[TARGET].id
    return case_of(item).replace(f"[{target}]", "").replace(f"[{target}-", "[").replace(f"-{target}]", "]")


def needed_by(item: pytest.Item | pytest.Function) -> set[str]:
    """What a test asks of its model entry and server."""
    return {name for marker in item.iter_markers("vllm_needs") for name in marker.args}


def servers_of(item: pytest.Item) -> int:
    """How many servers a test uses at once: as its mark says, else the target's where it asks for it."""
    mark = item.get_closest_marker("vllm_servers")
    return int(mark.args[0]) if mark else int("vllm_server" in getattr(item, "fixturenames", ()))


def is_for(item: pytest.Item | pytest.Function, target: Target, lane: RunLane) -> bool:
    """Whether a test is for a target, taken as one of this lane."""
    entry = target.entry
    if (item.get_closest_marker("vllm_harmony") and not entry.harmony) or (
        item.get_closest_marker("vllm_standard") and entry.harmony
    ):
        return False
    lanes = [each for each in ("scripted", "live") if item.get_closest_marker(f"vllm_{each}")]
    if lanes and lane not in lanes:
        return False
    marker = item.get_closest_marker("vllm_model")
    named = marker.args if marker else ()
    needed = needed_by(item) - set(API_PATHS)
    return (not named or bool({entry.name, entry.hub.id} & set(named))) and needed <= entry.capabilities


def _prepare(config: pytest.Config) -> Run:
    option = config.option
    if option.vllm_repeat < 1:
        raise UsageError("--vllm-repeat wants a number of 1 or more")
    refuse_more(option)
    reference = read_reference(option.vllm_quality_reference) if option.vllm_quality_reference else None
    entries = load_registry(option.vllm_models_file)
    if option.vllm_server_url:
        choice = choose(entries, Machine("cpu"), models=_one_model(option.vllm_model), lane="attached")
        return Run(config, choice, None, reference)
    environment = resolve(
        spec_of(option.vllm_spec, option.vllm_python), device=option.vllm_device, create=True, progress=_say
    )
    memory = tuple(gpu.total_bytes / 2**30 for gpu in visible_gpus()) if environment.device == "cuda" else ()
    machine = Machine(environment.device, memory, option.vllm_frontend)
    lane: RunLane | None = "scripted" if option.vllm_replay_tokens else option.vllm_lane
    choice = choose(entries, machine, models=option.vllm_model, lane=lane)
    if option.vllm_write_quality_reference and len(choice.targets) != 1:
        raise UsageError(
            "--vllm-write-quality-reference keeps one target's run",
            hint="add --vllm-model and --vllm-lane live",
        )
    return Run(config, choice, environment, reference)


def _one_model(models: list[str]) -> list[str]:
    if len(models) != 1:
        raise UsageError("--vllm-server-url needs one --vllm-model", hint="the entry tells which tests apply")
    return models


def _say(text: str) -> None:
    Console(stderr=True, highlight=False).print(text)
