"""Bundles: everything that a machine without a network needs to run servers, in files of a chosen size."""
