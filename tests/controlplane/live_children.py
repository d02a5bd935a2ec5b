"""Records children as a real API server keeps them, for tests/unit/operator/test_lacking.py.

`KUBECONFIG=… python -m tests.controlplane.live_children` makes the golden groups in a namespace of
their own and writes tests/unit/operator/live/*.yaml: pairs of documents, what was applied and what
was there then. A pair stays true whatever the builders make later; there is reason to record anew
when they make a field that no pair has yet.
"""

from __future__ import annotations

import asyncio
import os
import uuid
from pathlib import Path
from typing import Any

from tests.controlplane.access import Access
from tests.controlplane.api import Api
from tests.controlplane.children import apply, children_of, make_group
from tests.unit.operator.groups import SPECS
from tests.unit.operator.recorded import LIVE, written


async def record() -> None:
    async with Api(
        Access.load(Path(os.environ["KUBECONFIG"])), f"record-{uuid.uuid4().hex}"
    ) as api:
        await api.create("namespaces", {"metadata": {"name": api.namespace}})
        for name, spec in SPECS.items():
            pairs: list[dict[str, Any]] = []
            for child in children_of(await make_group(api, name, spec)):
                live = await apply(api, child)
                entries = live["metadata"]["managedFields"]
                live["metadata"]["managedFields"] = [{"manager": e["manager"]} for e in entries]
                pairs += [child.manifest, live]
            (LIVE / f"{name}.yaml").write_text(written(pairs))
        await api.delete("namespaces", str(api.namespace))


if __name__ == "__main__":
    asyncio.run(record())
