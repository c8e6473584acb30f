"""Fixtures of the gpt-oss tests."""

from tests.harmony.conversation import harmony

__all__ = ["harmony"]
