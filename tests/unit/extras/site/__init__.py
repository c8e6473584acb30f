"""Unit tests of the compatibility site."""
