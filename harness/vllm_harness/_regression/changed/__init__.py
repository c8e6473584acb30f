"""What a change of vLLM's code can have touched: the code before it, its files, families by their imports."""
