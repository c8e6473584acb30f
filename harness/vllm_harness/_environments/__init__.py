"""The vLLM that a server runs on, and what it needs besides: environments, runtime variables, assets."""

from vllm_harness._environments.resolve import default_device, default_spec, resolve
from vllm_harness._environments.spec import Environment

__all__ = ["Environment", "default_device", "default_spec", "resolve"]
