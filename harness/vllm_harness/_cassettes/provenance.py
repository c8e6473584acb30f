"""Describes the server that a cassette is recorded from."""

from __future__ import annotations

import re
from collections.abc import Iterable
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from urllib.parse import urlsplit

from vllm_harness._cassettes.format import Recorded
from vllm_harness._environments.spec import Environment
from vllm_harness._exchange.endpoint import Endpoint
from vllm_harness._exchange.server import VllmServer
from vllm_harness._files.paths import CACHE, cache_dir, checkout
from vllm_harness._machine.gpus import describe_device
from vllm_harness._server.launch import IN_SERVER
from vllm_harness._server.remote import RemoteServer

_COMMIT = re.compile(r"^__commit_id__ = commit_id = ['\"]g?([0-9a-f]{7,40})", re.M)


def of(server: VllmServer) -> Recorded:
    """Describes a server, in less detail if the harness did not start it."""
    entry = server.entry
    if not isinstance(server, RemoteServer):
        known = {"model": entry.name, "served": server.model, "vllm": server.vllm_version}
        return of_endpoint(server.endpoint).model_copy(update=known)
    launch, environment = server.launch, server.environment
    weights = {} if server.lane == "scripted" else {"hub": entry.hub.id, "revision": entry.hub.revision}
    return Recorded(
        **_now(),
        model=entry.name,
        served=server.model,
        lane=server.lane,
        vllm=server.vllm_version,
        commit=commit_of(environment),
        environment=environment.describe(),
        frontend=launch.frontend,
        device=describe_device(environment.device),
        command=tuple(_without_folders(launch.argv(server.port))),
        variables=dict(zip(launch.env, _without_folders(launch.env.values()), strict=True)),
        **weights,
    )


def of_endpoint(endpoint: Endpoint) -> Recorded:
    """Describes a server by its URL and the version that it reports."""
    return Recorded(
        **_now(), lane="attached", vllm=endpoint.vllm_version() or "", url=_address(endpoint.base_url)
    )


def commit_of(environment: Environment) -> str:
    """The commit of an environment's vLLM; empty if it is unknown."""
    if environment.commit:
        return environment.commit
    try:
        text = (environment.package / "_version.py").read_text() if environment.package else ""
    except OSError:
        return ""
    match = _COMMIT.search(text)
    return match[1] if match else ""


def _now() -> dict[str, str]:
    at = datetime.now(UTC).replace(microsecond=0).isoformat().replace("+00:00", "Z")
    return {"at": at, "harness": version("vllm-harness")}


def _without_folders(texts: Iterable[str]) -> list[str]:
    """Replaces folders of this machine in texts with names that are the same on every machine."""
    names = {
        str(IN_SERVER): "<harness>/scripted/in_server",
        str(cache_dir()): f"${CACHE.variable}",
        str(checkout() or IN_SERVER): "<checkout>",
        str(Path.home()): "~",
    }
    changed = []
    for text in texts:
        for folder, name in names.items():
            text = text.replace(folder, name)
        changed.append(text)
    return changed


def _address(url: str) -> str:
    """Removes user and password from a URL."""
    parts = urlsplit(url)
    return parts._replace(netloc=parts.netloc.rpartition("@")[2]).geturl()
