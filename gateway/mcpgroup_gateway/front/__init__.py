"""Downstream: MCP over streamable HTTP for clients."""

from mcpgroup_gateway.front.front import Front
from mcpgroup_gateway.front.settings import FrontSettings, Observer

__all__ = ["Front", "FrontSettings", "Observer"]
