"""What the kubelet does with a pod's volumes: folders of files, changed all at once."""

from __future__ import annotations

import base64
import shutil
import uuid
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from tests.controlplane.api import Api


class VolumeMissingError(Exception):
    """A source that is not optional is not there: the pod must wait."""


async def mount(api: Api, pod: Mapping[str, Any], container: Mapping[str, Any], at: Path) -> None:
    """Fill, or refresh, the folders of a container's volume mounts below `at`.

    Raises `VolumeMissingError`.
    """
    volumes = {volume["name"]: volume for volume in pod["spec"].get("volumes", ())}
    for wanted in container.get("volumeMounts", ()):
        folder = at / wanted["mountPath"].lstrip("/")
        volume = volumes[wanted["name"]]
        if "emptyDir" in volume:
            folder.mkdir(parents=True, exist_ok=True)
            continue
        files: dict[str, bytes] = {}
        for source in _sources(volume):
            files |= await _files(api, source, pod["metadata"]["namespace"])
        _swap(folder, files)


def _sources(volume: Mapping[str, Any]) -> Sequence[Mapping[str, Any]]:
    if "projected" in volume:
        # Tokens and what admission adds around them are not made: gateways ask no API server.
        return [s for s in volume["projected"]["sources"] if s.keys() & {"secret", "configMap"}]
    if "secret" in volume:
        return [{"secret": {**volume["secret"], "name": volume["secret"]["secretName"]}}]
    assert "configMap" in volume, f"no stand-in for the volume {volume}"
    return [volume]


async def _files(api: Api, source: Mapping[str, Any], namespace: str) -> dict[str, bytes]:
    kind = "secrets" if "secret" in source else "configmaps"
    wanted = source["secret"] if "secret" in source else source["configMap"]
    found = await api.find(kind, wanted["name"], namespace)
    if found is None:
        if wanted.get("optional"):
            return {}
        raise VolumeMissingError(f"{kind} {wanted['name']}")
    data = found.get("data") or {}
    if kind == "secrets":
        files = {key: base64.b64decode(value) for key, value in data.items()}
    else:
        files = {key: value.encode() for key, value in data.items()}
    if "items" not in wanted:
        return files
    return {item["path"]: files[item["key"]] for item in wanted["items"] if item["key"] in files}


def _swap(folder: Path, files: Mapping[str, bytes]) -> None:
    """As the kubelet: names are links into `..data`, which is a link that is replaced at once."""
    folder.mkdir(parents=True, exist_ok=True)
    data = folder / "..data"
    old = data.resolve() if data.is_symlink() else None
    new = folder / f"..{uuid.uuid4().hex}"
    new.mkdir()
    for name, content in files.items():
        path = new / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
    link = folder / "..data_tmp"
    link.symlink_to(new.name)
    link.replace(data)
    tops = {name.split("/")[0] for name in files}
    for path in folder.iterdir():
        if not path.name.startswith("..") and path.name not in tops:
            path.unlink()
    for top in tops:
        if not (folder / top).is_symlink():
            (folder / top).symlink_to(f"..data/{top}")
    if old is not None:
        shutil.rmtree(old)
