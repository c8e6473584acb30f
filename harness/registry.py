"""models.yaml: the model entries, validated; every error names file, line and key."""

from __future__ import annotations

from collections.abc import Iterator
from difflib import get_close_matches
from pathlib import Path
from typing import Annotated, Any, Literal

import yaml
from packaging.specifiers import InvalidSpecifier, SpecifierSet
from packaging.version import Version
from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError, model_validator

from harness.errors import UsageError
from harness.paths import data_path

MAX_BYTES = 2_000_000
TEMPLATES = Path(__file__).parent / "templates"

Lane = Literal["live", "scripted"]
Device = Literal["cpu", "cuda"]
Capability = Literal[
    "tools", "parallel_tools", "reasoning", "structured_output", "store", "background", "mcp", "image"
]


class RegistryError(UsageError):
    """models.yaml is missing, malformed, or has no such entry."""


def _specifier(text: str) -> str:
    try:
        SpecifierSet(text)
    except InvalidSpecifier as error:
        raise ValueError(f"not a version specifier such as '>=0.22,<0.26': {text!r}") from error
    return text


Specifier = Annotated[str, AfterValidator(_specifier)]


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, coerce_numbers_to_str=True)


class Hub(_Strict):
    """Where the real weights live.

    Attributes:
        id: repository on the model hub, `owner/name`.
        revision: branch, tag or commit.
        gated: whether downloading needs an accepted licence and a token.
    """

    id: str = Field(pattern=r"^[\w.-]+/[\w.-]+$")
    revision: str = "main"
    gated: bool = False


class Hardware(_Strict):
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


class Limits(_Strict):
    """Bounds for one model entry.

    Attributes:
        startup_s: seconds until a server must be ready.
        request_s: seconds until a request must be answered.
        live_attempts: how often a live case may be tried in all; every one is counted.
    """

    startup_s: float = Field(600, gt=0)
    request_s: float = Field(120, gt=0)
    live_attempts: int = Field(1, ge=1, le=10)


class Flags(_Strict):
    """Command-line arguments and environment variables added for one device or lane."""

    args: tuple[str, ...] = ()
    env: dict[str, str] = {}


class KnownDeviation(_Strict):
    """A named difference from the OpenAI contract that this model entry is known to show.

    Attributes:
        code: the finding's code, such as `RS101`.
        reference: upstream issue or pull request.
        versions: vLLM versions it holds for, a version specifier.
        note: one sentence.
        path: the finding's JSON path, where the code alone is too wide.
    """

    code: str = Field(pattern=r"^[A-Z]{2}\d{3}$")
    reference: str
    versions: Specifier
    note: str
    path: str | None = None


class StandIn(_Strict):
    """A tiny checkpoint of the family's own architecture for the scripted lane.

    Attributes:
        config: its config.json: the real shape with small dimensions.
        generation_config: its generation_config.json: the ids that end a turn, no sampling defaults.
        tokenizer: name of the tokenizer asset (its sources and sha256 stand in env/assets.yaml).
        tokens: added tokens that the asset names otherwise: id -> text.
        assets: further assets it needs: name of an environment variable -> asset name.
        args: server arguments for the stand-in only.
        stop: text of the token that ends a turn.
    """

    config: dict[str, Any]
    generation_config: dict[str, Any]
    tokenizer: str
    tokens: dict[int, str] = {}
    assets: dict[str, str] = {}
    args: tuple[str, ...] = ()
    stop: str


class ModelEntry(_Strict):
    """One model: how its server is started and what it can do.

    Attributes:
        name: key in models.yaml.
        hub: where the real weights live.
        weights: name of an asset that holds the weights where no hub is reachable.
        family: model family.
        dialect: dialect that renders scripts for it; None where none is written yet.
        harmony: whether it speaks OpenAI's Harmony format.
        tool_call_parser, reasoning_parser: vLLM's names.
        chat_template: file in harness/templates, None for the tokenizer's own.
        args, env: server arguments and environment for every lane and device.
        live, cpu, cuda: what is added on the live lane, and on each device.
        capabilities: what its tests may ask of it.
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
    env: dict[str, str] = {}
    live: Flags = Flags()
    cpu: Flags = Flags()
    cuda: Flags = Flags()
    hardware: Hardware = Hardware()
    limits: Limits = Limits()
    lanes: tuple[Lane, ...] = Field(min_length=1)
    capabilities: frozenset[Capability] = frozenset()
    known_deviations: tuple[KnownDeviation, ...] = ()
    stand_in: StandIn | None = None

    @model_validator(mode="after")
    def _lanes_have_what_they_need(self) -> ModelEntry:
        if "scripted" in self.lanes and self.stand_in is None:
            raise ValueError("lane 'scripted' needs 'stand_in'")
        if "scripted" in self.lanes and self.dialect is None:
            raise ValueError("lane 'scripted' needs 'dialect'")
        return self

    @property
    def chat_template_path(self) -> Path | None:
        """Path of the chat template, None for the tokenizer's own."""
        return TEMPLATES / self.chat_template if self.chat_template else None

    def flags(self, lane: Lane, device: Device) -> Flags:
        """What the entry adds to a server's command line and environment on a lane and device.

        A stand-in's own arguments are not among them: `harness.scripted.standin.stand_in_args` has those.
        """
        lane_flags = self.live if lane == "live" else Flags()
        device_flags = self.cpu if device == "cpu" else self.cuda
        parallel = device == "cuda" and lane == "live" and self.hardware.gpus > 1
        parallel_args = ("--tensor-parallel-size", str(self.hardware.gpus)) if parallel else ()
        return Flags(
            args=(
                *self._parser_args(),
                *parallel_args,
                *self.args,
                *lane_flags.args,
                *device_flags.args,
            ),
            env={**self.env, **lane_flags.env, **device_flags.env},
        )

    def _parser_args(self) -> tuple[str, ...]:
        named = {
            "--tool-call-parser": self.tool_call_parser,
            "--reasoning-parser": self.reasoning_parser,
            "--chat-template": self.chat_template_path,
        }
        given = tuple(part for flag, value in named.items() if value for part in (flag, str(value)))
        return ("--enable-auto-tool-choice", *given) if self.tool_call_parser else given

    def deviations_for(self, version: str) -> tuple[KnownDeviation, ...]:
        """The known deviations that hold for a vLLM version such as `0.32.0`."""
        parsed = Version(version)
        return tuple(
            d for d in self.known_deviations if SpecifierSet(d.versions).contains(parsed, prereleases=True)
        )


class Registry(_Strict):
    """All model entries of one models.yaml, in its order."""

    path: Path
    models: dict[str, ModelEntry]

    def __iter__(self) -> Iterator[ModelEntry]:  # type: ignore[override]
        return iter(self.models.values())

    def get(self, name: str) -> ModelEntry:
        """The entry of a name or of a hub id; RegistryError with the nearest names otherwise."""
        if name in self.models:
            return self.models[name]
        by_hub = {entry.hub.id.lower(): entry for entry in self}
        if name.lower() in by_hub:
            return by_hub[name.lower()]
        near = get_close_matches(name, [*self.models, *by_hub], n=3, cutoff=0.4)
        raise RegistryError(
            f"unknown model {name!r} in {self.path}",
            hint=f"did you mean {', '.join(near)}?" if near else "`vllm-harness models` lists the entries",
        )


def load_registry(path: Path | None = None) -> Registry:
    """Reads and validates a models.yaml (default: the project's own).

    Raises:
        RegistryError: naming file, line and key.
    """
    path = path or data_path("models.yaml")
    document = _read(path)
    root = _compose(document, path)
    data = yaml.safe_load(document)
    models = data.get("models") if isinstance(data, dict) else None
    if not isinstance(models, dict) or set(data) != {"models"}:
        raise RegistryError(f"{path}:1: expected one top-level key 'models' with a mapping of entries")
    try:
        entries = {
            name: {"name": name, **body} if isinstance(body, dict) else body for name, body in models.items()
        }
        return Registry.model_validate({"path": path, "models": entries})
    except ValidationError as error:
        raise RegistryError("\n".join(_located(error, root, path))) from error


def _read(path: Path) -> str:
    try:
        raw = path.read_bytes()
    except OSError as error:
        raise RegistryError(
            f"{path}: {error.strerror}", hint="name another file with --models-file"
        ) from error
    if len(raw) > MAX_BYTES:
        raise RegistryError(f"{path}: {len(raw)} bytes, more than {MAX_BYTES}")
    try:
        return raw.decode()
    except UnicodeDecodeError as error:
        raise RegistryError(f"{path}: not UTF-8 at byte {error.start}") from error


def _compose(document: str, path: Path) -> yaml.Node:
    try:
        root = yaml.compose(document, Loader=yaml.SafeLoader)
    except yaml.MarkedYAMLError as error:
        line = error.problem_mark.line + 1 if error.problem_mark else 1
        raise RegistryError(f"{path}:{line}: {error.problem or error.context}") from error
    except yaml.YAMLError as error:
        raise RegistryError(f"{path}: {error}") from error
    if root is None:
        raise RegistryError(f"{path}:1: the file is empty")
    _refuse_duplicates(root, path)
    return root


def _refuse_duplicates(node: yaml.Node, path: Path) -> None:
    if isinstance(node, yaml.MappingNode):
        seen: set[str] = set()
        for key, value in node.value:
            if key.value in seen:
                raise RegistryError(f"{path}:{key.start_mark.line + 1}: key {key.value!r} stands twice")
            seen.add(str(key.value))
            _refuse_duplicates(value, path)
    elif isinstance(node, yaml.SequenceNode):
        for value in node.value:
            _refuse_duplicates(value, path)


def _located(error: ValidationError, root: yaml.Node, path: Path) -> Iterator[str]:
    for problem in error.errors():
        location = problem["loc"]
        key = ".".join(str(part) for part in location)
        message = problem["msg"].removeprefix("Value error, ")
        if problem["type"] == "extra_forbidden":
            message = "unknown key" + _nearest_key(location)
        yield f"{path}:{_line_of(root, location)}: {key}: {message}"


def _nearest_key(location: tuple[int | str, ...]) -> str:
    fields = [*ModelEntry.model_fields] if len(location) == 3 else []
    near = get_close_matches(str(location[-1]), fields, n=1)
    return f", did you mean {near[0]!r}?" if near else ""


def _line_of(node: yaml.Node, location: tuple[int | str, ...]) -> int:
    line: int = node.start_mark.line + 1
    for part in location:
        child = _child(node, part)
        if child is None:
            break
        line, node = child
    return line


def _child(node: yaml.Node, part: int | str) -> tuple[int, yaml.Node] | None:
    if isinstance(node, yaml.MappingNode):
        for key, value in node.value:
            if key.value == str(part):
                return key.start_mark.line + 1, value
    if isinstance(node, yaml.SequenceNode) and isinstance(part, int) and part < len(node.value):
        return node.value[part].start_mark.line + 1, node.value[part]
    return None
