"""Plans a server's command and environment variables, from its model entry, lane and environment."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from vllm_harness._configuration.model_entries import Frontend, Lane, ModelEntry
from vllm_harness._environments.spec import Environment
from vllm_harness._errors import UsageError
from vllm_harness._exchange.endpoint import LOCAL, NO_KEY, Endpoint, served_at, tls
from vllm_harness._machine.gpus import visible_gpus
from vllm_harness._scripted.in_server import vllm_harness_names as names
from vllm_harness._scripted.standin import SERVER_ENV, build_stand_in, cuda_args, stand_in_args
from vllm_harness._server.flags import asks_for_demo, flag_values

IN_SERVER = Path(__file__).parent.parent / "_scripted" / "in_server"
SCRIPTED_ARGS: dict[Frontend, tuple[str, ...]] = {
    "python": ("--logits-processors", names.LOGITS_PROCESSOR, "--middleware", names.SCRIPT_MIDDLEWARE),
    "rust": ("--logits-processors", names.LOGITS_PROCESSOR),
}
FRONTEND_ENV: dict[Frontend, dict[str, str]] = {"python": {}, "rust": {"VLLM_USE_RUST_FRONTEND": "1"}}
NOT_INHERITED = {"PYTHONPATH", "PYTHONHOME", "VIRTUAL_ENV"}
OUR_OWN = "VLLM_HARNESS_"  # prefix of the harness's own variables; vLLM would warn about them
# flags that only the harness sets, each with advice on what to do instead
OWN_FLAGS = {
    "--port": "use port=",
    "--host": "leave it out: servers listen on 127.0.0.1, or on their node's address for clients elsewhere",
    "--uds": "leave it out: servers listen on a port",
}


@dataclass(frozen=True)
class Launch:
    """The plan for starting a server.

    Attributes:
        entry: the model entry.
        lane: `live` or `scripted`.
        environment: the environment in which vLLM is installed.
        model: folder or hub id, passed to `vllm serve`.
        args: flags of `vllm serve`, without host and port.
        env: environment variables in addition to the inherited ones.
        frontend: vLLM's HTTP front end.
        host: the address to listen on.
    """

    entry: ModelEntry
    lane: Lane
    environment: Environment
    model: str
    args: tuple[str, ...]
    env: dict[str, str] = field(default_factory=dict)
    frontend: Frontend = "python"
    host: str = LOCAL

    @property
    def name(self) -> str:
        """The name under which the server serves the model."""
        return self.entry.name

    def argv(self, port: int) -> list[str]:
        """The whole command; with scripts, it runs the Rust front end behind a proxy of the harness."""
        serve = [*self.environment.serve_command, self.model, "--served-model-name", self.name, *self.args]
        if self.frontend == "rust" and self.lane == "scripted":
            return [str(self.environment.python), str(IN_SERVER / "vllm_harness_proxy.py"), str(port), *serve]
        return [*serve, "--host", self.host, "--port", str(port)]

    @property
    def api_key(self) -> str:
        """The API key for clients: the server's first key, or `none` if it requires no key."""
        (key,) = flag_values(self.args, [("--api-key",)], str, "")
        return key or self.env.get("VLLM_API_KEY") or os.environ.get("VLLM_API_KEY") or NO_KEY

    @property
    def certificate(self) -> str:
        """The file with the server's TLS certificate, which clients trust; empty without TLS."""
        return flag_values(self.args, [("--ssl-certfile",)], str, "")[0]

    def endpoint(self, port: int) -> Endpoint:
        """The server's address on a port, with its key, its timeout and its certificate."""
        limit, key = self.entry.limits.request_s, self.api_key
        return served_at(self.host, port, self.certificate, api_key=key, request_s=limit)

    def describe(self) -> str:
        """Describes the environment and the front end, for results."""
        return f"{self.environment.describe()}, {self.frontend} front end"

    def environ(self, base: Mapping[str, str] = os.environ) -> dict[str, str]:
        """The server's variables: inherited, then those of the environment, the entry and the caller."""
        inherited = {k: v for k, v in base.items() if k not in NOT_INHERITED and not k.startswith(OUR_OWN)}
        environ = {**self.environment.environ(inherited), **self.env}
        parts = [str(IN_SERVER), environ.get("PYTHONPATH", "")]
        environ["PYTHONPATH"] = os.pathsep.join(part for part in parts if part)
        return environ


def plan_launch(
    entry: ModelEntry,
    environment: Environment,
    *,
    lane: Lane,
    args: Sequence[str] = (),
    env: Mapping[str, str] | None = None,
    frontend: Frontend = "python",
    host: str = LOCAL,
    progress: Callable[[str], None] = lambda _: None,
) -> Launch:
    """Plans a server for a model entry, and fetches the assets that it needs.

    Args:
        args, env: flags and environment variables, which override the entry's own.
        progress: receives a line for each download.

    Raises:
        UsageError: the entry does not support the lane, the environment lacks the front end, or `args`
            contains a flag that only the harness may set.
        AssetError: an asset cannot be fetched.
        InstallError: the flags name vLLM's demo tool server, and its packages cannot be installed.
    """
    _check(entry, environment, lane, args, frontend, host)
    flags = entry.flags(lane, environment.device, frontend)
    if lane == "live":
        model, lane_args, assets_env = _live_model(entry, progress)
    else:
        model, lane_args, assets_env = fetched_stand_in(entry, progress)
        lane_args += SCRIPTED_ARGS[frontend]
        if environment.device == "cuda" and (devices := visible_gpus({**os.environ, **(env or {})})):
            lane_args += cuda_args(min(gpu.total_bytes for gpu in devices) / 2**30)
    every_flag = (*flags.args, *lane_args, *args)
    tools_env: dict[str, str] = {}
    if asks_for_demo(every_flag):
        from vllm_harness._server.demo_tools import demo_variables  # and what installs their packages

        tools_env = demo_variables({**os.environ, **(env or {})}, environment, progress)
    launch = Launch(
        entry=entry,
        lane=lane,
        environment=environment,
        model=model,
        args=every_flag,
        env={**assets_env, **flags.env, **FRONTEND_ENV[frontend], **tools_env, **(env or {})},
        frontend=frontend,
        host=host,
    )
    if launch.certificate:
        if not Path(launch.certificate).is_absolute():
            raise UsageError(
                f"--ssl-certfile {launch.certificate} is not an absolute path",
                hint="name the certificate and its key by absolute paths; a server works in its own folder",
            )
        if frontend == "rust" and lane == "scripted":
            raise UsageError("scripts reach the Rust front end without TLS only", hint="leave TLS out")
        tls(Path(launch.certificate))
    return launch


def _check(
    entry: ModelEntry,
    environment: Environment,
    lane: Lane,
    args: Sequence[str],
    frontend: Frontend,
    host: str,
) -> None:
    if not entry.serves(lane):
        raise UsageError(
            f"model {entry.name!r} has no lane {lane!r}",
            hint=f"use a lane that it has: {', '.join(entry.lanes)}",
        )
    if lane == "live" and environment.device not in entry.hardware.devices:
        raise UsageError(
            f"model {entry.name!r} does not run live on {environment.device}",
            hint="use the scripted lane" if entry.serves("scripted") else "use a machine with CUDA",
        )
    if frontend not in environment.frontends:
        raise UsageError(
            f"{environment.describe()} has no {frontend} front end",
            hint="use an official wheel from 0.33.0 on; on CPU that is a graft, such as 0.33.0@0.32.0",
        )
    if host != LOCAL and frontend == "rust" and lane == "scripted":
        raise UsageError(
            f"scripts reach the Rust front end only on {LOCAL}, not on {host}",
            hint="use the Python front end, or the live lane",
        )
    for flag in args:
        if hint := OWN_FLAGS.get(flag.partition("=")[0]):
            raise UsageError(f"{flag} is set by the harness", hint=hint)


def _live_model(
    entry: ModelEntry, progress: Callable[[str], None]
) -> tuple[str, tuple[str, ...], dict[str, str]]:
    if entry.weights:
        return _asset(entry.weights, progress), (), {}
    return entry.hub.id, ("--revision", entry.hub.revision), {}


def fetched_stand_in(
    entry: ModelEntry, progress: Callable[[str], None]
) -> tuple[str, tuple[str, ...], dict[str, str]]:
    """Fetches the assets of an entry's stand-in; returns its checkpoint, flags and environment variables.

    Raises:
        UsageError: an asset is unknown, or the tokenizer does not fit the entry's description.
        AssetError: an asset cannot be fetched, or does not match its pinned checksum.
    """
    assert entry.stand_in is not None
    name = entry.stand_in.tokenizer
    tokenizer = Path(name if Path(name).is_absolute() else _asset(name, progress))
    env = {name: _asset(asset, progress) for name, asset in entry.stand_in.assets.items()}
    checkpoint = build_stand_in(entry, tokenizer)
    return str(checkpoint), stand_in_args(entry), {**SERVER_ENV, **env}


def _asset(name: str, progress: Callable[[str], None]) -> str:
    from vllm_harness._environments.assets import fetch  # a family's stand-in needs none

    return str(fetch(name, progress=progress))
