"""The page for people: one HTML file, with a policy that lets exactly its own code run."""

from __future__ import annotations

import base64
import re
from dataclasses import dataclass
from functools import cache
from hashlib import sha256
from importlib import resources

_INLINE = re.compile(rb"<(style|script)>(.*?)</\1>", re.DOTALL)


@dataclass(frozen=True, slots=True)
class Page:
    body: bytes
    policy: str  # for Content-Security-Policy


@cache
def load_page() -> Page:
    """Read `page.html` from the package, once a process."""
    body = resources.files(__package__).joinpath("page.html").read_bytes()
    hashes: dict[bytes, list[str]] = {b"style": [], b"script": []}
    for kind, content in _INLINE.findall(body):
        digest = base64.b64encode(sha256(content).digest()).decode()
        hashes[kind].append(f"'sha256-{digest}'")
    policy = "; ".join(
        (
            "default-src 'none'",
            f"style-src {' '.join(hashes[b'style'])}",
            f"script-src {' '.join(hashes[b'script'])}",
            "connect-src 'self'",
            "img-src data:",
            "base-uri 'none'",
            "form-action 'none'",
            "frame-ancestors 'none'",
        )
    )
    return Page(body, policy)
