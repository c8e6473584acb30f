"""Bundles: everything that a machine without network needs to run servers, in parts of a chosen size."""
