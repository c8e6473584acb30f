"""Where cells run: on this machine, or on the nodes of a Ray cluster."""
