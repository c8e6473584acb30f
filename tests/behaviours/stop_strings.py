"""The text that a scripted model continues with after a stop string, at which generation ends."""

AND_ON = " and on" * 250
"""500 tokens, so that the engine, which runs ahead of the stop string, does not reach the end."""
