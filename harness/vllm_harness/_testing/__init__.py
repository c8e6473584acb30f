"""What the pytest plugin is made of: markers, checks, results; each module one purpose."""
