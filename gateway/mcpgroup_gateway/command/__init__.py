"""The `mcpgroup` command line."""
