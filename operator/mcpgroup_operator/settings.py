"""What the operator is told when it starts: options of the command line, read once."""

from __future__ import annotations

import argparse
import os
import re
import socket
import uuid
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Sequence

_NAMESPACE_FILE: Final = Path("/var/run/secrets/kubernetes.io/serviceaccount/namespace")
_LABEL: Final = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?")

DEFAULT_IMAGE: Final = "mcpgroup-gateway:0.1.0"


@dataclass(frozen=True, slots=True)
class Settings:
    """Times are in seconds."""

    kubeconfig: Path | None
    """None: this process is a pod."""
    namespace: str
    """The operator's own: the Lease lives there, and children are marked with it."""
    release: str
    """Name of this installation, of its Lease, and part of the mark on children."""
    gateway_image: str
    """For groups that name none."""
    watch_namespaces: tuple[str, ...]
    """Empty: all namespaces."""
    watch_selector: str
    """Label selector over groups; empty: all."""
    pods: str
    """How gateway pods are asked: `direct` at their address, `proxy` through the API server."""
    pod_admin_port: int
    """The port of gateway pods that answers `/status`."""
    admin_host: str
    admin_port: int
    poll_seconds: float
    """Time between two questions to a gateway pod, give or take a fifth."""
    resync_seconds: float
    """Every group is reconciled at least so often, and the store listed anew."""
    watch_inactivity_seconds: float
    """A watch that hears nothing, not even a bookmark, is opened anew."""
    identity: str
    """Holder of the lease."""
    log_format: str
    log_level: str
    prints: str
    """`crds` or `rbac`: print these and end. Empty: run."""


def parse(arguments: Sequence[str]) -> Settings:
    """Exits with 2 and a message for wrong use, as argparse does."""
    parser = argparse.ArgumentParser(
        prog="mcpgroup-operator",
        description="Turns every McpServerGroup into gateways, and keeps its status true.",
    )
    add = parser.add_argument
    add("--kubeconfig", type=Path, metavar="FILE", help="default: KUBECONFIG, else inside a pod")
    add("--namespace", default=_own_namespace(), help="the operator's own (%(default)s)")
    add("--release", default="mcpgroup", help="name of this installation (%(default)s)")
    add("--gateway-image", default=DEFAULT_IMAGE, help="for groups that name none (%(default)s)")
    add("--watch-namespaces", default="", metavar="A,B", help="default: all namespaces")
    add("--watch-selector", default="", metavar="LABELS", help="only groups with these labels")
    add("--pods", choices=["direct", "proxy"], help="default: direct in a pod, else proxy")
    add("--pod-admin-port", type=_port, default=9090, help="port of /status (%(default)s)")
    add("--admin-host", default="127.0.0.1", help="address of metrics and probes (%(default)s)")
    add("--admin-port", type=_port, default=9091, help="their port, 0: any free (%(default)s)")
    add("--poll-seconds", type=_seconds, default=5.0, help="between polls of a pod (%(default)s)")
    add("--resync-seconds", type=_seconds, default=600.0, help="at least so often (%(default)s)")
    add(
        "--watch-inactivity-seconds",
        type=_seconds,
        default=70.0,
        help="a watch silent for so long is opened anew (%(default)s)",
    )
    add("--log-format", choices=["json", "console"], default="json")
    add("--log-level", choices=["Debug", "Info", "Warning", "Error"], default="Info")
    only = parser.add_mutually_exclusive_group()
    for what, text in (("crds", "the CustomResourceDefinition"), ("rbac", "roles and bindings")):
        flag = f"--print-{what}"
        only.add_argument(flag, dest="prints", action="store_const", const=what, help=text)
    options = parser.parse_args(arguments)
    if options.kubeconfig is None and os.environ.get("KUBECONFIG"):
        options.kubeconfig = Path(os.environ["KUBECONFIG"])
    namespaces = tuple(dict.fromkeys(n for n in options.watch_namespaces.split(",") if n))
    for name in (*namespaces, options.namespace, options.release):
        if not _LABEL.fullmatch(name):
            parser.error(f"{name!r} is not a name: lower-case letters, digits and '-'")
    return Settings(
        kubeconfig=options.kubeconfig,
        namespace=options.namespace,
        release=options.release,
        gateway_image=options.gateway_image,
        watch_namespaces=namespaces,
        watch_selector=options.watch_selector,
        pods=options.pods or ("direct" if options.kubeconfig is None else "proxy"),
        pod_admin_port=options.pod_admin_port,
        admin_host=options.admin_host,
        admin_port=options.admin_port,
        poll_seconds=options.poll_seconds,
        resync_seconds=options.resync_seconds,
        watch_inactivity_seconds=options.watch_inactivity_seconds,
        identity=f"{socket.gethostname()}-{uuid.uuid4().hex[:8]}",
        log_format=options.log_format,
        log_level=options.log_level,
        prints=options.prints or "",
    )


def _own_namespace() -> str:
    if os.environ.get("POD_NAMESPACE"):
        return os.environ["POD_NAMESPACE"]
    try:
        return _NAMESPACE_FILE.read_text().strip()
    except OSError:
        return "default"


def _port(text: str) -> int:
    if text.isdigit() and int(text) <= 65535:
        return int(text)
    raise argparse.ArgumentTypeError("must be a port, 0 to 65535")


def _seconds(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not 0.05 <= value <= 86400:
        raise argparse.ArgumentTypeError("must be a number of seconds, 0.05 to 86400")
    return value
