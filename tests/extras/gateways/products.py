"""Unmodified gateway products: makes the environment of each on first use, and runs its process."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import yaml
from pydantic import BaseModel, ConfigDict
from requests import RequestException

from tests.clients.environments import Client
from vllm_harness._exchange.endpoint import ask
from vllm_harness._machine.processes import killed_with_parent

READY_S = 180


class Product(BaseModel):
    """One entry of products.yaml; the comment at the top of that file explains the fields."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    name: str
    kind: Literal["python", "node"]
    requirements: tuple[str, ...]
    product: str
    command: tuple[str, ...]
    ready: str
    config: str = ""
    env: dict[str, str] = {}
    headers: tuple[str, ...] = ()
    key: str = "none"


@dataclass(frozen=True)
class Running:
    """A running gateway: its address, and the headers and API key that each request must carry."""

    url: str
    headers: tuple[str, ...]
    key: str


def products() -> dict[str, Product]:
    """Reads products.yaml; returns the products by name."""
    data = yaml.safe_load(Path(__file__).with_name("products.yaml").read_text())
    return {name: Product(name=name, **fields) for name, fields in data.items()}


@contextmanager
def running(product: Product, server: str, folder: Path) -> Iterator[Running]:
    """Runs a gateway in front of a server.

    Args:
        product: the gateway.
        server: the address of the server.
        folder: the folder for the gateway's configuration and log.

    Raises:
        NotToBeHadError: Node or a package index is missing.
    """
    environment = Client(
        name=f"gateway-{product.name}",
        kind=product.kind,
        requirements=product.requirements,
        program="",
        cases={},
    )
    environment.make()
    port, metrics = _free_port(), _free_port()
    config = folder / "config.yaml"
    config.write_text(product.config.replace("{server}", server))
    places = {"bin": environment.folder / "bin", "folder": environment.folder}
    fields = {"port": port, "metrics": metrics, "server": server, "config": config, **places}
    words = [word.format(**fields) for word in product.command]
    log = folder / "gateway.log"
    with log.open("wb") as output:
        process = subprocess.Popen(
            [*killed_with_parent(), *words],
            cwd=folder,
            env={**os.environ, **product.env},
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    try:
        url = f"http://127.0.0.1:{port}"
        _wait(process, url + product.ready, log)
        yield Running(
            url, tuple(header.replace("{server}", server) for header in product.headers), product.key
        )
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def pytest_on(folder: Path, address: Running, *options: str) -> str:
    """Runs pytest on the suite in a folder, against a gateway or an engine, and returns its output."""
    words = ["-q", "-p", "no:cacheprovider", f"--vllm-server-url={address.url}", "--vllm-api-key-env=THE_KEY"]
    return subprocess.run(
        [sys.executable, "-m", "pytest", *words, *options, str(folder)],
        cwd=folder,
        env={**os.environ, "THE_KEY": address.key},
        capture_output=True,
        text=True,
    ).stdout


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port: int = free.getsockname()[1]
        return port


def _wait(process: subprocess.Popen[bytes], url: str, log: Path) -> None:
    until = time.monotonic() + READY_S
    while process.poll() is None and time.monotonic() < until:
        try:
            if ask("GET", url, timeout=5).status_code < 500:
                return
        except RequestException:
            time.sleep(0.5)
    raise AssertionError(f"{url} does not answer:\n{log.read_text(errors='replace')[-4000:]}")
