"""The command line, one module a command. What a command alone needs it imports when it runs, so
that `mcpgroup version` does not wait for an HTTP stack."""
