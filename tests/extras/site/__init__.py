"""Tests of the compatibility site, which is built with the manual and opened in a browser."""
