"""What is kept of a client that follows something."""

from __future__ import annotations

from typing import Any, cast

from mcpgroup_gateway.members.upstream import ClientIdentity
from mcpgroup_gateway.serving.following import SessionFollower
from mcpgroup_gateway.serving.interface import Caller


def test_of_the_request_that_made_a_session_follow_nothing_is_kept() -> None:
    session, sink = cast("Any", object()), cast("Any", object())
    client = ClientIdentity(b'{"roots":{}}', b"{}")
    headers = {"authorization": "Bearer of that request"}
    asked = Caller(session, "tenant", "1.2.3.4", headers, sink, client, "2025-11-25")
    kept = SessionFollower(asked).caller
    assert (kept.session, kept.tenant, kept.client) == (session, "tenant", client)
    assert kept.sink is None
    assert not kept.headers
    assert asked.sink is sink
