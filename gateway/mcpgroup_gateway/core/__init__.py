"""Decisions of one replica: pure objects with an injected clock and random source, no I/O."""
