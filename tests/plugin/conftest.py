"""The example is another project: it runs in pytester only."""

collect_ignore = ["example"]
