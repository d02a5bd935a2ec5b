"""`mcpgroup-operator`, and `python -m mcpgroup_operator`."""

from __future__ import annotations

import asyncio
import sys
from importlib.metadata import PackageNotFoundError, version
from typing import TYPE_CHECKING

import yaml

from mcpgroup_api import crd
from mcpgroup_operator import logs
from mcpgroup_operator.rbac import operator_roles, user_roles
from mcpgroup_operator.settings import parse

if TYPE_CHECKING:
    from collections.abc import Sequence

    from mcpgroup_operator.settings import Settings


def main(arguments: Sequence[str] | None = None) -> None:
    """Exits with 0 after SIGTERM, 1 when leadership was lost, 2 for wrong use."""
    settings = parse(sys.argv[1:] if arguments is None else arguments)
    if settings.prints:
        sys.stdout.write(_printed(settings))
        return
    logs.configure(settings.log_format, settings.log_level)
    # kopf and the client take more than a second to import; wrong use is told before.
    from mcpgroup_operator.runtime import serve

    sys.exit(asyncio.run(serve(settings, _version())))


def _printed(settings: Settings) -> str:
    """What has to be applied before this operator runs: kinds, or an account and its rights."""
    if settings.prints == "crds":
        return crd.text()
    release, namespace = settings.release, settings.namespace
    account = {
        "apiVersion": "v1",
        "kind": "ServiceAccount",
        "metadata": {"name": release, "namespace": namespace},
    }
    roles = operator_roles(release, namespace, release, settings.watch_namespaces)
    manifests = [account, *roles, *user_roles(release, namespace)]
    return "---\n".join(yaml.safe_dump(manifest, sort_keys=False) for manifest in manifests)


def _version() -> str:
    try:
        return version("mcpgroup")
    except PackageNotFoundError:
        return "unknown"


if __name__ == "__main__":
    main()
