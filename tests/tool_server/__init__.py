"""A real MCP server for the built-in tools of gpt-oss, made with the official mcp package."""
