"""Every environment that this machine can make passes verification and runs scripted servers."""

from __future__ import annotations

import json
import tarfile
from pathlib import Path

import pytest

from tests.behaviours.tools import RESPONSES_TOOL
from vllm_harness._configuration.model_entries import load_models
from vllm_harness._environments import Environment, locks, operators, resolve, upstream
from vllm_harness._environments.store import folder_of
from vllm_harness._environments.verify import verify
from vllm_harness._scripted.meaning import ToolCall
from vllm_harness._server import errors
from vllm_harness._server.model_check import names_of, unknown_names
from vllm_harness._server.remote import RemoteServer
from vllm_harness._terminal.status import quiet

pytestmark = [pytest.mark.vllm_slow, pytest.mark.timeout(1800)]

GRAFT = "0.33.0@0.32.0"
RELEASES = [lock.version for lock in locks.locks() if lock.device == "cpu"]
PARSER = "vllm/tool_parsers/hermes_tool_parser.py"
EXPRESSION = "match[0] if match[0] else match[1]"
WORKER = "vllm/v1/worker/cpu_worker.py"


@pytest.fixture(scope="session")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A working tree of vLLM, unpacked from the official source distribution."""
    folder = tmp_path_factory.mktemp("tree")
    with tarfile.open(upstream.source("0.33.0", quiet)) as tar:
        tar.extractall(folder, filter="data")
    return folder / "vllm-0.33.0"


@pytest.fixture(params=[*RELEASES, GRAFT, "tree"])
def environment(request: pytest.FixtureRequest) -> Environment:
    if request.param == "tree":
        return resolve(f"tree:{request.getfixturevalue('tree')}@0.32.0", create=True)
    return resolve(request.param, "cpu", create=True)


def scripted_city(server: RemoteServer) -> str:
    """The city in the tool call that the server returns for a scripted call about Paris."""
    server.script(reasoning="I look it up.", calls=[ToolCall("get_weather", {"city": "Paris"})])
    response = server.client().responses.create(
        model=server.model, input="What is the weather in Paris?", tools=[RESPONSES_TOOL]
    )
    server.book().verify()
    call = response.output[-1]
    assert call.type == "function_call"
    return str(json.loads(call.arguments)["city"])


def test_an_environment_is_verified(environment: Environment) -> None:
    verify(environment)
    assert unknown_names(load_models(), names_of(environment)) == []


@pytest.mark.parametrize("model", ["qwen3", "gpt-oss"])
def test_a_server_returns_a_scripted_call(environment: Environment, model: str) -> None:
    with RemoteServer(model, lane="scripted", vllm=environment) as server:
        assert server.forked
        assert scripted_city(server) == "Paris"


DOCSTRINGS_DIFFER = {
    "0.25.0": {"model_executor/layers/fused_moe/layer.py", "v1/kv_offload/tiering/p2p/manager.py"},
}
"""Files of the third-party build that differ from upstream only in docstrings or annotations."""


@pytest.mark.parametrize("version", RELEASES)
def test_a_release_has_the_code_of_upstream(version: str) -> None:
    """The third-party build differs from upstream only in how the CPU platform is recognised."""
    comparison = upstream.compare(resolve(version, "cpu", create=True))
    assert comparison.missing == ()
    changed = {*comparison.changed} - DOCSTRINGS_DIFFER.get(version, set())
    assert {file.split("/")[0] for file in changed} <= {"_version.py", "platforms", "utils"}


def test_the_next_server_has_the_changes_of_a_tree(tree: Path) -> None:
    parser = tree / PARSER
    before = parser.read_text()
    bytecode = list(tree.rglob("__pycache__"))
    try:
        seen = []
        for city in ("Rome", "Oslo"):
            parser.write_text(
                before.replace(EXPRESSION, f"(match[0] or match[1]).replace('Paris', '{city}')")
            )
            environment = resolve(f"tree:{tree}@0.32.0", create=True)
            with RemoteServer("qwen3", lane="scripted", vllm=environment) as server:
                seen.append(scripted_city(server))
    finally:
        parser.write_text(before)
    assert seen == ["Rome", "Oslo"]
    assert list(tree.rglob("__pycache__")) == bytecode == []


def test_an_operator_that_the_kernels_lack_is_reported(tree: Path) -> None:
    worker = tree / WORKER
    before = worker.read_text()
    try:
        worker.write_text(before + "\n\ntorch.ops._C.newer_than_these_kernels()\n")
        environment = resolve(f"tree:{tree}@0.32.0", create=True)
        assert "_C::newer_than_these_kernels" in operators.lacking(environment)
        with (
            pytest.raises(errors.MissingOperator, match="_C::newer_than_these_kernels"),
            RemoteServer("qwen3", lane="scripted", vllm=environment),
        ):
            pass
    finally:
        worker.write_text(before)


@pytest.mark.parametrize("model", ["qwen3"])
def test_the_rust_front_end_answers(model: str) -> None:
    with RemoteServer(model, lane="scripted", vllm=GRAFT, frontend="rust") as server:
        assert server.endpoint.lacking() == {"responses", "messages"}
        server.script("Hello.")
        chat = server.client().chat.completions.create(
            model=server.model, messages=[{"role": "user", "content": "hi"}]
        )
        assert (chat.choices[0].message.content or "").strip() == "Hello."
        server.book().verify()
        assert server.forked
        log = server.log_path.read_text()
    assert folder_of(server.environment).name.startswith("graft-0.33.0-on-0.32.0")
    assert "vllm-rs" in log
