"""What parsers take over answers that grow: the search for those that are worse than linear."""
