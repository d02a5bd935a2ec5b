"""The operator: turns every `McpServerGroup` into gateways, and says in its status how they are."""
