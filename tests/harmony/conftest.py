"""What the tests of gpt-oss share."""

from tests.harmony.conversation import harmony

__all__ = ["harmony"]
