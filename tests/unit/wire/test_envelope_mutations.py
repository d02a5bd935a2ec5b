"""Whatever bytes arrive, the envelope parser answers with a message or with `MalformedMessage`."""

from __future__ import annotations

from hypothesis import example, given
from hypothesis import strategies as st

from mcpgroup_gateway.wire.envelope import MalformedMessage, Message, parse_message

SEEDS = (
    b'{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"a","arguments":{"n":1e400}}}',
    b'{"jsonrpc":"2.0","id":"007","result":{"content":[{"type":"text","text":"\\ud83d\\ude00"}]}}',
    b'{"jsonrpc":"2.0","id":null,"error":{"code":-32700,"message":"\xc3\xa9"}}',
    b'{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":7}}',
    b'[{"jsonrpc":"2.0","id":1,"method":"ping"}]',
)
PIECES = (b"", b'"', b"{", b"}", b"[", b"]", b",", b":", b"\\", b"\\ud800", b"null", b"NaN", b"-0")
PIECES_AND_BYTES = st.one_of(st.sampled_from(PIECES), st.binary(max_size=4))
EDIT = st.tuples(st.integers(0, 120), st.integers(0, 6), PIECES_AND_BYTES)


def parses_or_is_malformed(data: bytes) -> Message | None:
    try:
        return parse_message(data)
    except MalformedMessage as raised:
        fault = raised
    assert fault.code in (-32700, -32600)
    assert fault.text
    return None


@given(seed=st.sampled_from(SEEDS), edits=st.lists(EDIT, min_size=1, max_size=4))
def test_mutations_are_parsed_or_malformed(
    seed: bytes, edits: list[tuple[int, int, bytes]]
) -> None:
    data = seed
    for start, removed, added in edits:
        data = data[:start] + added + data[start + removed :]
    message = parses_or_is_malformed(data)
    if message is not None:
        assert message.is_request or message.is_notification or message.is_response


@given(data=st.binary(max_size=200))
@example(b"[" * 200_000)
@example(b'{"a":' * 200_000)
@example(b'{"jsonrpc":"2.0","id":1,"result":' + b"[" * 100_000)
def test_any_bytes_are_parsed_or_malformed(data: bytes) -> None:
    parses_or_is_malformed(data)
