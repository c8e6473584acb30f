"""Short reports of run folders: terminal, Markdown, JUnit, GitHub annotations."""
