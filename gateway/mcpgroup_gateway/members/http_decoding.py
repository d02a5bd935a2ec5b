"""Undoing a content encoding that nobody asked for, without inflating more than was asked."""

from __future__ import annotations

import zlib
from typing import Final

#: Output of one step (bytes): the reader counts between steps, so a bomb is noticed in time.
STEP_BYTES: Final = 256 * 1024
_GZIP: Final = 16 + zlib.MAX_WBITS


class UndecodableContent(ValueError):
    """The body is not what its `Content-Encoding` says, or the coding is unknown."""


class ContentDecoder:
    """Decodes gzip (several members too) or deflate, with or without the zlib wrapper."""

    def __init__(self, coding: bytes) -> None:
        if coding not in (b"gzip", b"x-gzip", b"deflate"):
            raise UndecodableContent("the member answered in a content encoding nobody asked for")
        self._gzip = coding != b"deflate"
        self._inflate = zlib.decompressobj(_GZIP if self._gzip else zlib.MAX_WBITS)
        self._untouched = True

    @property
    def complete(self) -> bool:
        """True at an end of the encoded data, and before its beginning."""
        return self._inflate.eof or self._untouched

    def decode(self, data: bytes) -> tuple[bytes, bytes | None]:
        """At most `STEP_BYTES` of content, and what to decode next, None when that was all."""
        if self._inflate.eof:
            if not self._gzip:
                return b"", None  # bytes after a deflate stream mean nothing
            self._inflate = zlib.decompressobj(_GZIP)
        try:
            content = self._step(data)
        except zlib.error as fault:
            raise UndecodableContent("the body does not fit its content encoding") from fault
        self._untouched = False
        if self._inflate.eof:
            return content, self._inflate.unused_data or None
        # A full step may have more inside the decoder than the input that it left over.
        if self._inflate.unconsumed_tail or len(content) >= STEP_BYTES:
            return content, self._inflate.unconsumed_tail
        return content, None

    def _step(self, data: bytes) -> bytes:
        try:
            return self._inflate.decompress(data, STEP_BYTES)
        except zlib.error:
            # Some servers send the bare format where RFC 9110 asks for the wrapped one.
            if self._gzip or not self._untouched:
                raise
            self._inflate = zlib.decompressobj(-zlib.MAX_WBITS)
            return self._inflate.decompress(data, STEP_BYTES)
