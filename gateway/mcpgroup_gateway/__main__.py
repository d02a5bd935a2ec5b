"""`mcpgroup` and `python -m mcpgroup_gateway`."""

from __future__ import annotations


def main() -> None:
    """Run the command line and exit with its code: 0 done, 1 the answer is no, 2 wrong use."""
    from mcpgroup_gateway.command.app import app

    app()


if __name__ == "__main__":
    main()
