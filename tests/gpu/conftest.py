"""Fixtures for tests on a CUDA machine; the tests record figures, which a table at the end shows."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from rich.console import Console
from rich.table import Table

from vllm_harness._environments.resolve import resolve, spec_of
from vllm_harness._environments.spec import Environment
from vllm_harness._machine.gpus import driver_version, gpus

FIGURES = pytest.StashKey[list[tuple[str, str, str]]]()


@pytest.fixture(scope="session")
def environment(request: pytest.FixtureRequest) -> Environment:
    """The server environment of this run, which must be built for CUDA."""
    option = request.config.option
    resolved = resolve(spec_of(option.vllm, option.vllm_python), device=option.vllm_device, create=True)
    if resolved.device != "cuda":
        pytest.skip(f"{resolved.describe()} is not built for CUDA")
    return resolved


@pytest.fixture(scope="session")
def server_args(request: pytest.FixtureRequest) -> tuple[str, ...]:
    """Further flags of `vllm serve`, such as those that an environment from a lean bundle needs."""
    return tuple(request.config.option.vllm_server_arg)


@pytest.fixture
def figure(request: pytest.FixtureRequest) -> Callable[[str, str, float], None]:
    """A function that records a figure: its subject, its name with the unit, and its value."""
    figures = request.config.stash.setdefault(FIGURES, [])
    return lambda of, name, value: figures.append((of, name, f"{value:.1f}"))


def pytest_terminal_summary(terminalreporter: Any, config: pytest.Config) -> None:
    """Prints the table of figures."""
    if not (figures := config.stash.get(FIGURES, [])):
        return
    names = list(dict.fromkeys(name for _, name, _ in figures))
    cards = ", ".join(f"{gpu.name} {gpu.total_bytes / 2**30:.0f} GiB" for gpu in gpus())
    table = Table("", *names, title=f"{cards}, driver {driver_version()}", title_justify="left")
    for of in dict.fromkeys(of for of, _, _ in figures):
        values = {name: value for subject, name, value in figures if subject == of}
        table.add_row(of, *(values.get(name, "") for name in names))
    console = Console(file=terminalreporter._tw._file, width=max(110, terminalreporter._tw.fullwidth))
    console.print(table)
