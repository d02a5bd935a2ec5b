"""The page as text: what must never be in it, whatever else changes."""

from __future__ import annotations

import base64
import re
from hashlib import sha256

from mcpgroup_gateway.admin.page import load_page


def test_only_the_pages_own_code_may_run() -> None:
    page = load_page()
    text = page.body.decode()
    scripts = re.findall(r"<script>(.*?)</script>", text, re.DOTALL)
    styles = re.findall(r"<style>(.*?)</style>", text, re.DOTALL)
    assert len(scripts) == len(styles) == 1
    for name, content in (("script-src", scripts[0]), ("style-src", styles[0])):
        digest = base64.b64encode(sha256(content.encode()).digest()).decode()
        assert f"{name} 'sha256-{digest}'" in page.policy
    assert page.policy.startswith("default-src 'none'")
    assert "unsafe" not in page.policy


def test_nothing_is_loaded_from_elsewhere() -> None:
    text = load_page().body.decode()
    addresses = set(re.findall(r"https?://[^\s\"']+", text))
    assert addresses == {"http://www.w3.org/2000/svg"}  # a name, in the inline icon
    assert not re.search(r"<(script|link|img|iframe)[^>]+src=", text)
    assert re.findall(r"<link[^>]+href=\"(data:)?", text) == ["data:"]


def test_what_a_replica_says_never_becomes_markup() -> None:
    text = load_page().body.decode()
    for unsafe in ("innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "eval("):
        assert unsafe not in text
    assert not re.search(r"\son\w+\s*=\s*[\"']", text)  # inline handlers
    assert not re.search(r"\sstyle\s*=", text)


def test_the_token_is_kept_in_memory_only() -> None:
    text = load_page().body.decode()
    for place in ("localStorage", "sessionStorage", "document.cookie", "indexedDB"):
        assert place not in text


def test_every_field_has_a_label() -> None:
    text = load_page().body.decode()
    fields = re.findall(r"<(?:input|select) id=\"(\w+)\"", text)
    assert sorted(fields) == ["called", "kind", "tenant", "token"]
    for field in fields:
        assert f'<label class="visually-hidden" for="{field}">' in text
