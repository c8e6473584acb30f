"""Checks between the answers of a conversation, and between two views of one answer."""
