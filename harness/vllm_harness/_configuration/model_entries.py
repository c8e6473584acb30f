"""models.yaml: the model entries, validated; every error names file, line and key."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from difflib import get_close_matches
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import ConfigDict, Field, model_validator

from vllm_harness._errors import UsageError
from vllm_harness._files.located_yaml import Location, YamlFileError, read_yaml
from vllm_harness._files.paths import data_path
from vllm_harness._files.strict import StrictModel, keys_of

TEMPLATES = Path(__file__).parents[1] / "templates"

Lane = Literal["live", "scripted"]
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
    """models.yaml is missing, malformed, or has no such entry."""


class _EntryModel(StrictModel):
    model_config = ConfigDict(coerce_numbers_to_str=True)


class Hub(_EntryModel):
    """Where the real weights live.

    Attributes:
        id: repository on the model hub, `owner/name`.
        revision: branch, tag or commit.
        gated: whether downloading needs an accepted licence and a token.
    """

    id: str = Field(pattern=r"^[\w.-]+/[\w.-]+$")
    revision: str = "main"
    gated: bool = False


class Hardware(_EntryModel):
    """What the live lane needs.

    Attributes:
        devices: devices the live lane can run on.
        gpus: number of GPUs for `cuda`.
        gpu_memory_gib: memory of each GPU, GiB.
        cpu_memory_gib: memory of the machine for `cpu`, GiB.
    """

    devices: tuple[Device, ...] = ("cuda",)
    gpus: int = Field(1, ge=1)
    gpu_memory_gib: float = Field(24, gt=0)
    cpu_memory_gib: float = Field(8, gt=0)


class Limits(_EntryModel):
    """Bounds for one model entry.

    Attributes:
        startup_s: seconds until a server must be ready.
        request_s: seconds until a request must be answered.
        live_attempts: how often a live case may be tried in total; every attempt is counted.
    """

    startup_s: float = Field(600, gt=0)
    request_s: float = Field(120, gt=0)
    live_attempts: int = Field(1, ge=1, le=10)


class Flags(_EntryModel):
    """Command-line arguments and environment variables added for one device or lane."""

    args: tuple[str, ...] = ()
    env: dict[str, str] = Field(default_factory=dict)


class StandIn(_EntryModel):
    """A tiny checkpoint for the scripted lane, in a named entry of the model's own architecture.

    Attributes:
        config: its config.json: the real shape with small dimensions.
        generation_config: its generation_config.json: the ids that end a turn, no sampling defaults.
        tokenizer: name of the tokenizer asset (its sources and sha256 stand in env/assets.yaml), or the
            absolute path of a tokenizer's folder.
        tokens: added tokens that the asset names otherwise: id -> text.
        further_tokens: special tokens after those of the asset; ids between them are reserved: id -> text.
        processors: of images: name of a file of the checkpoint, such as preprocessor_config.json -> content.
        assets: further assets it needs: name of an environment variable -> asset name.
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
    """A model: how its server is started, and its capabilities.

    Attributes:
        name: key in models.yaml.
        hub: where the real weights live.
        weights: name of an asset that holds the weights where no hub is reachable.
        family: model family.
        dialect: dialect that renders scripts for it; None where there is none yet.
        harmony: whether it uses OpenAI's Harmony format.
        tool_call_parser, reasoning_parser: vLLM's names.
        chat_template: file in harness/vllm_harness/templates, None for the tokenizer's own.
        args, env: server arguments and environment for every lane and device.
        live, cpu, cuda: flags that are added on the live lane, and on each device.
        capabilities: abilities that its tests may rely on.
        expected_skips: reason codes that its tests may skip for; any other skip fails the run.
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
    def _lanes_have_what_they_need(self) -> ModelEntry:
        if "scripted" in self.lanes and self.stand_in is None:
            raise ValueError("lane 'scripted' needs 'stand_in'")
        if "scripted" in self.lanes and self.dialect is None:
            raise ValueError("lane 'scripted' needs 'dialect'")
        return self

    def serves(self, lane: Lane) -> bool:
        """Whether a server can be started on a lane, be it listed in `lanes` or not."""
        return lane in self.lanes or (lane == "scripted" and self.stand_in is not None)

    @property
    def chat_template_path(self) -> Path | None:
        """Path of the chat template, None for the tokenizer's own."""
        return TEMPLATES / self.chat_template if self.chat_template else None

    def parsers(self, frontend: Frontend) -> tuple[str | None, str | None]:
        """Tool call and reasoning parser; the Rust front end chooses Harmony by the model, not by a name."""
        if frontend == "rust" and self.harmony:
            return None, None
        return self.tool_call_parser, self.reasoning_parser

    def flags(self, lane: Lane, device: Device, frontend: Frontend = "python") -> Flags:
        """The entry's flags and variables for a server on a lane, device and front end.

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
    """All model entries of one models.yaml, in its order."""

    path: Path
    models: dict[str, ModelEntry]

    def __iter__(self) -> Iterator[ModelEntry]:  # type: ignore[override]
        return iter(self.models.values())

    def get(self, name: str) -> ModelEntry:
        """The entry of a name or of a hub id; ModelsFileError with the nearest names otherwise."""
        if name in self.models:
            return self.models[name]
        by_hub = {entry.hub.id.lower(): entry for entry in self}
        if name.lower() in by_hub:
            return by_hub[name.lower()]
        written = {known.lower(): known for known in (*self.models, *(entry.hub.id for entry in self))}
        near = [written[known] for known in get_close_matches(name.lower(), written, n=3, cutoff=0.4)]
        raise ModelsFileError(
            f"unknown model {name!r} in {self.path}",
            hint=f"did you mean {', '.join(near)}?" if near else "`vllm-harness models` lists the entries",
        )


def load_models(path: Path | None = None) -> ModelsFile:
    """Reads and validates a models.yaml (default: the project's own).

    Raises:
        ModelsFileError: naming file, line and key.
    """
    path = path or data_path("models.yaml")
    try:
        document = read_yaml(path)
    except YamlFileError as error:
        raise ModelsFileError(error.message, hint=error.hint) from error
    data = document.data
    if not isinstance(data, dict) or not isinstance(data.get("models"), dict):
        raise ModelsFileError(
            f"{path}:1: a top-level key 'models' with a mapping of entries is missing",
            hint="write the entries below `models:`, as `vllm-harness init` does",
        )
    if unknown := set(data) - {"models"}:
        key = min(map(str, unknown))
        raise ModelsFileError(
            f"{path}:{document.line((key,))}: {key}: unknown key",
            hint="move it into an entry, or below `models:`",
        )
    for name, body in data["models"].items():
        if isinstance(body, dict) and "name" in body:
            line = document.line(("models", name, "name"))
            raise ModelsFileError(
                f"{path}:{line}: models.{name}.name: the name of an entry is its key",
                hint="leave `name` out",
            )
    named = {**data, "path": path, "models": _named(data["models"])}
    return document.validated(ModelsFile, ModelsFileError, _keys_at, named)


def _named(models: dict[str, Any]) -> dict[str, Any]:
    return {name: {**body, "name": name} if isinstance(body, dict) else body for name, body in models.items()}


def _keys_at(location: Location) -> Collection[str]:
    """The keys of the mapping at `models.<entry>` or in one of its parts."""
    return keys_of(ModelsFile, location) if location else ()
