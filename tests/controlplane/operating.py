"""The operator as a process of its own: `async with Operator(cluster, namespace) as operator:`."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import sys
import time
from typing import TYPE_CHECKING, Any, Final, Self

import aiohttp
import psutil
from prometheus_client.parser import text_string_to_metric_families
from tests.controlplane.kinds import CLUSTER_WIDE
from tests.harness.processes import ROOT, Running, tethered

from mcpgroup_operator import rbac

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from tests.controlplane.access import Access
    from tests.controlplane.api import Api
    from tests.controlplane.cluster import Cluster
    from tests.controlplane.proxy import FaultyApi

ACCOUNT: Final = "mcpgroup-operator"
_ROLES: Final = {
    "ClusterRole": "clusterroles",
    "ClusterRoleBinding": "clusterrolebindings",
    "Role": "roles",
    "RoleBinding": "rolebindings",
}

Samples = dict[str, dict[frozenset[tuple[str, str]], float]]


class Operator:
    """Runs under a service account with exactly the rights that are shipped (`rbac`).

    By default it watches its own namespace; `watch_namespaces=()` is everywhere, which in a shared
    cluster wants a `selector` or a plane of one's own. `through` is a proxy before the API server.
    `flags` are further options of the command line. `access` replaces the service account.
    """

    def __init__(
        self,
        cluster: Cluster,
        namespace: str,
        *,
        release: str = "mcpgroup",
        watch_namespaces: Sequence[str] | None = None,
        selector: str = "",
        pods: str = "direct",
        pod_admin_port: int | None = None,
        poll_seconds: float = 0.5,
        through: FaultyApi | None = None,
        access: Access | None = None,
        flags: Sequence[str] = (),
        wait_ready: bool = True,
    ) -> None:
        self.namespace = namespace
        self.release = release
        self.user = f"system:serviceaccount:{namespace}:{ACCOUNT}"
        self._cluster = cluster
        self._watched = (namespace,) if watch_namespaces is None else tuple(watch_namespaces)
        self._through = through
        self._access = access
        self._wait_ready = wait_ready
        options = {
            "--namespace": namespace,
            "--release": release,
            "--watch-namespaces": ",".join(self._watched),
            "--watch-selector": selector,
            "--pods": pods,
            "--pod-admin-port": "" if pod_admin_port is None else str(pod_admin_port),
            "--poll-seconds": str(poll_seconds),
            "--admin-host": "127.0.0.1",
            "--admin-port": "0",
        }
        self._options = [f"{name}={value}" for name, value in options.items() if value]
        self._options += flags
        self.running: Running
        self.kubeconfig: Path
        self.admin_url = ""
        self.ready_after = 0.0  # seconds that the last start took

    async def __aenter__(self) -> Self:
        access = self._access or await self._install()
        if self._through is not None:
            access = self._through.via(access)
        self.kubeconfig = config = self._cluster.kubeconfig(access)
        entry = [sys.executable, "-P", "-m", "mcpgroup_operator", f"--kubeconfig={config}"]
        env = {"PYTHONPATH": f"{ROOT / 'crds'}:{ROOT / 'operator'}", "PYTHONUNBUFFERED": "1"}
        self.running = Running(tethered([*entry, *self._options]), env)
        self._http = aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=10))
        try:
            await self.start()
        except BaseException as fault:
            await self.__aexit__(type(fault), fault, None)
            raise
        return self

    async def __aexit__(self, *fault: Any) -> None:
        await self._http.close()
        await self.running.__aexit__(*fault)

    async def _install(self) -> Access:
        """The service account with its roles; those of the whole cluster go with the namespace."""
        roles = rbac.operator_roles(self.release, self.namespace, ACCOUNT, self._watched)
        async with self._cluster.api(self.namespace) as api:
            await api.apply(
                "serviceaccounts",
                {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": ACCOUNT}},
            )
            for manifest in roles:
                await self._install_role(api, manifest)
        return await self._cluster.service_account(ACCOUNT, self.namespace)

    async def _install_role(self, api: Api, manifest: dict[str, Any]) -> None:
        plural = _ROLES[manifest["kind"]]
        metadata = dict(manifest["metadata"])
        if plural in CLUSTER_WIDE:
            metadata["ownerReferences"] = [await self._cluster.namespace_as_owner(self.namespace)]
        body = {**manifest, "metadata": metadata}
        await api.apply(plural, body, metadata.get("namespace"), force=True)

    # -- the process

    async def start(self) -> None:
        """Again, after `kill` or `terminate`; with a fresh log and, by default, until ready."""
        self.running.log = ""
        began = time.monotonic()
        await self.running.start()
        self.admin_url = f"http://127.0.0.1:{await self._admin_port()}"
        if self._wait_ready:
            await self.ready()
        self.ready_after = time.monotonic() - began

    @property
    def log(self) -> str:
        return self.running.log

    @property
    def pid(self) -> int:
        return self.running.pid

    async def terminate(self, timeout: float = 30) -> int:
        """SIGTERM; the exit code."""
        self.running.send(signal.SIGTERM)
        code = await self.running.exited(timeout)
        await self.running.stop()
        return code

    async def kill(self) -> None:
        """SIGKILL."""
        await self.running.stop()

    async def exited(self, timeout: float = 30) -> int:
        """Wait until it ends by itself; the exit code."""
        return await self.running.exited(timeout)

    def pause(self) -> None:
        self.running.send(signal.SIGSTOP)

    def resume(self) -> None:
        self.running.send(signal.SIGCONT)

    def memory(self) -> int:
        """Resident bytes."""
        return int(psutil.Process(self.pid).memory_info().rss)

    def processor_seconds(self) -> float:
        """Time of a core that it has used."""
        times = psutil.Process(self.pid).cpu_times()
        return float(times.user + times.system)

    async def _admin_port(self, within: float = 30) -> int:
        """The only port that it listens on."""
        async with asyncio.timeout(within):
            while self.running.exit_code is None:
                with contextlib.suppress(psutil.Error):
                    for socket in psutil.Process(self.pid).net_connections("tcp4"):
                        if socket.status == psutil.CONN_LISTEN:
                            return int(socket.laddr.port)
                await asyncio.sleep(0.02)
        raise AssertionError(f"the operator ended with {self.running.exit_code}:\n{self.log}")

    # -- its own port

    async def probe(self, name: str) -> tuple[int, str]:
        """Status and text of `readyz` or `livez`."""
        async with self._http.get(f"{self.admin_url}/{name}") as answer:
            return answer.status, (await answer.text()).strip()

    async def ready(self, within: float = 30) -> None:
        """Wait for `/readyz` to say yes."""
        said = ""
        try:
            async with asyncio.timeout(within):
                while True:
                    assert self.running.exit_code is None, "the operator ended"
                    code, said = await self.probe("readyz")
                    if code == 200:
                        return
                    await asyncio.sleep(0.02)
        except TimeoutError:
            raise AssertionError(f"not ready in {within} s: {said}") from None

    async def metrics(self) -> Samples:
        """Samples by name and labels."""
        async with self._http.get(f"{self.admin_url}/metrics") as answer:
            text = await answer.text()
        found: Samples = {}
        for family in text_string_to_metric_families(text):
            for sample in family.samples:
                found.setdefault(sample.name, {})[frozenset(sample.labels.items())] = sample.value
        return found

    async def metric(self, name: str, **labels: str) -> float:
        """The sum of the samples `mcpgroup_operator_<name>` with these labels; 0 without any."""
        samples = (await self.metrics()).get(f"mcpgroup_operator_{name}", {})
        wanted = set(labels.items())
        return sum(value for have, value in samples.items() if wanted <= have)

    async def metric_reaches(
        self, name: str, least: float, *, within: float = 20, **labels: str
    ) -> float:
        """Wait until a metric, as `metric` sums it, is at least so much; its value then."""
        value = 0.0
        try:
            async with asyncio.timeout(within):
                while (value := await self.metric(name, **labels)) < least:  # noqa: ASYNC110
                    await asyncio.sleep(0.05)
        except TimeoutError:
            raise AssertionError(f"{name}{labels} is {value} after {within} s") from None
        return value
