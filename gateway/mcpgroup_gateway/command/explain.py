"""`mcpgroup explain`"""

from __future__ import annotations

from typing import Annotated, Any, Final
from urllib.parse import urlencode, urlsplit

import typer

from mcpgroup_gateway.command.options import AsJson, TenantName, no, wrong_use

_SECONDS: Final = 10


def explain(
    url: Annotated[
        str,
        typer.Argument(
            metavar="URL", help="Admin port of a running gateway: http://127.0.0.1:9090."
        ),
    ],
    *,
    tool: Annotated[str | None, typer.Option("--tool", metavar="T", help="Name of a tool.")] = None,
    prompt: Annotated[
        str | None, typer.Option("--prompt", metavar="P", help="Name of a prompt.")
    ] = None,
    resource: Annotated[
        str | None, typer.Option("--resource", metavar="URI", help="URI of a resource.")
    ] = None,
    tenant: TenantName = None,
    as_json: AsJson = False,
) -> None:
    """Show whom a running gateway would choose for a call now, and why nobody else.

    Exit code 1 when no member can take it.
    """
    from mcpgroup_gateway.command.loop import run_to_end
    from mcpgroup_gateway.command.output import print_json, print_table, printable, progress

    asked = {"tool": tool, "prompt": prompt, "resource": resource}
    query = {word: name for word, name in asked.items() if name is not None}
    if len(query) != 1:
        wrong_use("one of --tool, --prompt and --resource is needed")
    if tenant is not None:
        query["tenant"] = tenant
    address = f"{_admin_address(url)}/explain?{urlencode(query)}"
    with progress("asking the gateway"):
        answer = run_to_end(_fetch(address))
    if as_json:
        print_json(answer)
    else:
        rows = [
            [
                step["step"],
                ", ".join(step["left"]) or "none",
                "; ".join(f"{name} {reason}" for name, reason in step["dropped"].items()),
            ]
            for step in answer["steps"]
        ]
        print_table(("STEP", "LEFT", "DROPPED"), rows)
        typer.echo(printable(_verdict(answer), kept=""))
    if not answer.get("choice"):
        raise typer.Exit(1)


def _admin_address(url: str) -> str:
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.netloc:
        wrong_use("URL must be that of the admin port, as in http://127.0.0.1:9090")
    if parts.path.rstrip("/").endswith("/mcp"):
        wrong_use(
            f"{url} is where clients go; the funnel is on the admin port,"
            f" as in {parts.scheme}://{parts.hostname}:9090"
        )
    return url.split("?")[0].rstrip("/").removesuffix("/explain")


async def _fetch(address: str) -> dict[str, Any]:
    import aiohttp

    try:
        async with (
            aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=_SECONDS)) as client,
            client.get(address) as response,
        ):
            answer = await response.json(content_type=None)
            status = response.status
    except TimeoutError:
        no(f"{address}: no answer within {_SECONDS} s")
    except aiohttp.ClientError as error:
        no(f"{address}: {error}")
    except ValueError:
        no(f"{address}: the answer is not that of a gateway's admin port")
    if status != 200:
        message = answer.get("message") if isinstance(answer, dict) else None
        no(f"{address}: {message or f'HTTP {status}'}")
    if not isinstance(answer, dict) or not isinstance(answer.get("steps"), list):
        no(f"{address}: the answer is not that of a gateway's admin port")
    return answer


def _verdict(answer: dict[str, Any]) -> str:
    choice, refusal = answer.get("choice"), answer.get("refusal")
    if choice:
        return f"chosen: {choice['member']} ({choice['reason']})"
    if not refusal:
        return "refused"
    wait = refusal.get("retryAfterSeconds")
    again = f", try again in {wait:g} s" if wait else ""
    return f"refused: {refusal['reason']}{again}"
