"""The text that follows the stop string in a script, for tests that generation ends at the stop string."""

AND_ON = " and on" * 250
"""500 tokens, so that the engine, which runs ahead of the check for stop strings, does not reach the end."""
