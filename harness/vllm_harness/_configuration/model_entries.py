"""Reads and validates the model entries of models.yaml; every error names file, line and key."""

from __future__ import annotations

from collections.abc import Iterator
from difflib import get_close_matches
from functools import partial
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, ConfigDict, Field, PrivateAttr, model_validator

from vllm_harness._errors import UsageError
from vllm_harness._files.located_yaml import YamlFileError, read_yaml
from vllm_harness._files.paths import data_path
from vllm_harness._files.strict import StrictModel, keys_of, with_names

TEMPLATES = Path(__file__).parents[1] / "templates"

Lane = Literal["live", "scripted"]
RunLane = Literal["live", "scripted", "attached"]
"""The lane of a run, which may also be attached to a running server."""
Device = Literal["cpu", "cuda"]
Frontend = Literal["python", "rust"]
ProcessorFile = Annotated[str, Field(pattern=r"^[a-z_]*processor_config\.json$")]
Capability = Literal[
    "tools",
    "auto_tools",
    "parallel_tools",
    "reasoning",
    "structured_output",
    "store",
    "background",
    "mcp",
    "image",
]


class ModelsFileError(UsageError):
    """models.yaml is missing or malformed, or lacks the requested entry."""


class _EntryModel(StrictModel):
    model_config = ConfigDict(coerce_numbers_to_str=True)


class Hub(_EntryModel):
    """Where the real weights of the model are stored.

    Attributes:
        id: repository on the model hub, `owner/name`.
        revision: branch, tag or commit.
        gated: whether a download needs an accepted licence and a token.
    """

    id: str = Field(pattern=r"^[\w.-]+/[\w.-]+$")
    revision: str = "main"
    gated: bool = False


class Hardware(_EntryModel):
    """The hardware that the live lane needs.

    Attributes:
        devices: devices that the live lane can run on.
        gpus: number of GPUs on `cuda`.
        gpu_memory_gib: memory of each GPU, GiB.
        cpu_memory_gib: memory of the machine on `cpu`, GiB.
    """

    devices: tuple[Device, ...] = ("cuda",)
    gpus: int = Field(1, ge=1)
    gpu_memory_gib: float = Field(24, gt=0)
    cpu_memory_gib: float = Field(8, gt=0)


class Limits(_EntryModel):
    """Limits of a model entry.

    Attributes:
        startup_s: seconds within which a server must be ready.
        request_s: seconds within which a request must be answered.
        live_attempts: how many times a live case may be tried in total; the results count every attempt.
    """

    startup_s: float = Field(600, gt=0)
    request_s: float = Field(120, gt=0)
    live_attempts: int = Field(1, ge=1, le=10)


class Flags(_EntryModel):
    """Command-line arguments and environment variables for a device or lane."""

    args: tuple[str, ...] = ()
    env: dict[str, str] = Field(default_factory=dict)


class StandIn(_EntryModel):
    """A tiny checkpoint of the model's own architecture, for the scripted lane.

    Attributes:
        config: content of config.json: that of the real model, with small dimensions.
        generation_config: content of generation_config.json: the ids that end a turn, no sampling defaults.
        tokenizer: name of the tokenizer asset (env/assets.yaml lists its sources and sha256), or the absolute
            path of a tokenizer's folder.
        tokens: added tokens whose text is different in the asset: id -> text.
        further_tokens: special tokens to add after those of the asset; gaps are filled: id -> text.
        processors: image processors: file name, such as preprocessor_config.json -> content of the file.
        assets: further assets that a server needs: environment variable for the path -> asset name.
        args: server arguments for the stand-in only.
        stop: text of the token that ends a turn.
    """

    config: dict[str, Any]
    generation_config: dict[str, Any]
    tokenizer: str
    tokens: dict[int, str] = Field(default_factory=dict)
    further_tokens: dict[int, str] = Field(default_factory=dict)
    processors: dict[ProcessorFile, dict[str, Any]] = Field(default_factory=dict)
    assets: dict[str, str] = Field(default_factory=dict)
    args: tuple[str, ...] = ()
    stop: str


class ModelEntry(_EntryModel):
    """A model entry: how to start a server for the model, and what the model is capable of.

    Attributes:
        name: key in models.yaml.
        hub: where the real weights are stored.
        weights: name of an asset that contains the weights, for machines without access to the hub.
        family: model family.
        dialect: dialect that renders scripts for the model; None if there is none yet.
        harmony: whether the model uses OpenAI's Harmony format.
        tool_call_parser, reasoning_parser: vLLM's names of the parsers.
        chat_template: file in harness/vllm_harness/templates; None to use the tokenizer's own.
        args, env: server arguments and environment variables for every lane and device.
        live, cpu, cuda: flags to add on the live lane, on CPU and on CUDA.
        hardware: the hardware that the live lane needs.
        limits: time limits, and the limit on attempts.
        lanes: the lanes that a run uses by default.
        capabilities: abilities that tests of the model may rely on.
        expected_skips: reason codes with which its tests may be skipped; any other skip fails the run.
        stand_in: the checkpoint for the scripted lane.
    """

    name: str
    hub: Hub
    weights: str | None = None
    family: str
    dialect: str | None = None
    harmony: bool = False
    tool_call_parser: str | None = None
    reasoning_parser: str | None = None
    chat_template: str | None = None
    args: tuple[str, ...] = ()
    env: dict[str, str] = Field(default_factory=dict)
    live: Flags = Flags()
    cpu: Flags = Flags()
    cuda: Flags = Flags()
    hardware: Hardware = Hardware()
    limits: Limits = Limits()
    lanes: tuple[Lane, ...] = Field(min_length=1)
    capabilities: frozenset[Capability] = frozenset()
    expected_skips: frozenset[str] = frozenset()
    stand_in: StandIn | None = None

    @model_validator(mode="after")
    def _check_lanes(self) -> ModelEntry:
        if "scripted" in self.lanes and self.stand_in is None:
            raise ValueError("lane 'scripted' needs 'stand_in'")
        if "scripted" in self.lanes and self.dialect is None:
            raise ValueError("lane 'scripted' needs 'dialect'")
        return self

    def serves(self, lane: Lane) -> bool:
        """Whether a server can be started on a lane, even if `lanes` does not list it."""
        return lane in self.lanes or (lane == "scripted" and self.stand_in is not None)

    @property
    def chat_template_path(self) -> Path | None:
        """The path of the chat template; None to use the tokenizer's own template."""
        return TEMPLATES / self.chat_template if self.chat_template else None

    def parsers(self, frontend: Frontend) -> tuple[str | None, str | None]:
        """The tool call and reasoning parsers; None if the Rust front end chooses its own for Harmony."""
        if frontend == "rust" and self.harmony:
            return None, None
        return self.tool_call_parser, self.reasoning_parser

    def flags(self, lane: Lane, device: Device, frontend: Frontend = "python") -> Flags:
        """The entry's flags and environment variables for a server on a lane, device and front end.

        They do not include the arguments that a stand-in needs.
        """
        lane_flags = self.live if lane == "live" else Flags()
        device_flags = self.cpu if device == "cpu" else self.cuda
        parallel = device == "cuda" and lane == "live" and self.hardware.gpus > 1
        parallel_args = ("--tensor-parallel-size", str(self.hardware.gpus)) if parallel else ()
        return Flags(
            args=(
                *self._parser_args(frontend),
                *parallel_args,
                *self.args,
                *lane_flags.args,
                *device_flags.args,
            ),
            env={**self.env, **lane_flags.env, **device_flags.env},
        )

    def _parser_args(self, frontend: Frontend) -> tuple[str, ...]:
        tool_call_parser, reasoning_parser = self.parsers(frontend)
        named = {
            "--tool-call-parser": tool_call_parser,
            "--reasoning-parser": reasoning_parser,
            "--chat-template": self.chat_template_path,
        }
        given = tuple(part for flag, value in named.items() if value for part in (flag, str(value)))
        return ("--enable-auto-tool-choice", *given) if tool_call_parser else given


class ModelsFile(_EntryModel):
    """All model entries of one models.yaml, in file order."""

    models: Annotated[dict[str, ModelEntry], BeforeValidator(with_names)]
    _path: Path = PrivateAttr()

    @property
    def path(self) -> Path:
        """The path of the models.yaml."""
        return self._path

    def __iter__(self) -> Iterator[ModelEntry]:  # type: ignore[override]
        return iter(self.models.values())

    def get(self, name: str) -> ModelEntry:
        """The entry with a name or hub id. Raises ModelsFileError, which suggests names, if there is none."""
        if name in self.models:
            return self.models[name]
        by_hub = {entry.hub.id.lower(): entry for entry in self}
        if name.lower() in by_hub:
            return by_hub[name.lower()]
        written = {known.lower(): known for known in (*self.models, *(entry.hub.id for entry in self))}
        near = [written[known] for known in get_close_matches(name.lower(), written, n=3, cutoff=0.4)]
        raise ModelsFileError(
            f"unknown model {name!r} in {self._path}",
            hint=f"did you mean {', '.join(near)}?" if near else "`vllm-harness models` lists the entries",
        )


def load_models(path: Path | None = None) -> ModelsFile:
    """Reads and validates a models.yaml; by default, the project's own.

    Raises:
        ModelsFileError: the file is missing or invalid; the message names file, line and key.
    """
    path = path or data_path("models.yaml")
    try:
        document = read_yaml(path)
    except YamlFileError as error:
        raise ModelsFileError(error.message, hint=error.hint) from error
    if not isinstance(document.data, dict) or not isinstance(document.data.get("models"), dict):
        raise ModelsFileError(
            f"{path}:1: a top-level key 'models' with a mapping of entries is missing",
            hint="write the entries below `models:`, as `vllm-harness init` does",
        )
    file = document.validated(ModelsFile, ModelsFileError, partial(keys_of, ModelsFile))
    file._path = path
    return file
