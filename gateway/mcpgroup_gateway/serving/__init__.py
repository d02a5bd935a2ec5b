"""Where decisions meet I/O: supervision of members, upstream sessions, calls and their attempts."""
