"""Upstream: sessions with the members of the group over streamable HTTP and stdio."""
