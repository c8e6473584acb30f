"""Reports of run folders: for people, for CI, and for a comparison of two."""
