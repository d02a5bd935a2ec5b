"""The id of an answer that cannot be parsed."""

from __future__ import annotations

import pytest

from mcpgroup_gateway.members.cut_answers import answered_id


@pytest.mark.parametrize(
    ("data", "found"),
    [
        (b'{"jsonrpc":"2.0","id":7,"result":{"text":"xxx', b"7"),
        (b' { "jsonrpc" : "2.0" , "id" : 12 , "result" : {', b"12"),
        (b'{"result":{"text":"x" and then,"jsonrpc":"2.0","id":7}', b"7"),
        (b'{"result":{"text":"x"},"jsonrpc":"2.0","id": 7 } \r', b"7"),
        (b'{"jsonrpc":"2.0","id":7,"method":"roots/list","params":{', None),
        (b'{"method":"sampling/createMessage","params":{},"jsonrpc":"2.0","id":7}', None),
        (b'{"jsonrpc":"2.0","id":"7","result":{', None),
        (b"not a message", None),
        (b"", None),
    ],
)
def test_the_id_is_found_where_servers_write_it(data: bytes, found: bytes | None) -> None:
    assert answered_id(data) == found
