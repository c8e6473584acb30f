"""Short reports about run folders: for a terminal, Markdown, JUnit, GitHub annotations."""
