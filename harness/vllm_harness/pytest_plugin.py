"""The pytest plugin: options, markers and fixtures, whose code is imported when a test first uses them.

In a project that has the package installed but does not use it, only this module, `_testing/options.py` and
`_testing/fixtures.py` are imported, which import nothing but pytest.
"""

from __future__ import annotations

from collections.abc import Generator

import pytest

from vllm_harness._testing import options, with_xdist
from vllm_harness._testing.fixtures import TARGET_FIXTURE

pytest_plugins = ["vllm_harness._testing.fixtures"]

_HOOKS = "vllm_harness._testing.hooks"


def pytest_addoption(parser: pytest.Parser) -> None:
    """Adds the plugin's options."""
    options.add(parser)


def pytest_configure(config: pytest.Config) -> None:
    """Registers the markers, and the modules that depend on other plugins."""
    for marker in options.MARKERS:
        config.addinivalue_line("markers", marker)
    runner = "with" if config.pluginmanager.hasplugin("asyncio") else "without"
    config.pluginmanager.import_plugin(f"vllm_harness._testing.{runner}_asyncio")
    if config.option.vllm_output:
        from vllm_harness._testing.run_folder import ReportedRun

        config.pluginmanager.register(ReportedRun(config))
    if config.pluginmanager.hasplugin("xdist"):
        config.pluginmanager.import_plugin("vllm_harness._testing.with_xdist")
        with_xdist.refuse_forks(config)


def pytest_report_header(config: pytest.Config) -> list[str]:
    """Lists the options of this plugin that were given, and the new names of renamed options."""
    given = options.given(config)
    header = [f"vllm-harness: {', '.join(f'{name} {value}' for name, value in given.items())}"]
    return [*(header if given else ()), *options.old_names(config)]


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Runs a test that uses a server once for each of its targets, and for each seed of a target."""
    if TARGET_FIXTURE not in metafunc.fixturenames:
        return
    metafunc.config.pluginmanager.import_plugin(_HOOKS)
    from vllm_harness._testing.hooks import parametrize

    parametrize(metafunc)


@pytest.hookimpl(wrapper=True)
def pytest_collection_modifyitems(
    config: pytest.Config, items: list[pytest.Item]
) -> Generator[None, None, None]:
    """Skips slow tests; ends a run that needs CUDA on a machine without it."""
    yield
    if not config.option.vllm_slow and (slow := [i for i in items if i.get_closest_marker("vllm_slow")]):
        from vllm_harness._testing.skips import SLOW, coded

        for item in slow:
            item.add_marker(pytest.mark.skip(reason=coded(SLOW, "run with --vllm-slow")))
    if "vllm_gpu" in config.option.markexpr:
        from vllm_harness._testing.cuda import explain_missing_gpu

        explain_missing_gpu(config, items, "vllm_gpu")
