"""The children of one group: everything that is asked for is there, and nothing else of ours.

A child that cannot be brought there for a reason that waiting does not cure (it is somebody
else's, a verb is missing, the API server refuses it) is told as the finding of the condition
`Accepted`, and the other children are done all the same.
"""

from __future__ import annotations

import secrets
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pydantic import ValidationError

from mcpgroup_api import Advice, McpServerGroup, warnings
from mcpgroup_operator import errors, names
from mcpgroup_operator.acceptance import accepted, path_text
from mcpgroup_operator.applying import (
    Applier,
    GroupGoneError,
    NotOursError,
    StillDeletingError,
)
from mcpgroup_operator.children import ConfigTooLargeError, desired
from mcpgroup_operator.conditions import Finding, Reason, listed, no
from mcpgroup_operator.kinds import CONFIG_MAP, GROUP, POD_MONITOR, SECRET
from mcpgroup_operator.overruled import Overruled

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from mcpgroup_operator.children import ChildSettings, Desired, Unwanted
    from mcpgroup_operator.client import Client
    from mcpgroup_operator.metrics import Metrics
    from mcpgroup_operator.store import Key, Store

Manifest = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Deployed:
    """How it went. `blocked`: worth another try now and then, for nothing will tell."""

    accepted: Finding
    blocked: bool = False


class Deployer:
    """Applies children of groups."""

    def __init__(
        self,
        client: Client,
        store: Store,
        metrics: Metrics,
        settings: ChildSettings,
        clock: Callable[[], float],
    ) -> None:
        self._client = client
        self._store = store
        self._metrics = metrics
        self._settings = settings
        self._overruled = Overruled(clock)
        self.serves_pod_monitors = False

    async def learn_optional_kinds(self) -> None:
        """Asks which optional kinds there are; the answer counts until it is asked again."""
        self.serves_pod_monitors = await self._client.serves(POD_MONITOR)

    async def deploy(self, key: Key, group: Manifest) -> Deployed:
        """Raises `OtherOperatorError` before anything is written, `GroupGoneError`, and the
        errors of the client that another try may cure."""
        try:
            model = McpServerGroup.model_validate(_as_written(group))
        except ValidationError as error:
            return Deployed(no(Reason.INVALID_SPEC, _fault(error)))
        applier = Applier(
            self._client,
            self._store,
            self._metrics,
            key,
            self._settings.operator_mark,
            _Confirmation(self._client, self._store, key, group["metadata"]["uid"]),
            self._overruled,
        )
        problems: list[Finding] = []
        try:
            keys = await applier.find(SECRET, names.keys_secret(key.name))
        except errors.ForbiddenError as error:
            keys, problems = None, [no(Reason.FORBIDDEN, str(error))]
        applier.refuse_other_operators([*self._store.children(key), *([keys] if keys else [])])
        try:
            children = desired(
                model,
                self._settings,
                config_map=self._store.child(CONFIG_MAP, key.namespace, names.child(key.name)),
                keys=keys,
                new_token=lambda: secrets.token_urlsafe(32),
            )
        except ConfigTooLargeError as error:
            return Deployed(no(Reason.CONFIG_TOO_LARGE, str(error)))
        # Keys that cannot be read are not made anew.
        wanted = [c for c in children.desired if not problems or c.kind is not SECRET]
        problems += await self._apply_all(applier, wanted, children.unwanted, keys)
        if problems:
            reason = problems[0].reason
            texts = [problem.message for problem in problems]
            return Deployed(no(reason, listed(texts, "; ")), blocked=True)
        return Deployed(accepted(self._advice(model)))

    def forget(self, key: Key) -> None:
        """The group is gone."""
        self._overruled.forget(key)

    async def _apply_all(
        self,
        applier: Applier,
        wanted: Iterable[Desired],
        unwanted: Iterable[Unwanted],
        keys: Manifest | None,
    ) -> list[Finding]:
        problems = []
        for child in wanted:
            if child.kind is POD_MONITOR and not self.serves_pod_monitors:
                continue
            problem = await self._ensure(applier, child, keys)
            if problem is not None:
                problems.append(problem)
        for left in unwanted:
            if left.kind is POD_MONITOR and not self.serves_pod_monitors:
                continue
            try:
                await applier.prune(left, await applier.find(left.kind, left.name))
            except errors.ForbiddenError as error:
                problems.append(no(Reason.FORBIDDEN, str(error)))
        return problems

    async def _ensure(
        self, applier: Applier, child: Desired, keys: Manifest | None
    ) -> Finding | None:
        """What keeps the child from being there, None when it is."""
        what = f"{child.kind.name} {child.name}"
        try:
            if child.kind is SECRET:
                await applier.ensure(child, keys, is_asked=True)
            else:
                await applier.ensure(child, await applier.find(child.kind, child.name))
        except NotOursError:
            text = f"{what} is there already and does not belong to this group"
            return no(Reason.NOT_OWNED, text)
        except StillDeletingError:
            return no(Reason.WAITING_FOR_DELETION, f"an earlier {what} is still being deleted")
        except errors.ForbiddenError as error:
            return no(Reason.FORBIDDEN, str(error))
        except errors.InvalidError as error:
            return no(Reason.REJECTED_RESOURCE, f"{what} is refused: {error.message}")
        return None

    def _advice(self, model: McpServerGroup) -> list[Advice]:
        """What is allowed and probably not meant."""
        advice = warnings(model)
        if model.spec.monitoring.pod_monitor and not self.serves_pod_monitors:
            text = "has no effect: this cluster knows no PodMonitor"
            advice.append(Advice(("spec", "monitoring", "podMonitor"), text))
        return advice


class _Confirmation:
    """Asks once, at the first child that is missing: a group deleted a moment ago must not get
    its children back. `fresh` asks again: a child that was just orphaned must not be owned anew
    by the group whose deletion did that."""

    def __init__(self, client: Client, store: Store, key: Key, uid: str) -> None:
        self._client = client
        self._store = store
        self._key = key
        self._uid = uid
        self._confirmed = False

    async def __call__(self, *, fresh: bool) -> None:
        if self._confirmed and not fresh:
            return
        live = await self._client.find(GROUP, *self._key)
        if live is None or live["metadata"]["uid"] != self._uid:
            raise GroupGoneError
        self._store.put(GROUP, live)
        if live["metadata"].get("deletionTimestamp"):
            raise GroupGoneError
        self._confirmed = True


def _as_written(group: Manifest) -> Manifest:
    """Without what only the store and the status know."""
    return {
        "apiVersion": group["apiVersion"],
        "kind": group["kind"],
        "metadata": group["metadata"],
        "spec": group.get("spec") or {},
    }


def _fault(error: ValidationError) -> str:
    """Where and what, without the value: it may be a secret."""
    texts = [
        f"{path_text(entry['loc'])}: {entry['msg']}"
        for entry in error.errors(include_url=False, include_input=False, include_context=False)
    ]
    return listed(texts, "; ")
