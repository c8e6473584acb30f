"""Environments with the vLLM that servers run, and what servers need besides: variables and assets."""

from vllm_harness._environments.resolve import default_device, default_spec, resolve
from vllm_harness._environments.spec import Environment

__all__ = ["Environment", "default_device", "default_spec", "resolve"]
