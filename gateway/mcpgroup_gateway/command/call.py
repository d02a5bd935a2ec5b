"""`mcpgroup call`"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Annotated, Any, Final, NoReturn

import typer

from mcpgroup_gateway.command.options import (
    AsJson,
    SecretsFolder,
    TenantName,
    folder_of,
    read_manifest,
    wrong_use,
)

if TYPE_CHECKING:
    from mcpgroup_api import McpServerGroup
    from mcpgroup_gateway.command.client import Answer

_SEPARATOR: Final = "__"
_TENANT_HEADER: Final = "X-Tenant-ID"
_NAMED: Final = ("tools/call", "prompts/get")


def call(
    target: Annotated[
        str,
        typer.Argument(
            metavar="MANIFEST|URL", help="A manifest, served for this call, or a running gateway."
        ),
    ],
    what: Annotated[
        str,
        typer.Argument(
            metavar="METHOD|TOOL", help="A method (tools/list, ping, …) or the name of a tool."
        ),
    ],
    *,
    member: Annotated[
        str | None, typer.Option("--member", metavar="M", help="Only this member may answer.")
    ] = None,
    arg: Annotated[
        list[str] | None,
        typer.Option("--arg", metavar="K=V", help="An argument; V is JSON if it can be, or text."),
    ] = None,
    args_json: Annotated[
        str | None, typer.Option("--args-json", metavar="JSON", help="All arguments as an object.")
    ] = None,
    tenant: TenantName = None,
    tenant_header: Annotated[
        str | None,
        typer.Option(
            "--tenant-header",
            metavar="NAME",
            help=f"Header that names the tenant. Default: the manifest's, or {_TENANT_HEADER}.",
        ),
    ] = None,
    secrets: SecretsFolder = None,
    as_json: AsJson = False,
) -> None:
    """Call a tool, or any method of the protocol, and print the result.

    Arguments of a method are its params. Exit code 1 on an error or a result with isError.
    """
    arguments = _arguments(arg or [], args_json)
    separator, header = _SEPARATOR, tenant_header or _TENANT_HEADER
    group: McpServerGroup | None = None
    if not target.startswith(("http://", "https://")):
        group = read_manifest(target).group
        spec = group.spec
        separator = spec.names.separator
        header = tenant_header or (spec.tenant.header if spec.tenant else _TENANT_HEADER)
        names = [entry.name for entry in spec.members]
        if member is not None and member not in names:
            wrong_use(f"--member must be one of {', '.join(names)}")
    method, params = _request(what, arguments, member, separator)
    headers = {header: tenant} if tenant is not None else {}

    from mcpgroup_gateway.command.client import call_group, call_url
    from mcpgroup_gateway.command.loop import run_to_end
    from mcpgroup_gateway.command.output import progress

    with progress(f"calling {what}") as shown:
        if group is None:
            if secrets is not None:
                wrong_use("--secrets goes with a manifest; a running gateway has its own")
            work = call_url(target, method, params, headers, told=shown.tell)
        else:
            folder = folder_of("--secrets", secrets)
            work = call_group(group, folder, method, params, headers, told=shown.tell)
        answer = run_to_end(work)
    _print(answer, as_json=as_json)


def _request(
    what: str, arguments: dict[str, Any], member: str | None, separator: str
) -> tuple[str, dict[str, Any]]:
    """Method and params. A name without "/" is that of a tool; `ping` alone is a method."""
    if "/" not in what and what != "ping":
        method, params = "tools/call", {"name": what, "arguments": arguments}
    else:
        method, params = what, arguments
    if member is not None:
        if method not in _NAMED or not isinstance(params.get("name"), str):
            wrong_use("--member goes with tools and prompts, which are reached by a member's name")
        params = {**params, "name": f"{member}{separator}{params['name']}"}
    return method, params


def _arguments(pairs: list[str], text: str | None) -> dict[str, Any]:
    arguments: dict[str, Any] = {}
    if text is not None:
        try:
            value = json.loads(text, parse_constant=_no_constant)
        except ValueError as error:
            wrong_use(f"--args-json is not JSON: {error}")
        if not isinstance(value, dict):
            wrong_use("--args-json must be a JSON object")
        arguments.update(value)
    for pair in pairs:
        name, equals, value = pair.partition("=")
        if not equals or not name:
            wrong_use(f"--arg must look like name=value, {pair} does not")
        try:
            arguments[name] = json.loads(value, parse_constant=_no_constant)
        except ValueError:
            arguments[name] = value
    return arguments


def _no_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is no JSON")


def _print(answer: Answer, *, as_json: bool) -> None:
    from mcpgroup_gateway.command.output import is_terminal, print_json, printable

    result, error = answer.result, answer.error
    if as_json:
        print_json({"error": error} if error is not None else result)
    elif error is not None:
        typer.echo(printable(f"error {error['code']}: {error['message']}"), err=True)
        if error.get("data") is not None:
            typer.echo(json.dumps(error["data"]), err=True)
    elif answer.method == "tools/call" and isinstance(result.get("content"), list):
        for block in result["content"]:
            if isinstance(block, dict) and isinstance(block.get("text"), str):
                text = block["text"]
                typer.echo(printable(text) if is_terminal() else text)
            else:
                print_json(block)
        if not result["content"] and "structuredContent" in result:
            print_json(result["structuredContent"])
    else:
        print_json(result)
    if error is not None or result.get("isError") is True:
        raise typer.Exit(1)
