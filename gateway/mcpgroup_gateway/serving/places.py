"""Where subscriptions hold at the moment: by upstream session and URI.

Members say what changed as often as they like, so that finding who follows it must not cost more
with everything else that is followed.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final
from weakref import WeakValueDictionary

if TYPE_CHECKING:
    from mcpgroup_gateway.members.upstream import Upstream
    from mcpgroup_gateway.serving.following import Follower

#: So many parents of a changed resource are looked for among those that are followed.
_MAX_PARENTS: Final = 64


@dataclass(slots=True, eq=False)
class Subscription:
    """`upstream` is where it holds at the moment; None while it does not. Set by `Places`."""

    follower: Follower
    uri: str
    endpoint_id: str = ""
    upstream: Upstream | None = None


class Places:
    """Every subscription that holds somewhere."""

    def __init__(self) -> None:
        #: By the URI without slashes at its end.
        self._held: dict[Upstream, dict[str, dict[Subscription, None]]] = {}
        self._turns: WeakValueDictionary[tuple[Upstream, str], asyncio.Lock] = WeakValueDictionary()

    def __len__(self) -> int:
        return sum(len(held) for uris in self._held.values() for held in uris.values())

    def turn(self, upstream: Upstream, uri: str) -> asyncio.Lock:
        """Held by whoever asks the member to begin or to end telling of a URI: of two followers
        neither may undo what the other has just been promised."""
        return self._turns.setdefault((upstream, uri), asyncio.Lock())

    def sessions(self) -> set[Upstream]:
        return set(self._held)

    def put(self, subscription: Subscription, endpoint_id: str, upstream: Upstream) -> None:
        """It holds here from now on, and nowhere else."""
        self.take(subscription)
        subscription.endpoint_id, subscription.upstream = endpoint_id, upstream
        uris = self._held.setdefault(upstream, {})
        uris.setdefault(subscription.uri.rstrip("/"), {})[subscription] = None

    def take(self, subscription: Subscription) -> None:
        """It holds nowhere."""
        upstream, subscription.upstream = subscription.upstream, None
        if upstream is None:
            return
        uris, key = self._held[upstream], subscription.uri.rstrip("/")
        del uris[key][subscription]
        if not uris[key]:
            del uris[key]
        if not uris:
            del self._held[upstream]

    def on(self, upstream: Upstream) -> list[Subscription]:
        return [each for held in self._held.get(upstream, {}).values() for each in held]

    def holds(self, upstream: Upstream, uri: str) -> bool:
        """Whether anybody follows exactly this URI here."""
        held = self._held.get(upstream, {}).get(uri.rstrip("/"), ())
        return any(subscription.uri == uri for subscription in held)

    def uris(self, upstream: Upstream) -> list[str]:
        """What must be followed on this session, sorted."""
        return sorted({subscription.uri for subscription in self.on(upstream)})

    def followers(self, upstream: Upstream, changed: str) -> list[Follower]:
        """Those whom a change concerns, each once.

        A server may name a part of the resource that was subscribed to (MCP, resources).
        """
        uris = self._held.get(upstream)
        if uris is None:
            return []
        held = [each for each in uris.get(changed.rstrip("/"), ()) if each.uri == changed]
        at = -1
        for _ in range(_MAX_PARENTS):
            at = changed.find("/", at + 1)
            if at < 0:
                break
            held += uris.get(changed[:at], ())
        return list(dict.fromkeys(subscription.follower for subscription in held))
