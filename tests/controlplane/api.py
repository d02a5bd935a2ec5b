"""A small client of an API server for tests: plain dicts, one method a verb, waits that watch."""

from __future__ import annotations

import asyncio
import contextlib
import json
from typing import TYPE_CHECKING, Any, Final, Self

import aiohttp
import yaml
from tests.controlplane import kinds

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable, Mapping

    from tests.controlplane.access import Access

_TYPES: Final = {
    "apply": "application/apply-patch+yaml",
    "merge": "application/merge-patch+json",
    "json": "application/json-patch+json",
    "strategic": "application/strategic-merge-patch+json",
}
_REQUEST_SECONDS: Final = 30.0
CLOSE_SECONDS: Final = 0.1
"""Connections over TLS are closed by the loop, a moment after their session: one that the loop
does not outlive is found by whichever test comes next."""


Changes = list[tuple[str, dict[str, Any]]]


class ApiError(Exception):
    """The API server refused: `code` (HTTP), `reason` (such as `AlreadyExists`), `message`."""

    def __init__(self, code: int, status: Mapping[str, Any]) -> None:
        self.code = code
        self.reason = str(status.get("reason", ""))
        self.message = str(status.get("message", ""))
        self.details: Mapping[str, Any] = status.get("details") or {}
        super().__init__(f"{code} {self.reason}: {self.message}")


class Api:
    """`async with Api(access) as api:`. Kinds are plurals in lower case (`kinds.VERSIONS`).

    `namespace` is the one that is meant where a call names none; cluster-wide kinds ignore it.
    Every call but those with `find` raises `ApiError` when it is refused.
    """

    def __init__(self, access: Access, namespace: str | None = None) -> None:
        self._access = access
        self.namespace = namespace

    async def __aenter__(self) -> Self:
        tls = self._access.tls() if self._access.server.startswith("https:") else False
        self._http = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(ssl=tls, limit=0),
            headers=self._access.headers,
            read_bufsize=2**20,
        )
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._http.close()
        await asyncio.sleep(CLOSE_SECONDS)

    # -- reading

    async def get(self, plural: str, name: str, namespace: str | None = None) -> dict[str, Any]:
        return await self.request("GET", self._path(plural, namespace, name))

    async def find(
        self, plural: str, name: str, namespace: str | None = None
    ) -> dict[str, Any] | None:
        """As `get`; None when there is no such object."""
        try:
            return await self.get(plural, name, namespace)
        except ApiError as error:
            if error.code != 404:
                raise
            return None

    async def list(
        self, plural: str, namespace: str | None = None, *, labels: str = ""
    ) -> list[dict[str, Any]]:
        """The objects of one namespace; `"*"` means all."""
        answer = await self.request(
            "GET", self._path(plural, namespace), params={"labelSelector": labels}
        )
        items: list[dict[str, Any]] = answer["items"]
        return items

    # -- writing

    async def create(
        self, plural: str, body: Mapping[str, Any], namespace: str | None = None, **params: str
    ) -> dict[str, Any]:
        return await self.request("POST", self._path(plural, namespace), body=body, params=params)

    async def replace(
        self, plural: str, body: Mapping[str, Any], namespace: str | None = None, **params: str
    ) -> dict[str, Any]:
        path = self._path(plural, namespace, body["metadata"]["name"])
        return await self.request("PUT", path, body=body, params=params)

    async def apply(
        self,
        plural: str,
        body: Mapping[str, Any],
        namespace: str | None = None,
        *,
        manager: str = "test",
        force: bool = False,
    ) -> dict[str, Any]:
        """Server-side apply, with strict field validation."""
        params = {"fieldManager": manager, "fieldValidation": "Strict"}
        params["force"] = "true" if force else "false"
        path = self._path(plural, namespace, body["metadata"]["name"])
        return await self.request("PATCH", path, body=body, params=params, patch="apply")

    async def patch(
        self,
        plural: str,
        name: str,
        body: Any,
        namespace: str | None = None,
        *,
        kind: str = "merge",
        subresource: str = "",
        **params: str,
    ) -> dict[str, Any]:
        """`kind`: merge, json, strategic or apply."""
        rest = [name, subresource] if subresource else [name]
        path = self._path(plural, namespace, *rest)
        return await self.request("PATCH", path, body=body, params=params, patch=kind)

    async def delete(
        self,
        plural: str,
        name: str,
        namespace: str | None = None,
        *,
        propagation: str = "Background",
        grace: int | None = None,
    ) -> dict[str, Any]:
        """`propagation`: Background, Foreground or Orphan; `grace` in seconds, 0 forces."""
        body: dict[str, Any] = {"propagationPolicy": propagation}
        if grace is not None:
            body["gracePeriodSeconds"] = grace
        return await self.request("DELETE", self._path(plural, namespace, name), body=body)

    # -- waiting

    async def wait_for(
        self,
        plural: str,
        name: str,
        holds: Callable[[dict[str, Any]], object],
        namespace: str | None = None,
        *,
        within: float = 10,
    ) -> dict[str, Any]:
        """Watch until the object is there and `holds(it)`; the object then."""
        found = await self.wait_until(
            plural,
            lambda objects: name in objects and bool(holds(objects[name])),
            namespace,
            fields=f"metadata.name={name}",
            within=within,
        )
        return found[name]

    async def wait_gone(
        self, plural: str, name: str, namespace: str | None = None, *, within: float = 10
    ) -> None:
        """Watch until there is no such object."""
        fields = f"metadata.name={name}"
        await self.wait_until(
            plural, lambda objects: not objects, namespace, fields=fields, within=within
        )

    async def wait_until(
        self,
        plural: str,
        holds: Callable[[dict[str, dict[str, Any]]], object],
        namespace: str | None = None,
        *,
        labels: str = "",
        fields: str = "",
        within: float = 10,
    ) -> dict[str, dict[str, Any]]:
        """Watch until `holds({name: object})` of those selected; what it was then.

        Fails with what was there last.
        """
        objects: dict[str, dict[str, Any]] = {}
        try:
            async with (
                asyncio.timeout(within),
                contextlib.aclosing(
                    self.watch(plural, namespace, labels=labels, fields=fields)
                ) as watch,
            ):
                async for objects in watch:
                    if holds(objects):
                        return objects
        except TimeoutError:
            raise AssertionError(f"not within {within} s:\n{_shown(objects)}") from None
        raise AssertionError("a watch has no end")

    async def watch(
        self, plural: str, namespace: str | None = None, *, labels: str = "", fields: str = ""
    ) -> AsyncGenerator[dict[str, dict[str, Any]], None]:
        """The objects by name (`namespace/name` with namespace `"*"`), at first and after each
        change. Endless."""
        objects: dict[str, dict[str, Any]] = {}
        async with contextlib.aclosing(
            self.changes(plural, namespace, labels=labels, fields=fields)
        ) as changes:
            async for batch in changes:
                for kind, item in batch:
                    if kind == "DELETED":
                        objects.pop(_key(item, namespace), None)
                    else:
                        objects[_key(item, namespace)] = item
                yield objects

    async def changes(
        self, plural: str, namespace: str | None = None, *, labels: str = "", fields: str = ""
    ) -> AsyncGenerator[Changes, None]:
        """What happens, as pairs of `ADDED`, `MODIFIED` or `DELETED` and the object: at first all
        that is there, then each change. Endless: a watch that ends begins anew."""
        path = self._path(plural, namespace)
        selected = {"labelSelector": labels, "fieldSelector": fields}
        known: dict[str, dict[str, Any]] = {}
        while True:
            listed = await self.request("GET", path, params=selected)
            found = {_key(item, "*"): item for item in listed["items"]}
            gone = [("DELETED", item) for key, item in known.items() if key not in found]
            yield [*gone, *(("ADDED", item) for item in found.values())]
            known = found
            version = listed["metadata"]["resourceVersion"]
            async with contextlib.aclosing(self.events(path, version, **selected)) as events:
                async for event in events:
                    if event["type"] == "ERROR":
                        break
                    item = event["object"]
                    if event["type"] == "DELETED":
                        known.pop(_key(item, "*"), None)
                    else:
                        known[_key(item, "*")] = item
                    yield [(event["type"], item)]

    async def events(
        self, path: str, version: str, **params: str
    ) -> AsyncGenerator[dict[str, Any], None]:
        """One watch request: `{"type": …, "object": …}` until its end."""
        query = {"watch": "1", "resourceVersion": version, **params}
        timeout = aiohttp.ClientTimeout(total=None)
        async with self._http.get(
            self._access.server + path, params=query, timeout=timeout
        ) as answer:
            if answer.status != 200:
                raise await _refusal(answer)
            while line := await answer.content.readline():
                yield json.loads(line)

    # -- anything else

    async def request(
        self,
        method: str,
        path: str,
        *,
        body: Any = None,
        params: Mapping[str, str] | None = None,
        patch: str = "",
    ) -> dict[str, Any]:
        """A request with a JSON answer.

        Raises `ApiError`.
        """
        headers = {"Content-Type": _TYPES[patch] if patch else "application/json"}
        query = {key: value for key, value in (params or {}).items() if value}
        async with self._http.request(
            method,
            self._access.server + path,
            data=None if body is None else json.dumps(body),
            params=query,
            headers=headers,
            timeout=aiohttp.ClientTimeout(total=_REQUEST_SECONDS),
        ) as answer:
            if answer.status >= 300:
                raise await _refusal(answer)
            result: dict[str, Any] = await answer.json(content_type=None)
            return result

    def _path(self, plural: str, namespace: str | None, *rest: str) -> str:
        where = self.namespace if namespace is None else namespace
        return kinds.path(plural, None if where == "*" else where, *rest)


def _key(item: Mapping[str, Any], namespace: str | None) -> str:
    metadata = item["metadata"]
    name = str(metadata["name"])
    return f"{metadata.get('namespace', '')}/{name}" if namespace == "*" else name


async def _refusal(answer: aiohttp.ClientResponse) -> ApiError:
    text = await answer.text()
    try:
        status = json.loads(text)
    except ValueError:
        status = {"message": text}
    return ApiError(answer.status, status)


def _shown(objects: Mapping[str, Any]) -> str:
    """For a failure: without managed fields, and without the values of Secrets."""
    shown = {}
    for name, item in objects.items():
        metadata = {k: v for k, v in item["metadata"].items() if k != "managedFields"}
        kept = {key: value for key, value in item.items() if key not in ("data", "metadata")}
        shown[name] = {"metadata": metadata, **kept}
    return yaml.safe_dump(shown, sort_keys=False)[-8000:]
