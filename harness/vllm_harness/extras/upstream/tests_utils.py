"""Replaces upstream's `tests.utils`; defines the names that the test files import from it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any, ClassVar, Self

import pytest

from vllm_harness._errors import HarnessError
from vllm_harness._server.remote import RemoteServer
from vllm_harness.extras.upstream.servers import UpstreamServers
from vllm_harness.extras.upstream.stand_ins import NoStandIn

if TYPE_CHECKING:
    import anthropic
    import openai

CLIENT_S = 600
ROCM_EXTRA_ARGS: list[str] = []


class RemoteVLLMServer:
    """A server for upstream's tests; the constructor gets it, the end of the `with` block gives it back."""

    DUMMY_API_KEY = "token-abc123"
    servers: ClassVar[UpstreamServers]
    client_s: ClassVar[float] = CLIENT_S
    """The timeout of clients in seconds."""
    uds = None
    host = "127.0.0.1"

    def __init__(
        self,
        model: str,
        vllm_serve_args: list[str],
        *,
        env_dict: dict[str, str] | None = None,
        seed: int | None = 0,
        auto_port: bool = True,
        max_wait_seconds: float | None = None,
        override_hf_configs: dict[str, Any] | None = None,
    ) -> None:
        if auto_port and {"-p", "--port"} & {*vllm_serve_args}:
            raise ValueError("You have manually specified the port when `auto_port=True`.")
        if seed is not None and "--seed" in vllm_serve_args:
            raise ValueError(f"You have manually specified the seed when `seed={seed}`.")
        if override_hf_configs is not None:
            pytest.skip("the test changes config.json, which the stand-in does not support")
        seeded = [] if seed is None else ["--seed", str(seed)]
        try:
            self.server: RemoteServer | None = self.servers.take(
                model, [*vllm_serve_args, *seeded], env_dict, max_wait_seconds
            )
        except NoStandIn as error:
            pytest.skip(error.message)
        except HarnessError as error:
            pytest.fail(str(error), pytrace=False)
        self.port = self.server.port
        self.show_hidden_metrics = any("show-hidden-metrics" in flag for flag in vllm_serve_args)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._shutdown()

    def _shutdown(self) -> None:
        if self.server is not None:
            self.servers.give_back(self.server)
            self.server = None

    @classmethod
    def shutdown_many(cls, servers: Sequence[RemoteVLLMServer]) -> None:
        """Gives back several servers."""
        for server in servers:
            server._shutdown()

    @property
    def url_root(self) -> str:
        """The scheme, host and port of the server's URL."""
        return f"http://{self.host}:{self.port}"

    def url_for(self, *parts: str) -> str:
        """The URL of a path, whose parts are the arguments."""
        return f"{self.url_root}/{'/'.join(part.strip('/') for part in parts if part)}"

    def get_client(self, **kwargs: Any) -> openai.OpenAI:
        """A client for OpenAI's APIs."""
        from openai import OpenAI

        return OpenAI(base_url=self.url_for("v1"), **self._settings(kwargs))

    def get_async_client(self, **kwargs: Any) -> openai.AsyncOpenAI:
        """An async client for OpenAI's APIs."""
        from openai import AsyncOpenAI

        return AsyncOpenAI(base_url=self.url_for("v1"), **self._settings(kwargs))

    def get_client_anthropic(self, **kwargs: Any) -> anthropic.Anthropic:
        """A client for Anthropic's API."""
        from anthropic import Anthropic

        return Anthropic(base_url=self.url_for(), **self._settings(kwargs))

    def get_async_client_anthropic(self, **kwargs: Any) -> anthropic.AsyncAnthropic:
        """An async client for Anthropic's API."""
        from anthropic import AsyncAnthropic

        return AsyncAnthropic(base_url=self.url_for(), **self._settings(kwargs))

    def _settings(self, given: dict[str, Any]) -> dict[str, Any]:
        return {"api_key": self.DUMMY_API_KEY, "max_retries": 0, "timeout": self.client_s, **given}


class RemoteOpenAIServer(RemoteVLLMServer):
    """Replaces upstream's class with this name, which runs `vllm serve`."""


class RemoteLaunchRenderServer(RemoteVLLMServer):
    """Replaces upstream's class with this name, and starts `vllm serve` too."""


def multi_gpu_only(*, num_gpus: int = 2) -> pytest.MarkDecorator:
    """Skips a test that needs several GPUs; stand-ins run on one device."""
    return pytest.mark.skip(reason=f"needs {num_gpus} GPUs")


def requires_fp8(test: Callable[..., Any]) -> Callable[..., Any]:
    """Skips a test that needs a GPU that supports fp8."""
    skipped: Callable[..., Any] = pytest.mark.skip(reason="needs a GPU with fp8")(test)
    return skipped
