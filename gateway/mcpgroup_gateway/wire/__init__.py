"""JSON-RPC, MCP and SSE as bytes: parsing, splicing and error bodies, without I/O."""
