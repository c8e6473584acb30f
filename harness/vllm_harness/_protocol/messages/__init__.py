"""Anthropic's Messages API: its shapes, rules and checks, the accumulator and the renderer."""
