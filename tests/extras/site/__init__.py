"""The compatibility site, built with the manual and opened in a browser."""
