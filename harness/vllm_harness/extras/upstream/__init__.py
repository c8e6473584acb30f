"""Runs vLLM's own end-to-end tests without changes: `pytest -p vllm_harness.extras.upstream FILES`."""

pytest_plugins = ["vllm_harness.extras.upstream.plugin"]
