"""The extra that holds dialects and servers to the chat templates of vendors."""
