"""A cluster for every test here: that of `KUBECONFIG`, or a control plane of our own."""

from __future__ import annotations

import asyncio
import os
import uuid
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from tests.controlplane import binaries
from tests.controlplane.access import Access, UnusableKubeconfigError
from tests.controlplane.cluster import Cluster
from tests.controlplane.manifests import install_kinds
from tests.controlplane.operating import Operator
from tests.controlplane.private import PrivatePlane
from tests.controlplane.shared import shared_plane
from tests.integration.conftest import no_process_left

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator

    from tests.controlplane.api import Api

_BUILD_SECONDS = 3600

__all__ = ["no_process_left"]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The first test may have to build the programs, and all others wait for it."""
    if not os.environ.get("KUBECONFIG") and not binaries.are_there():
        for item in items:
            if Path(__file__).parent in item.path.parents:
                item.add_marker(pytest.mark.timeout(_BUILD_SECONDS))


@pytest.fixture(scope="session")
def programs() -> dict[str, Path]:
    """Paths of etcd, kube-apiserver, kube-controller-manager and kubectl by name."""
    if os.environ.get("KUBECONFIG") and not binaries.are_there():
        pytest.skip("there is KUBECONFIG alone, and no control plane that a test may stop")
    try:
        return binaries.control_plane()
    except binaries.CannotBuildError as error:
        if os.environ.get("CI") == "true":
            raise
        pytest.skip(str(error))


@pytest.fixture(scope="session")
def cluster(
    tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest
) -> Iterator[Cluster]:
    """Shared by all tests and workers: what a test makes is in namespaces of its own."""
    folder = tmp_path_factory.mktemp("cluster")
    if given := os.environ.get("KUBECONFIG"):
        theirs = _cluster_of(Path(given), folder)
        asyncio.run(_prepare(theirs))
        yield theirs
        return
    programs: dict[str, Path] = request.getfixturevalue("programs")
    run = tmp_path_factory.getbasetemp()
    if "PYTEST_XDIST_WORKER" in os.environ:
        run = run.parent
    with shared_plane(run / "controlplane") as plane:
        yield Cluster.of_plane(plane, programs["kubectl"], folder)


def _cluster_of(kubeconfig: Path, folder: Path) -> Cluster:
    try:
        access = Access.load(kubeconfig)
        kubectl = binaries.kubectl()
    except (UnusableKubeconfigError, binaries.CannotBuildError) as error:
        if os.environ.get("CI") == "true":
            raise
        pytest.skip(str(error))
    return Cluster(access=access, kubectl_program=kubectl, folder=folder)


async def _prepare(cluster: Cluster) -> None:
    async with cluster.api() as api:
        await install_kinds(api)


@pytest.fixture
async def private(programs: dict[str, Path], tmp_path: Path) -> AsyncIterator[PrivatePlane]:
    """Starts control planes that a test may kill, or that have no controllers."""
    async with PrivatePlane(programs, tmp_path) as private:
        yield private


@pytest.fixture
async def api(cluster: Cluster, namespace: str) -> AsyncIterator[Api]:
    """An administrator's client, in the test's namespace."""
    async with cluster.api(namespace) as api:
        yield api


@pytest.fixture
async def namespace(cluster: Cluster) -> AsyncIterator[str]:
    """A namespace of this test alone; its deletion is not waited for."""
    name = f"test-{uuid.uuid4().hex[:10]}"
    async with cluster.api() as api:
        await api.create("namespaces", {"metadata": {"name": name}})
        yield name
        if await api.find("namespaces", name) is not None:
            await api.delete("namespaces", name)


@pytest.fixture
async def operator(cluster: Cluster, namespace: str) -> AsyncIterator[Operator]:
    """An operator for the groups of the test's namespace; a failure shows what it said."""
    async with Operator(cluster, namespace) as operator:
        yield operator
        print(f"--- the operator said:\n{operator.log}")
