"""Images in scenarios, which the harness hosts while a scenario runs."""

from __future__ import annotations

import base64
from pathlib import Path

import httpx2
import pytest

from vllm_harness._scenarios.format import Scenario
from vllm_harness._scenarios.images import image_host, with_addresses
from vllm_harness._scenarios.mcp_servers import mcp_servers
from vllm_harness._scenarios.reading import read_scenario
from vllm_harness._scenarios.toolboxes import opened

DATA = b"\x89PNG and so on"
URL = f"data:image/png;base64,{base64.b64encode(DATA).decode()}"


def of(*parts: dict[str, object]) -> Scenario:
    """Makes a scenario whose user sends these parts."""
    return Scenario.model_validate({"scenario": 1, "turns": [{"name": "ask", "user": parts}]})


def test_a_hosted_image_is_served_while_the_scenario_runs() -> None:
    with with_addresses(of({"image": URL}, {"image": URL, "hosted": True}, {"text": "What?"})) as scenario:
        sent, hosted, text = scenario.turns[0].user
        assert (sent.image, text.text) == (URL, "What?")
        assert hosted.image
        answer = httpx2.get(hosted.image, trust_env=False)
        assert (answer.content, answer.headers["content-type"]) == (DATA, "image/png")
        assert httpx2.get(f"{hosted.image}x", trust_env=False).status_code == 404
    with pytest.raises(httpx2.ConnectError):
        httpx2.get(hosted.image, trust_env=False)


def test_a_host_records_requested_paths() -> None:
    with image_host() as host:
        assert httpx2.get(host.address("/none.png"), trust_env=False).status_code == 404
        assert host.requested == ["/none.png"]


def test_a_tool_returns_an_image_over_mcp(tmp_path: Path) -> None:
    (tmp_path / "map.png").write_bytes(DATA)
    (tmp_path / "story.yaml").write_text(
        "scenario: 1\nmcp:\n  desk:\n    tools:\n      show:\n        parameters: {}\n"
        "        outputs: [{images: map.png}]\nturns: [{name: ask, user: Hi}]\n"
    )
    scenario = read_scenario(tmp_path / "story.yaml")
    with mcp_servers(scenario.mcp) as servers, opened(scenario, servers) as toolbox:
        assert toolbox.run("show", {}) == ("", False, (URL,))
