"""Chat Completions: its shapes, rules and checks, the accumulator and the renderer."""
