"""Downstream: MCP over streamable HTTP for clients."""
