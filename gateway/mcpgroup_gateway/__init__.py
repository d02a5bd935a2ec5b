"""One replica of a group's gateway: it decides alone, serves MCP in front of many MCP servers."""

from importlib.metadata import PackageNotFoundError, version

try:
    __version__ = version("mcpgroup")
except PackageNotFoundError:  # run from a source tree that was never installed
    __version__ = "0.0.0"
