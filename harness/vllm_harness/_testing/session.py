"""The state of a pytest run: its targets, the environment of its servers, and its results."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest

from vllm_harness._configuration.model_entries import RunLane, load_models
from vllm_harness._configuration.targets import Choice, Machine, Target, choose
from vllm_harness._defects.entry import Defect
from vllm_harness._defects.registry import Defects, gateway_deviations, known_deviations, load_defects
from vllm_harness._environments.planned import PlannedEnvironment, plan
from vllm_harness._environments.resolve import spec_of
from vllm_harness._errors import HarnessError, UsageError
from vllm_harness._exchange.endpoint import API_PATHS
from vllm_harness._exchange.server import VllmServer
from vllm_harness._machine.gpus import visible_gpus
from vllm_harness._protocol import KnownDeviation
from vllm_harness._testing.attempts import refuse_more
from vllm_harness._testing.cases import case_id
from vllm_harness._testing.manager import ServerManager
from vllm_harness._testing.options import models_file
from vllm_harness._testing.quality import Decisions, read_reference
from vllm_harness._testing.recorder import ReportRecorder
from vllm_harness._testing.results import TargetResult
from vllm_harness._testing.skips import NOT_SERVED, OTHER_DEVICE, SLOW


@dataclass
class PytestRun:
    """The state of one pytest run.

    Attributes:
        config: pytest's configuration.
        choice: the chosen targets.
        defects: the known defects.
        planned: the environment of the servers that the run starts; None for an attached server.
        reference: a reference run's decisions to call tools, with which this run's are compared, if any.
        results: the result of each target, by its id.
        servers: the servers of the targets, and all other servers that the run has started.
    """

    config: pytest.Config
    choice: Choice
    defects: Defects
    planned: PlannedEnvironment | None
    reference: Decisions | None = None
    results: dict[str, TargetResult] = field(default_factory=dict)
    servers: ServerManager = field(init=False)
    _known: dict[tuple[str, str], tuple[KnownDeviation, ...]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.servers = ServerManager(self.config, self.planned, self.result)

    def known_of(self, server: VllmServer) -> tuple[KnownDeviation, ...]:
        """The known deviations of a server's model entry and version, and of the gateway in front of it."""
        model, version = server.entry.name, server.vllm_version
        if (model, version) not in self._known:
            gateway = gateway_deviations(self.config.option.vllm_product or "", self.defects)
            self._known[model, version] = (*known_deviations(model, version, self.defects), *gateway)
        return self._known[model, version]

    def result(self, target: str) -> TargetResult:
        """The result of a target, by its id."""
        return self.results.setdefault(target, TargetResult(reference=self.reference))

    def is_scripted(self, target: Target) -> bool:
        """Whether tests script the model; an attached server may have a scripted server behind it."""
        return target.lane == "scripted" or bool(self.config.option.vllm_books_url)

    def seeds(self, target: Target, item: pytest.Item) -> range:
        """The seeds that a test runs with on a target."""
        once = self.is_scripted(target) or item.get_closest_marker("vllm_greedy")
        return range(1 if once else self.config.option.vllm_repeat)

    def version(self, target: Target) -> str:
        """The vLLM version of the target's server; "0" for an attached server that has not answered yet."""
        return self.planned.vllm_version if self.planned else self.result(target.id).vllm or "0"

    def expected_skips(self, target: Target) -> set[str]:
        """The reason codes with which a target's tests may be skipped."""
        narrow = target.lane == "attached" or self.config.option.vllm_frontend == "rust"
        return {SLOW, OTHER_DEVICE, *([NOT_SERVED] if narrow else []), *target.entry.expected_skips}


RUN = pytest.StashKey[PytestRun]()
NO_RUN = pytest.StashKey[HarnessError]()  # why there is no run
TARGET = pytest.StashKey[Target]()
SEED = pytest.StashKey[int]()
BODY = pytest.StashKey[str]()  # the outcome of a test's own code
SHOWN = pytest.StashKey[Defect]()  # the known defect that a test showed


def the_run(config: pytest.Config) -> PytestRun:
    """The run, prepared when the first test that uses a server is collected.

    Raises:
        HarnessError: the options do not make a valid run.
    """
    if RUN not in config.stash:
        run = config.stash[RUN] = _prepare(config)
        config.pluginmanager.register(ReportRecorder(run.result))
    return config.stash[RUN]


def result_of(item: pytest.Item) -> TargetResult:
    """The result of a test's target."""
    return the_run(item.config).result(item.stash[TARGET].id)


def case_of(item: pytest.Item) -> str:
    """A test's id without its seed."""
    target = item.stash[TARGET].id
    return item.nodeid.replace(f"{target}-seed{item.stash[SEED]}", target)


def case_anywhere(item: pytest.Item) -> str:
    """A test's id without target and seed, so that targets can be compared."""
    return case_id(case_of(item), item.stash[TARGET].id)


def needed_by(item: pytest.Item | pytest.Function) -> set[str]:
    """The capabilities and APIs that a test needs."""
    return {name for marker in item.iter_markers("vllm_needs") for name in marker.args}


def servers_of(item: pytest.Item) -> int:
    """How many servers a test uses at once: the number in its mark, or 1 if it has the server fixture."""
    mark = item.get_closest_marker("vllm_servers")
    return int(mark.args[0]) if mark else int("vllm_server" in getattr(item, "fixturenames", ()))


def is_for(item: pytest.Item | pytest.Function, target: Target, lane: RunLane) -> bool:
    """Whether a test would be for a target if the target were on this lane."""
    entry = target.entry
    if (item.get_closest_marker("vllm_harmony") and not entry.harmony) or (
        item.get_closest_marker("vllm_standard") and entry.harmony
    ):
        return False
    lanes = [name for name in ("scripted", "live") if item.get_closest_marker(f"vllm_{name}")]
    if lanes and lane not in lanes:
        return False
    marker = item.get_closest_marker("vllm_model")
    models = marker.args if marker else ()
    needed = needed_by(item) - set(API_PATHS)
    return (not models or bool({entry.name, entry.hub.id} & set(models))) and needed <= entry.capabilities


def uses_scripts(item: pytest.Item) -> bool:
    """Whether a finished test must have used all its scripts; a test that shows a defect may end early."""
    body = item.stash.get(BODY, None)
    return item.stash[SHOWN].scripts == "used" if body == "defect" else body in {"passed", "failed"}


def is_repeated(item: pytest.Item) -> bool:
    """Whether a test runs with several seeds on its target."""
    return len(the_run(item.config).seeds(item.stash[TARGET], item)) > 1


def _prepare(config: pytest.Config) -> PytestRun:
    option = config.option
    if option.vllm_repeat < 1:
        raise UsageError(
            f"--vllm-repeat must be 1 or more, not {option.vllm_repeat}",
            hint="leave it out to run each test once",
        )
    refuse_more(option)
    reference = read_reference(option.vllm_quality_reference) if option.vllm_quality_reference else None
    entries = load_models(models_file(config))
    defects = load_defects(option.vllm_folder)
    if option.vllm_books_url and not option.vllm_server_url:
        raise UsageError(
            "--vllm-books-url needs --vllm-server-url: it names the scripted server behind that URL",
            hint="add --vllm-server-url, or leave out --vllm-books-url to start a scripted server",
        )
    gateway_deviations(option.vllm_product or "", defects)  # raises an error if the name is invalid
    if option.vllm_server_url:
        choice = choose(entries, Machine("cpu"), models=_one_model(option.vllm_model), lane="attached")
        return PytestRun(config, choice, defects, None, reference)
    planned = plan(spec_of(option.vllm, option.vllm_python), option.vllm_device)
    memory = tuple(gpu.total_bytes / 2**30 for gpu in visible_gpus()) if planned.device == "cuda" else ()
    machine = Machine(planned.device, memory, option.vllm_frontend)
    lane: RunLane | None = "scripted" if option.vllm_replay_tokens else option.vllm_lane
    choice = choose(entries, machine, models=option.vllm_model, lane=lane)
    if option.vllm_write_quality_reference and len(choice.targets) != 1:
        raise UsageError(
            "--vllm-write-quality-reference needs a run with one target",
            hint="add --vllm-model and --vllm-lane live",
        )
    return PytestRun(config, choice, defects, planned, reference)


def _one_model(models: list[str]) -> list[str]:
    if len(models) != 1:
        raise UsageError(
            "--vllm-server-url needs one --vllm-model", hint="the entry decides which tests apply"
        )
    return models
