"""The rules of the Responses API, by what they are about."""
