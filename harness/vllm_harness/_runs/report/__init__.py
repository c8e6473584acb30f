"""The terse reports of run folders: terminal, Markdown, JUnit, GitHub."""
