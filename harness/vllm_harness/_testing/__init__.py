"""The parts of the pytest plugin: fixtures, hooks, checks, servers, results."""
