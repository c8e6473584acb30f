"""Checks that the exchanges of a conversation fit together, and that two views of one answer agree."""
