"""A control plane as processes of this machine: etcd, kube-apiserver, kube-controller-manager."""

from __future__ import annotations

import asyncio
import random
import shutil
import socket
from dataclasses import replace
from typing import TYPE_CHECKING, Final, Self

import aiohttp
from tests.controlplane.access import Access
from tests.controlplane.api import Api
from tests.controlplane.audit import POLICY
from tests.controlplane.manifests import install_kinds
from tests.controlplane.program import Program
from tests.harness.certificates import Authority, signing_key

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

# Below the range from which the kernel gives ports to outgoing connections.
_PORTS: Final = range(20000, 32000)
_ATTEMPTS: Final = 3
_START_SECONDS: Final = 60.0

# Without the ones that need nodes: pods here are stand-ins, often with loopback addresses, which
# an EndpointSlice refuses.
_CONTROLLERS: Final = (
    "clusterrole-aggregation-controller",
    "deployment-controller",
    "disruption-controller",
    "garbage-collector-controller",
    "horizontal-pod-autoscaler-controller",
    "namespace-controller",
    "replicaset-controller",
    "resourcequota-controller",
    "root-ca-certificate-publisher-controller",
    "serviceaccount-controller",
)


class PlaneError(Exception):
    """A program of the control plane ended or was not ready in time; with the end of its log."""


class ControlPlane:
    """`async with ControlPlane(folder, programs) as plane:` owns its programs, `crds/` installed.

    `programs` are paths by name (`binaries.control_plane()`). `controllers=False` leaves
    kube-controller-manager away. The folder keeps certificates, logs and the audit log.
    """

    def __init__(
        self, folder: Path, programs: Mapping[str, Path], *, controllers: bool = True
    ) -> None:
        self.folder = folder
        self._paths = programs
        self._controllers = controllers
        self.etcd: Program
        self.api_server: Program
        self.controller_manager: Program | None = None
        self.access: Access

    @property
    def audit_log(self) -> Path:
        return self.folder / "audit.log"

    async def __aenter__(self) -> Self:
        self.folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        self._authority = Authority()
        (self.folder / "authority.pem").write_bytes(self._authority.save())
        (self.folder / "ca.pem").write_bytes(self._authority.pem)
        (self.folder / "server.pem").write_bytes(
            self._authority.server("127.0.0.1", "localhost", "kubernetes.default.svc")
        )
        (self.folder / "accounts.pem").write_bytes(signing_key())
        (self.folder / "audit.yaml").write_text(POLICY)
        try:
            await self._start_somewhere()
            # Before the garbage collector starts, which looks for new kinds every 30 s only.
            async with Api(self.access) as api:
                await install_kinds(api)
            if self._controllers:
                await self._start_controllers()
        except BaseException:
            await self.stop()
            raise
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.stop()

    async def stop(self) -> None:
        """End every program. Idempotent."""
        if self.controller_manager is not None:
            await self.controller_manager.kill()
        if hasattr(self, "api_server"):
            await self.api_server.kill()  # its own shutdown waits for open watches
        if hasattr(self, "etcd"):
            await self.etcd.kill()
        shutil.rmtree(self.folder / "etcd", ignore_errors=True)

    async def _start_somewhere(self) -> None:
        """Ports that were free may be taken a moment later: then others are tried."""
        for attempt in range(1, _ATTEMPTS + 1):
            await self._prepare_server(*_free_ports(3))
            try:
                await self.etcd.start()
                await self.api_server.start()
                await self.ready()
            except PlaneError as fault:
                await self.stop()
                if "address already in use" not in str(fault) or attempt == _ATTEMPTS:
                    raise
            else:
                return

    async def _prepare_server(self, port: int, etcd: int, peers: int) -> None:
        self.etcd = self._program("etcd", *_etcd_flags(self.folder / "etcd", etcd, peers))
        self.api_server = self._program(
            "kube-apiserver", *_api_server_flags(self.folder, port, f"http://127.0.0.1:{etcd}")
        )
        self.access = Access(
            server=f"https://127.0.0.1:{port}",
            authority=self._authority.pem.decode(),
            certificate=self._authority.user("admin", ["system:masters"]).decode(),
        )
        self.access.write(self.folder / "kubeconfig")

    async def _start_controllers(self) -> None:
        user = self._authority.user("system:kube-controller-manager", ["system:masters"])
        kubeconfig = replace(self.access, certificate=user.decode()).write(
            self.folder / "controllers.kubeconfig"
        )
        self.controller_manager = self._program(
            "kube-controller-manager",
            f"--kubeconfig={kubeconfig}",
            "--secure-port=0",
            "--leader-elect=false",
            f"--root-ca-file={self.folder / 'ca.pem'}",
            f"--controllers={','.join(_CONTROLLERS)}",
            "--kube-api-qps=200",
            "--kube-api-burst=400",
            "--horizontal-pod-autoscaler-sync-period=1s",
        )
        await self.controller_manager.start()

    def _program(self, name: str, *flags: str) -> Program:
        return Program(name, [str(self._paths[name]), *flags], self.folder / f"{name}.log")

    async def ready(self, within: float = _START_SECONDS) -> None:
        """Wait until the API server says that it is ready, also after a restart.

        Raises `PlaneError`.
        """
        url = f"{self.access.server}/readyz"
        connector = aiohttp.TCPConnector(ssl=self.access.tls(), force_close=True)
        timeout = aiohttp.ClientTimeout(total=2)
        try:
            async with (
                asyncio.timeout(within),
                aiohttp.ClientSession(connector=connector, timeout=timeout) as http,
            ):
                while not await _says_ready(http, url):
                    for program in (self.etcd, self.api_server):
                        if program.ended:
                            raise PlaneError(f"{program.name} ended: {program.log()}")
                    await asyncio.sleep(0.05)
        except TimeoutError:
            raise PlaneError(f"not ready in {within} s: {self.api_server.log()}") from None


async def _says_ready(http: aiohttp.ClientSession, url: str) -> bool:
    try:
        async with http.get(url) as answer:
            return answer.status == 200
    except (aiohttp.ClientError, TimeoutError):
        return False


def _free_ports(count: int) -> list[int]:
    free: list[int] = []
    for port in random.sample(_PORTS, 200):
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
        free.append(port)
        if len(free) == count:
            return free
    raise PlaneError("no free ports on 127.0.0.1")


def _etcd_flags(folder: Path, port: int, peers: int) -> list[str]:
    client, peer = f"http://127.0.0.1:{port}", f"http://127.0.0.1:{peers}"
    return [
        f"--data-dir={folder}",
        "--unsafe-no-fsync",
        "--log-level=warn",
        f"--listen-client-urls={client}",
        f"--advertise-client-urls={client}",
        f"--listen-peer-urls={peer}",
        f"--initial-advertise-peer-urls={peer}",
        f"--initial-cluster=default={peer}",
    ]


def _api_server_flags(folder: Path, port: int, etcd: str) -> list[str]:
    """Defaults wherever there is one: limits on requests and fairness are as in reality.

    The address that it would announce in the Service `kubernetes` may not be loopback; nobody
    asks there, so it is one of TEST-NET-1 (RFC 5737) and no reconciler writes it.
    """
    return [
        f"--etcd-servers={etcd}",
        "--bind-address=127.0.0.1",
        f"--secure-port={port}",
        "--advertise-address=192.0.2.1",
        "--endpoint-reconciler-type=none",
        "--service-cluster-ip-range=10.96.0.0/16",
        f"--tls-cert-file={folder / 'server.pem'}",
        f"--tls-private-key-file={folder / 'server.pem'}",
        f"--client-ca-file={folder / 'ca.pem'}",
        "--service-account-issuer=https://kubernetes.default.svc",
        f"--service-account-key-file={folder / 'accounts.pem'}",
        f"--service-account-signing-key-file={folder / 'accounts.pem'}",
        "--authorization-mode=RBAC",
        f"--audit-policy-file={folder / 'audit.yaml'}",
        f"--audit-log-path={folder / 'audit.log'}",
        "--audit-log-maxsize=4000",
    ]
