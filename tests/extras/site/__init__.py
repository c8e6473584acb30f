"""The compatibility site, built with the manual, and looked at in a browser."""
