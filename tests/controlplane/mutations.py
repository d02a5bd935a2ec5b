"""Manifests that differ from good ones in one place, drawn by a seed."""

from __future__ import annotations

import copy
import random
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

_WHOLE: Final = (-1, 0, 1, 2, 64, 65, 100, 101, 3600, 3601, 65535, 65536, 2**31, 2**53 + 1)
_TEXTS: Final = (
    *("", "a", "A", "b", "x" * 20, "x" * 64, "x" * 300, "a\n", "a b", "é", "é" * 20, "0", "1.0"),
    *("-", ".", "/", "a/b", "a.b/c", "\x7f", "\u0085", "\u2028", "\U0001f600", "None", "Auto"),
    *(
        "http://a",
        "HTTP://a:0/?x",
        "http://a@b/",
        "http://[::1]",
        "http://[::1%25eth0]/",
        "http://a:",
    ),
    *("http://[::ffff:1.2.3.4]/", "https://a:65536/", "http://a_b.c./", "http://a/%zz#", "ws://a"),
    *("localhost:80", "[::1]:80", "a:b", "https://a.b:80", "null", "chrome-extension://x"),
    *("10.0.0.0/8", "::/0", "1Gi", "1e3", "Equal", "Exists", "Header", "Tenant", "ConsistentHash"),
)
_OTHERS: Final[tuple[Any, ...]] = (True, False, 0.5, [], ["a"], [1], {}, {"a": "b"}, {"a": 1})


def mutations(
    manifests: Sequence[dict[str, Any]], count: int, seed: int
) -> Iterator[dict[str, Any]]:
    """Copies of manifests, each with one value of `spec` replaced, dropped, doubled or added."""
    draw = random.Random(seed)  # noqa: S311 - no secret
    for _ in range(count):
        manifest = copy.deepcopy(draw.choice(manifests))
        holder, key = draw.choice(list(_places(manifest["spec"])))
        match draw.randrange(8):
            case 0:
                del holder[key]
            case 1 if isinstance(holder, list):
                holder.append(copy.deepcopy(holder[key]))
            case 1 | 2 if isinstance(holder, dict):
                holder[draw.choice(_TEXTS)] = holder[key]
            case _:
                holder[key] = copy.deepcopy(_other(holder[key], draw))
        yield manifest


def _other(value: Any, draw: random.Random) -> Any:
    """Most often of the same kind: other kinds are refused soon."""
    if draw.random() < 0.1:
        return draw.choice(_OTHERS)
    if isinstance(value, str):
        return draw.choice(_TEXTS)
    if isinstance(value, bool):
        return not value
    if isinstance(value, int | float):
        return draw.choice(_WHOLE)
    return draw.choice((*_TEXTS, *_WHOLE, *_OTHERS))


def _places(value: Any) -> Iterator[tuple[Any, Any]]:
    items = value.items() if isinstance(value, dict) else enumerate(value)
    for key, inner in items:
        yield value, key
        if isinstance(inner, dict | list):
            yield from _places(inner)
