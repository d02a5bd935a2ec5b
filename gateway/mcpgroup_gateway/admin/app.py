"""The admin port (DESIGN section 9): probes, metrics, status, the page, and actions by token.

    GET  /livez /readyz /startupz        200 or 503
    GET  /metrics                        Prometheus or OpenMetrics text
    GET  /status                         GatewayStatus
    GET  /explain?tool=…&tenant=…        the selection funnel (also prompt=, resource=)
    GET  /                               the page
    POST /rebalance                      with the admin token
    POST /members/{name}/{action}        drain, resume, start or stop, with the admin token

Reading is open to whoever reaches the port; acting needs the token, and is refused with 503 while
the replica has none.

Errors are JSON: {"error": "<stable word>", "message": "<sentence>"}.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final

from aiohttp import hdrs, web

from mcpgroup_gateway.admin.guard import SECURITY_HEADERS, is_loopback_host, presents_token
from mcpgroup_gateway.admin.page import load_page
from mcpgroup_gateway.admin.view import ActionRefused, MemberNotFound, ReplicaView, TokenSource
from mcpgroup_gateway.key_files import KeyUnusable
from mcpgroup_gateway.telemetry.exposition import expose
from mcpgroup_gateway.telemetry.lines import line_of
from mcpgroup_gateway.telemetry.metrics import Metrics
from mcpgroup_gateway.wire.protocol import Kind

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

    from aiohttp.typedefs import Handler

log = logging.getLogger(__name__)

VIEW: Final = web.AppKey("view", ReplicaView)
METRICS: Final = web.AppKey("metrics", Metrics)
TOKEN: Final = web.AppKey("token", TokenSource)
LOOPBACK_ONLY: Final = web.AppKey("loopback_only", bool)

#: No request needs a body.
MAX_BODY_BYTES: Final = 1024
_EXPLAINED: Final = {"tool": Kind.TOOL, "prompt": Kind.PROMPT, "resource": Kind.RESOURCE}
_ERROR_WORDS: Final = {404: "not_found", 405: "method_not_allowed", 413: "too_large"}


def build_admin(
    view: ReplicaView, metrics: Metrics, *, token: TokenSource, loopback_only: bool = False
) -> web.Application:
    """The application of the admin listener.

    `token` is asked at each action what it must present. With `loopback_only` (the listener is
    bound to a loopback address) only requests for that host are answered, so that no web page can
    read them by DNS rebinding; any other listener answers to every name, because kubelets and
    scrapers ask for the address of a pod.
    """
    app = web.Application(middlewares=[_answer], client_max_size=MAX_BODY_BYTES)
    app[VIEW] = view
    app[METRICS] = metrics
    app[TOKEN] = token
    app[LOOPBACK_ONLY] = loopback_only
    app.on_response_prepare.append(_add_headers)
    app.router.add_get("/", _page)
    app.router.add_get("/livez", _livez)
    app.router.add_get("/readyz", _readyz)
    app.router.add_get("/startupz", _startupz)
    app.router.add_get("/metrics", _metrics)
    app.router.add_get("/status", _status)
    app.router.add_get("/explain", _explain)
    app.router.add_post("/rebalance", _rebalance)
    app.router.add_post("/members/{name}/{action:drain|resume|start|stop}", _act)
    return app


# ---- around every request


async def _add_headers(_: web.Request, response: web.StreamResponse) -> None:
    for name, value in SECURITY_HEADERS.items():
        response.headers.setdefault(name, value)


@web.middleware
async def _answer(request: web.Request, handler: Handler) -> web.StreamResponse:
    if request.app[LOOPBACK_ONLY] and not is_loopback_host(request.headers.get(hdrs.HOST)):
        return _error(403, "host_not_allowed", "ask for localhost, 127.0.0.1 or [::1]")
    try:
        if request.method == hdrs.METH_POST and not presents_token(
            request.headers, request.app[TOKEN]()
        ):
            return _error(
                401,
                "unauthorized",
                "send the admin token as bearer or as X-Mcpgroup-Admin-Token",
                {hdrs.WWW_AUTHENTICATE: 'Bearer realm="mcpgroup admin"'},
            )
        return await handler(request)
    except KeyUnusable as error:
        return _error(503, "no_admin_token", f"actions are refused: {error}")
    except web.HTTPException as error:
        word = _ERROR_WORDS.get(error.status, "refused")
        allow = error.headers.get(hdrs.ALLOW)
        return _error(error.status, word, error.reason, {hdrs.ALLOW: allow} if allow else None)
    except MemberNotFound as error:
        return _error(404, "member_not_found", str(error))
    except ActionRefused as error:
        return _error(409, "conflict", str(error))
    except Exception:
        log.exception("%s %s failed", request.method, request.path)
        return _error(500, "internal", "the log says more")


def _json(
    body: Mapping[str, object], status: int = 200, headers: Mapping[str, str] | None = None
) -> web.Response:
    return web.Response(
        body=line_of(body), status=status, content_type="application/json", headers=headers
    )


def _error(
    status: int, word: str, message: str, headers: Mapping[str, str] | None = None
) -> web.Response:
    return _json({"error": word, "message": message}, status, headers)


# ---- probes


async def _livez(_: web.Request) -> web.Response:
    """The event loop answers: that is all that a restart could cure."""
    return _json({"live": True})


async def _readyz(request: web.Request) -> web.Response:
    is_ready = request.app[VIEW].is_ready()
    return _json({"ready": is_ready}, 200 if is_ready else 503)


async def _startupz(request: web.Request) -> web.Response:
    is_started = request.app[VIEW].is_started()
    return _json({"started": is_started}, 200 if is_started else 503)


# ---- reading


async def _metrics(request: web.Request) -> web.Response:
    accept = ",".join(request.headers.getall(hdrs.ACCEPT, []))
    body, content_type = await expose(request.app[METRICS].registry, accept)
    return web.Response(body=body, headers={hdrs.CONTENT_TYPE: content_type})


async def _status(request: web.Request) -> web.Response:
    return _json(request.app[VIEW].status())


async def _explain(request: web.Request) -> web.Response:
    query = request.query
    asked = [(kind, query[name]) for name, kind in _EXPLAINED.items() if query.get(name)]
    if len(asked) != 1:
        return _error(400, "bad_query", "give one of tool=, prompt= and resource=")
    kind, name = asked[0]
    return _json(request.app[VIEW].explain(kind, name, query.get("tenant") or None))


async def _page(_: web.Request) -> web.Response:
    page = load_page()
    return web.Response(
        body=page.body,
        content_type="text/html",
        charset="utf-8",
        headers={"Content-Security-Policy": page.policy},
    )


# ---- actions


async def _rebalance(request: web.Request) -> web.Response:
    request.app[VIEW].rebalance()
    log.info("rebalance on request")
    return _json({"done": "rebalance"})


async def _act(request: web.Request) -> web.Response:
    view = request.app[VIEW]
    name, action = request.match_info["name"], request.match_info["action"]
    actions: dict[str, Callable[[str], Awaitable[None]]] = {
        "drain": view.drain,
        "resume": view.resume,
        "start": view.start,
        "stop": view.stop,
    }
    await actions[action](name)
    log.info("%s of member %s on request", action, name)
    return _json({"done": action, "member": name})
