"""The operator's own port: probes for Kubernetes, metrics for Prometheus. It changes nothing."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Protocol

from aiohttp import web
from prometheus_client import CONTENT_TYPE_LATEST

if TYPE_CHECKING:
    from mcpgroup_operator.metrics import Metrics

_METRICS_TYPE: Final = {"Content-Type": CONTENT_TYPE_LATEST}
_HEADERS: Final = {"Cache-Control": "no-store", "X-Content-Type-Options": "nosniff"}


class Health(Protocol):
    """What keeps the process from being ready, or alive; empty: nothing."""

    def not_ready(self) -> str: ...

    def not_alive(self) -> str: ...


def build_app(health: Health, metrics: Metrics) -> web.Application:
    """`GET /livez`, `/readyz` and `/metrics`."""

    async def livez(_: web.Request) -> web.Response:
        return _verdict(health.not_alive())

    async def readyz(_: web.Request) -> web.Response:
        return _verdict(health.not_ready())

    async def exposition(_: web.Request) -> web.Response:
        return web.Response(body=metrics.exposition(), headers={**_HEADERS, **_METRICS_TYPE})

    app = web.Application()
    app.router.add_get("/livez", livez)
    app.router.add_get("/readyz", readyz)
    app.router.add_get("/metrics", exposition)
    return app


def _verdict(reason: str) -> web.Response:
    status = 503 if reason else 200
    return web.Response(status=status, text=(reason or "ok") + "\n", headers=_HEADERS)
