"""What every test module shares."""

import pytest

pytest.register_assert_rewrite(
    "tests.behaviours", "tests.chat_api", "tests.messages_api", "tests.responses_api"
)
pytest_plugins = [
    "pytester",
    "tests.chat_api",
    "tests.messages_api",
    "tests.own_server",
    "tests.responses_api",
]


def pytest_addoption(parser: pytest.Parser) -> None:
    """Options of this project's own tests."""
    parser.addoption("--kills", type=int, default=20, help="how often the kill -9 test kills an owner")
