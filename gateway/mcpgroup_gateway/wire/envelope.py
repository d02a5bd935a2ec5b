"""JSON-RPC messages as an envelope of raw members.

Only the envelope is decoded; `params`, `result` and `error` stay the bytes that were received, so
that nothing in them can change on the way through (big integers, unknown keys, number spelling).
Outgoing messages are spliced from such bytes, never re-encoded.

Sources: JSON-RPC 2.0; MCP 2025-11-25, base protocol (ids are strings or integers, never null).
"""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Final

import msgspec

if TYPE_CHECKING:
    from collections.abc import Iterator

Raw = msgspec.Raw

PARSE_ERROR: Final = -32700
INVALID_REQUEST: Final = -32600
METHOD_NOT_FOUND: Final = -32601
INVALID_PARAMS: Final = -32602
INTERNAL_ERROR: Final = -32603

_EMPTY = Raw()
_OPENING: Final = ord("{")
_QUOTE: Final = ord('"')
_NULL: Final = b"null"
_INTEGER = re.compile(rb"-?(?:0|[1-9][0-9]*)\Z")


class MalformedMessage(ValueError):
    """Bytes that are not one JSON-RPC message.

    `code` is the JSON-RPC code to answer with, `request_id` the raw id when it could be read.
    """

    def __init__(self, code: int, text: str, request_id: bytes | None = None) -> None:
        super().__init__(text)
        self.code = code
        self.text = text
        self.request_id = request_id


class Message(msgspec.Struct, gc=False):
    """One JSON-RPC message; absent members are empty `Raw`s (`bytes(raw) == b""`)."""

    jsonrpc: str = ""
    id: Raw = _EMPTY
    method: str | None = None
    params: Raw = _EMPTY
    result: Raw = _EMPTY
    error: Raw = _EMPTY

    @property
    def raw_id(self) -> bytes:
        """The id as it was spelled, for instance ``b'"007"'`` or ``b"7"``; empty when absent."""
        return bytes(self.id)

    @property
    def is_request(self) -> bool:
        return self.method is not None and len(self.id) > 0

    @property
    def is_notification(self) -> bool:
        return self.method is not None and not len(self.id)

    @property
    def is_response(self) -> bool:
        return self.method is None

    @property
    def is_error(self) -> bool:
        return self.method is None and len(self.error) > 0


_decoder = msgspec.json.Decoder(Message)
_object_decoder = msgspec.json.Decoder(dict[str, Raw])
_list_decoder = msgspec.json.Decoder(list[Raw])
_string_decoder = msgspec.json.Decoder(str)
_encoder = msgspec.json.Encoder()
_WHITESPACE: Final = " \t\r\n"


def parse_message(data: bytes) -> Message:
    """Decode exactly one JSON-RPC message.

    Raises `MalformedMessage` with -32700 for bytes that are not JSON in UTF-8 (NaN, truncated,
    nested beyond the parser's limit) and -32600 for JSON that is not one valid message.
    """
    if not data.isascii():
        try:
            data.decode()
        except UnicodeDecodeError as fault:
            raise MalformedMessage(PARSE_ERROR, "the message is not UTF-8") from fault
    try:
        message = _decoder.decode(data)
    except msgspec.ValidationError as fault:
        raise _invalid(data) from fault
    except (msgspec.DecodeError, RecursionError) as fault:
        message = _message_with_surrogates(data, fault)
    raw_id = bytes(message.id)
    if message.jsonrpc != "2.0":
        raise MalformedMessage(INVALID_REQUEST, '"jsonrpc" must be "2.0"', _usable_id(raw_id))
    if raw_id and not is_valid_id(raw_id):
        # An error response to a message whose id could not be read has the id null.
        if raw_id == _NULL and message.method is None and len(message.error):
            return message
        raise MalformedMessage(INVALID_REQUEST, '"id" must be a string or an integer')
    if message.method is None:
        if not raw_id and not len(message.error):
            raise MalformedMessage(INVALID_REQUEST, '"method" is missing')
        if bool(len(message.result)) == bool(len(message.error)):
            raise MalformedMessage(
                INVALID_REQUEST, 'a message has "method", "result" or "error"', _usable_id(raw_id)
            )
    elif len(message.params) and memoryview(message.params)[0] != _OPENING:
        raise MalformedMessage(INVALID_REQUEST, '"params" must be an object', _usable_id(raw_id))
    return message


def _invalid(data: bytes) -> MalformedMessage:
    """Say why JSON that has not the shape of a message was refused."""
    if data.lstrip()[:1] == b"[":
        return MalformedMessage(INVALID_REQUEST, "batches are not supported; send one message")
    try:
        members = _object_decoder.decode(data)
    except (msgspec.DecodeError, RecursionError):
        return MalformedMessage(INVALID_REQUEST, "a message must be a JSON object")
    return MalformedMessage(
        INVALID_REQUEST,
        '"jsonrpc" and "method" must be strings',
        _usable_id(bytes(members.get("id", _EMPTY))),
    )


def _message_with_surrogates(data: bytes, fault: Exception) -> Message:
    try:
        members = _members_with_surrogates(data)
        method = members.get("method")
        return Message(
            jsonrpc=_string_decoder.decode(members.get("jsonrpc", b'""')),
            id=members.get("id", _EMPTY),
            method=None if method is None else _string_decoder.decode(method),
            params=members.get("params", _EMPTY),
            result=members.get("result", _EMPTY),
            error=members.get("error", _EMPTY),
        )
    except (ValueError, RecursionError):
        raise MalformedMessage(PARSE_ERROR, "the message is not valid JSON") from fault


def _members_with_surrogates(data: bytes | Raw) -> dict[str, Raw]:
    """Split an object that msgspec refuses because a string holds half a surrogate pair.

    RFC 8259 allows `"\\ud83d"`, and JavaScript servers write it when they cut a text in the middle
    of an emoji; msgspec does not take it. Raises `ValueError` for any other fault of the bytes.
    """
    text = bytes(data).decode()
    members: dict[str, Raw] = {}
    for start, key_end, value_start, end in _spans(text, "{", "}"):
        name = json.loads(text[start:key_end])
        name.encode()  # a name must be writable again
        members[name] = Raw(text[value_start:end].encode())
    return members


def _items_with_surrogates(data: bytes | Raw) -> list[Raw]:
    text = bytes(data).decode()
    return [Raw(text[start:end].encode()) for _, _, start, end in _spans(text, "[", "]")]


def _spans(text: str, opening: str, closing: str) -> Iterator[tuple[int, int, int, int]]:
    """Where the keys (objects only) and values of a JSON container begin and end."""
    if "\\u" not in text:
        raise ValueError("not for this parser")
    position = _skip(text, 0, opening)
    if text[position : position + 1] == closing:
        position += 1
    else:
        while True:
            key_start = key_end = position
            if opening == "{":
                _, key_end = _json_decoder.raw_decode(text, position)
                if text[key_start] != '"':
                    raise ValueError("a key must be a string")
                position = _skip(text, key_end, ":")
            _, end = _json_decoder.raw_decode(text, position)
            yield key_start, key_end, position, end
            position = _skip(text, end, "")
            if text[position : position + 1] == closing:
                position += 1
                break
            position = _skip(text, position, ",")
    if text[position:].strip(_WHITESPACE):
        raise ValueError("text behind the end")


def _skip(text: str, position: int, token: str) -> int:
    while text[position : position + 1] in _WHITESPACE and position < len(text):
        position += 1
    if token:
        if text[position : position + 1] != token:
            raise ValueError(f"expected {token}")
        return _skip(text, position + 1, "")
    return position


def _refuse_constant(name: str) -> None:
    raise ValueError(f"{name} is not JSON")


def is_valid_id(raw: bytes) -> bool:
    """True for a JSON string or a JSON integer of any size."""
    return raw[:1] == b'"' or _INTEGER.match(raw) is not None


def _usable_id(raw: bytes) -> bytes | None:
    return raw if raw and is_valid_id(raw) else None


def parse_object(raw: bytes | Raw) -> dict[str, Raw]:
    """The members of a JSON object with their values raw; empty input is the empty object.

    Raises `MalformedMessage` (-32602) when it is something else.
    """
    if not len(raw):
        return {}
    try:
        return _object_decoder.decode(raw)
    except (msgspec.DecodeError, RecursionError) as fault:
        try:
            return _members_with_surrogates(raw)
        except (ValueError, RecursionError):
            raise MalformedMessage(INVALID_PARAMS, "expected a JSON object") from fault


def parse_list(raw: bytes | Raw) -> list[Raw]:
    """The items of a JSON array, raw. Raises `MalformedMessage` (-32602) for anything else."""
    try:
        return _list_decoder.decode(raw)
    except (msgspec.DecodeError, RecursionError) as fault:
        try:
            return _items_with_surrogates(raw)
        except (ValueError, RecursionError):
            raise MalformedMessage(INVALID_PARAMS, "expected a JSON array") from fault


def parse_string(raw: bytes | Raw | None) -> str | None:
    """The value of a JSON string; None for anything else."""
    if raw is None or not len(raw) or memoryview(raw)[0] != _QUOTE:
        return None
    try:
        return _string_decoder.decode(raw)
    except msgspec.DecodeError:
        return None


_json_decoder = json.JSONDecoder(parse_constant=_refuse_constant)


def encode_object(members: dict[str, Raw]) -> bytes:
    """Splice raw values into one JSON object."""
    return _encoder.encode(members)


def encode_json(value: object) -> bytes:
    """JSON of a plain value that the gateway itself made."""
    return _encoder.encode(value)


def encode_request(request_id: int | str, method: str, params: bytes | Raw) -> bytes:
    head = b'{"jsonrpc":"2.0","id":%b,"method":%b' % (
        b"%d" % request_id if isinstance(request_id, int) else _encoder.encode(request_id),
        _encoder.encode(method),
    )
    body = bytes(params)
    return b'%b,"params":%b}' % (head, body) if body else head + b"}"


def encode_notification(method: str, params: bytes | Raw = b"") -> bytes:
    body = bytes(params)
    if body:
        return b'{"jsonrpc":"2.0","method":%b,"params":%b}' % (_encoder.encode(method), body)
    return b'{"jsonrpc":"2.0","method":%b}' % _encoder.encode(method)


def encode_result(raw_id: bytes, result: bytes | Raw) -> bytes:
    return b'{"jsonrpc":"2.0","id":%b,"result":%b}' % (raw_id, bytes(result))


def encode_error(raw_id: bytes | None, error: bytes | Raw) -> bytes:
    """An error response around the bytes of an error object; without an id it is `null`."""
    return b'{"jsonrpc":"2.0","id":%b,"error":%b}' % (raw_id or _NULL, bytes(error))


def error_object(code: int, text: str, data: dict[str, object] | None = None) -> bytes:
    body: dict[str, object] = {"code": code, "message": text}
    if data is not None:
        body["data"] = data
    return _encoder.encode(body)
