"""Options that several commands share, and what gives a command those of a class."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterator
from dataclasses import dataclass, fields, is_dataclass
from pathlib import Path
from typing import Annotated, Any, get_type_hints

import typer

from vllm_harness._configuration.model_entries import Device, Frontend, Lane, ModelEntry, load_models
from vllm_harness._environments.resolve import resolve, spec_of
from vllm_harness._environments.spec import Environment
from vllm_harness._terminal.tables import plain_console

SPECS = "0.32.0, 0.33.0@0.32.0, tree:PATH@0.32.0 or installed[:PYTHON]"
VLLM_HELP = f"The server environment: {SPECS}."
VLLM = Annotated[str | None, typer.Option(help=VLLM_HELP)]
VLLMS_HELP = f"Server environments, separated by commas: {SPECS}."
VLLMS = Annotated[str, typer.Option(help=VLLMS_HELP)]
MODEL = Annotated[str, typer.Option(help="A model entry or a hub id.")]
MODELS = Annotated[
    list[str] | None, typer.Option("--model", help="A model entry or a hub id; may be repeated.")
]
LANE = Annotated[
    Lane | None,
    typer.Option(help="The lane: live (real weights) or scripted (a stand-in that follows scripts)."),
]
FRONTEND = Annotated[Frontend | None, typer.Option(help="The HTTP front end of vLLM; by default python.")]
VLLM_PYTHON = Annotated[
    Path | None, typer.Option(help="The interpreter that has vLLM: the same as --vllm installed:PATH.")
]
DEVICE = Annotated[
    Device | None,
    typer.Option(help="The device of the server environment; by default what this machine has."),
]
MODELS_FILE = Annotated[
    Path | None, typer.Option(help="The file of the model entries; by default the harness's own models.yaml.")
]
API_KEY_ENV = Annotated[
    str | None, typer.Option(metavar="NAME", help="The variable that holds the API key of that server.")
]
CHANGED_FROM = Annotated[
    str, typer.Option(help="With --changed: the revision of the checkout to compare with; default HEAD.")
]
JOBS = Annotated[
    int | None,
    typer.Option(
        "--jobs", min=1, help="Servers or interpreters at a time; by default two, on a small machine one."
    ),
]
SEED = Annotated[int, typer.Option(help="Random seed.")]
AS_JSON = Annotated[bool, typer.Option("--json", help="Print JSON.")]


@dataclass(frozen=True)
class VllmOptions:
    """Which vLLM a server runs, and how."""

    vllm: VLLM = None
    vllm_python: VLLM_PYTHON = None
    device: DEVICE = None
    frontend: FRONTEND = None
    cold_start: Annotated[bool, typer.Option(help="Start the server without the fork server.")] = False
    models_file: MODELS_FILE = None

    def entry(self, model: str) -> ModelEntry:
        """The model entry of a name."""
        return load_models(self.models_file).get(model)

    def environment(self) -> Environment:
        """The server environment; it is made if it does not exist yet."""
        return environment(self.vllm, self.vllm_python, self.device)


@dataclass(frozen=True)
class ServerOptions(VllmOptions):
    """What the command line says about the server: one that is started, or one that runs already."""

    lane: LANE = None
    server_url: Annotated[str | None, typer.Option(help="A server that runs already.")] = None
    server_model: Annotated[str | None, typer.Option(help="The model's name on that server.")] = None
    api_key_env: API_KEY_ENV = None

    def lane_of(self, entry: ModelEntry, *, scriptable: bool = True) -> Lane:
        """The lane that is named, else the scripted one where it can be."""
        return self.lane or ("scripted" if scriptable and "scripted" in entry.lanes else "live")


def environment(vllm: str | None, vllm_python: Path | None, device: Device | None) -> Environment:
    """The server environment that the options name; it is made if it does not exist yet."""
    console = plain_console(stderr=True)
    return resolve(spec_of(vllm, vllm_python), device=device, create=True, progress=console.print)


def with_options(command: Callable[..., None]) -> Callable[..., None]:
    """Gives a command the options of a class, such as `ServerOptions`, in place of a parameter of it."""
    signature = inspect.signature(command, eval_str=True)
    classes = {name: each.annotation for name, each in signature.parameters.items() if _has_options(each)}
    parameters = [option for each in signature.parameters.values() for option in _options(each)]

    @functools.wraps(command)
    def called(**values: Any) -> None:
        made = {
            name: options(**{each.name: values.pop(each.name) for each in fields(options)})
            for name, options in classes.items()
        }
        command(**values, **made)

    called.__signature__ = signature.replace(parameters=parameters)  # type: ignore[attr-defined]
    called.__annotations__ = {each.name: each.annotation for each in parameters}
    return called


def _has_options(parameter: inspect.Parameter) -> bool:
    return is_dataclass(parameter.annotation)


def _options(parameter: inspect.Parameter) -> Iterator[inspect.Parameter]:
    """A parameter, or one for each option of its class."""
    if not _has_options(parameter):
        yield parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY)
        return
    hints = get_type_hints(parameter.annotation, include_extras=True)
    for each in fields(parameter.annotation):
        yield inspect.Parameter(
            each.name, inspect.Parameter.KEYWORD_ONLY, default=each.default, annotation=hints[each.name]
        )
