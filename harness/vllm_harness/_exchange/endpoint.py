"""A server's address, and clients for it."""

from __future__ import annotations

import os
import ssl
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import httpx2
import requests
from prometheus_client.parser import text_string_to_metric_families

from vllm_harness._errors import HarnessError, UsageError

if TYPE_CHECKING:  # importing openai takes half a second, also for commands that need no server
    from openai import AsyncOpenAI, OpenAI

# The APIs that a server may lack; tests require an API by its key here (`needs`).
API_PATHS = {
    "responses": "/v1/responses",
    "chat": "/v1/chat/completions",
    "messages": "/v1/messages",
}
NO_KEY = "none"
ANTHROPIC_VERSION = "2023-06-01"
LOCAL = "127.0.0.1"
LOCAL_HOSTS = frozenset({LOCAL, "localhost", "::1"})
CA_VARIABLES = ("SSL_CERT_FILE", "REQUESTS_CA_BUNDLE")
_NOT_SERVED = {404, 405, 501}
_ONE_EACH = httpx2.Limits(max_connections=None, max_keepalive_connections=0)


class EndpointError(HarnessError):
    """A server does not answer as an OpenAI-compatible server would."""


@dataclass(frozen=True)
class Endpoint:
    """The address of a server.

    Attributes:
        base_url: the scheme, host and port, without `/v1`.
        api_key: the key that clients send; vLLM without `--api-key` accepts any.
        request_s: the timeout of a request, in seconds.
        headers: the headers that clients send with every request.
        ca: a file with the certificates that clients trust; by default those that the machine trusts.
    """

    base_url: str
    api_key: str = NO_KEY
    request_s: float = 120.0
    headers: tuple[tuple[str, str], ...] = ()
    ca: Path | None = None

    @property
    def connecting(self) -> dict[str, Any]:
        """The options of an httpx2 client that make a new connection for each request.

        A server may close an idle connection at any time, and so lose the request that is being sent on it.
        """
        return {"verify": tls(self.ca), "limits": _ONE_EACH}

    def url_for(self, path: str) -> str:
        """The absolute URL of a path."""
        return f"{self.base_url.rstrip('/')}/{path.lstrip('/')}"

    def headers_for(self, api: str | None) -> dict[str, str]:
        """The headers of a request to an API: those that carry the API key, and `headers`."""
        key = {"authorization": f"Bearer {self.api_key}"}
        if api == "messages":
            key |= {"x-api-key": self.api_key, "anthropic-version": ANTHROPIC_VERSION}
        return {**key, **{name.lower(): value for name, value in self.headers}}

    def request(
        self,
        method: str,
        path: str,
        *,
        headers: Mapping[str, str | None] | None = None,
        timeout: float | None = None,
        **options: Any,
    ) -> requests.Response:
        """Sends a plain request with the API key and the headers of the API at `path`.

        Args:
            method: the HTTP method.
            path: the path on the server.
            headers: headers that override the default headers; the value None removes a header.
            timeout: the timeout in seconds, by default `request_s`.
            options: further options of `requests.request`.
        """
        own = {name.lower(): value for name, value in (headers or {}).items()}
        sent = {**self.headers_for(api_at(path)), **own}
        limit = self.request_s if timeout is None else timeout
        return ask(method, self.url_for(path), self.ca, headers=sent, timeout=limit, **options)

    def get(self, path: str, **options: Any) -> requests.Response:
        """Sends a GET request."""
        return self.request("GET", path, **options)

    def post(self, path: str, **options: Any) -> requests.Response:
        """Sends a POST request."""
        return self.request("POST", path, **options)

    def client(self, **options: Any) -> OpenAI:
        """A sync `openai` client without retries."""
        from openai import DefaultHttpxClient, OpenAI

        return OpenAI(**self._options(options, DefaultHttpxClient))

    def async_client(self, **options: Any) -> AsyncOpenAI:
        """An async `openai` client without retries."""
        from openai import AsyncOpenAI, DefaultAsyncHttpxClient

        return AsyncOpenAI(**self._options(options, DefaultAsyncHttpxClient))

    def metrics(self) -> dict[str, float]:
        """The Prometheus samples of `/metrics` by name, summed over their labels."""
        answer = self.get("/metrics")
        answer.raise_for_status()
        samples: dict[str, float] = {}
        for metric in text_string_to_metric_families(answer.text):
            for sample in metric.samples:
                samples[sample.name] = samples.get(sample.name, 0.0) + sample.value
        return samples

    def models(self) -> list[str]:
        """The names that `/v1/models` lists. Raises EndpointError if the server does not answer."""
        try:
            answer = self.get("/v1/models", timeout=10)
            answer.raise_for_status()
            return [str(model["id"]) for model in answer.json()["data"]]
        except (requests.RequestException, KeyError, TypeError, ValueError) as error:
            raise EndpointError(
                f"{self.base_url} does not answer GET /v1/models: {error}",
                hint="check the URL (without /v1) and the API key",
            ) from error

    def lacking(self) -> frozenset[str]:
        """The names in `API_PATHS` that the server does not serve, detected by invalid requests."""
        headers = {"content-type": "application/json"}
        statuses = {
            name: self.post(path, data="{", headers=headers, timeout=10).status_code
            for name, path in API_PATHS.items()
        }
        return frozenset(name for name, status in statuses.items() if status in _NOT_SERVED)

    def vllm_version(self) -> str | None:
        """The version of vLLM from `/version`; None if the server is not vLLM."""
        try:
            answer = self.get("/version", timeout=10)
            return str(answer.json()["version"]).split("+")[0] if answer.ok else None
        except (requests.RequestException, KeyError, TypeError, ValueError):
            return None

    def _options(self, options: dict[str, Any], transport: Callable[..., Any]) -> dict[str, Any]:
        defaults: dict[str, Any] = {
            "base_url": self.url_for("/v1"),
            "api_key": self.api_key,
            "max_retries": 0,
            "timeout": self.request_s,
            "default_headers": {**dict(self.headers), **options.pop("default_headers", {})},
        }
        if "http_client" not in options:
            defaults["http_client"] = transport(**self.connecting)
        return {**defaults, **options}


def api_at(path: str) -> str | None:
    """The API in `API_PATHS` to which a path belongs."""
    return next((api for api, prefix in API_PATHS.items() if f"/{path.lstrip('/')}".startswith(prefix)), None)


@cache
def tls(ca: Path | None = None) -> ssl.SSLContext:
    """The TLS settings of all clients that trust the same file; making them takes 40 ms.

    Raises UsageError if the file has no certificates.
    """
    try:
        context = ssl.create_default_context(cafile=ca)
    except OSError as error:
        raise UsageError(
            f"{ca} has no certificates that can be read: {error}", hint="name a file in PEM format"
        ) from error
    context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN  # a server's own certificate needs no issuer
    context.ca = ca  # type: ignore[attr-defined]
    return context


def ask(method: str, url: str, ca: Path | None = None, **options: Any) -> requests.Response:
    """Sends a plain request on a new connection, with the options of `requests.request`.

    Looking for a proxy takes longer than the request itself, so requests to this machine use none.
    """
    with requests.Session() as session:
        session.trust_env = urlsplit(url).hostname not in LOCAL_HOSTS
        if ca is not None:
            session.mount("https://", _Trusting(ca))
            options["verify"] = str(ca)
        return session.request(method, url, **options)


class _Trusting(requests.adapters.HTTPAdapter):
    """Connects with the TLS settings of `tls`."""

    def __init__(self, ca: Path) -> None:
        self._ca = ca
        super().__init__()

    def init_poolmanager(self, *args: Any, **options: Any) -> None:
        super().init_poolmanager(*args, ssl_context=tls(self._ca), **options)


def attach(url: str, api_key_env: str | None = None, request_s: float = 120.0) -> Endpoint:
    """The endpoint of a server that the harness did not start.

    Clients trust the certificates in the file that SSL_CERT_FILE or REQUESTS_CA_BUNDLE names, if one is set.

    Args:
        url: the base URL, with or without `/v1`.
        api_key_env: the name of the environment variable with the API key.
        request_s: the timeout of a request, in seconds.

    Raises:
        UsageError: the URL is not an HTTP(S) URL, the variable is not set, or there are no such certificates.
    """
    if not url.startswith(("http://", "https://")):
        raise UsageError(
            f"the server's URL {url!r} is not an http(s) URL", hint="give a URL such as http://127.0.0.1:8000"
        )
    key = NO_KEY
    if api_key_env is not None:
        key = os.environ.get(api_key_env, "")
        if not key:
            raise UsageError(
                f"the environment variable {api_key_env}, which should hold the API key, is not set or empty",
                hint="set it to the API key, or omit the option",
            )
    files = map(os.environ.get, CA_VARIABLES if url.startswith("https:") else ())
    ca = next((Path(file).absolute() for file in files if file), None)
    tls(ca)
    return Endpoint(url.rstrip("/").removesuffix("/v1"), key, request_s, ca=ca)


def served_at(host: str, port: int, certificate: str = "", **more: Any) -> Endpoint:
    """The endpoint of a server that the harness started, with TLS if it has a certificate."""
    scheme, ca = ("https", Path(certificate)) if certificate else ("http", None)
    return Endpoint(f"{scheme}://{host}:{port}", ca=ca, **more)
