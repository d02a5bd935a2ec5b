"""The template of a gateway pod.

Whatever changes here rolls every gateway of every group at the next upgrade of the operator, and
ends the sessions of their clients. So nothing that a gateway takes over live stands in it, and
tests/unit/operator/golden/previous holds the templates of earlier builds to be compared with.
"""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, Any, Final

from mcpgroup_api import Model, SecretKeyRef
from mcpgroup_operator import names
from mcpgroup_operator.children.manifests import ConfigTooLargeError
from mcpgroup_operator.children.serviceaccount import service_account_name

if TYPE_CHECKING:
    from collections.abc import Iterator

    from mcpgroup_api import McpServerGroup, McpServerGroupSpec
    from mcpgroup_api.deployment import Gateway, RequestLog
    from mcpgroup_api.podspec import Resources
    from mcpgroup_operator.children.manifests import ChildSettings

PRE_STOP_SECONDS: Final = 10
"""A pod that is to end goes on serving for so long, until every proxy knows that it leaves."""
MARGIN_SECONDS: Final = 15
"""From the end of the drain to the kill: for answers to leave and member processes to end."""

MAX_SECRETS: Final = 256
"""That a group may refer to. A volume each: with all the references that a group may have, an API
server takes seconds to write the Deployment, or cannot keep it."""

DEFAULT_REQUESTS: Final = {"cpu": "100m", "memory": "128Mi"}

_MIB_OF_TMP: Final = 1024  # what stdio members fetch and unpack goes there, too
_FILES_OF_LOG: Final = 4  # the gateway's own file and three predecessors


def pod_template(group: McpServerGroup, settings: ChildSettings) -> dict[str, Any]:
    """Fits the level `restricted` of the Pod Security Standards and any user id: OpenShift gives
    pods ids of its own, so none is named here and the image must have a numeric one.

    Of the file system `/tmp` alone can be written, and a request log can go nowhere else; its
    size is bounded with the log's, as going over it has the pod evicted.

    Raises `ConfigTooLargeError`.
    """
    gateway = group.spec.gateway
    metadata: dict[str, Any] = {
        "labels": {**gateway.pod_labels, **names.labels(group.metadata.name)}
    }
    if gateway.pod_annotations:
        metadata["annotations"] = dict(gateway.pod_annotations)
    secrets = secret_names(group.spec)
    if len(secrets) > MAX_SECRETS:
        raise ConfigTooLargeError("a gateway pod", len(secrets), MAX_SECRETS, "Secrets")
    spec: dict[str, Any] = {
        "serviceAccountName": service_account_name(group),
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        "terminationGracePeriodSeconds": PRE_STOP_SECONDS
        + group.spec.drain.timeout_seconds
        + MARGIN_SECONDS,
        "securityContext": {"runAsNonRoot": True, "seccompProfile": {"type": "RuntimeDefault"}},
        "containers": [_container(group, settings, secrets)],
        "volumes": _volumes(group, secrets),
        "topologySpreadConstraints": [
            _spread(group.metadata.name, key)
            for key in ("kubernetes.io/hostname", "topology.kubernetes.io/zone")
        ],
    }
    spec |= _scheduling(gateway)
    return {"metadata": metadata, "spec": spec}


def secret_names(spec: McpServerGroupSpec) -> list[str]:
    """The Secrets that any part of a spec refers to, sorted."""
    return sorted({reference.name for reference in _references(spec)})


def _references(value: object) -> Iterator[SecretKeyRef]:
    if isinstance(value, SecretKeyRef):
        yield value
    elif isinstance(value, Model):
        for name in type(value).model_fields:
            yield from _references(getattr(value, name))
    elif isinstance(value, tuple):
        for item in value:
            yield from _references(item)


def _container(
    group: McpServerGroup, settings: ChildSettings, secrets: list[str]
) -> dict[str, Any]:
    gateway = group.spec.gateway
    return {
        "name": names.GATEWAY_CONTAINER,
        "image": gateway.image or settings.gateway_image,
        "args": _arguments(gateway, has_secrets=bool(secrets)),
        "env": _environment(gateway),
        "ports": [
            {"name": name, "containerPort": port, "protocol": "TCP"}
            for name, port in (
                (names.MCP_PORT_NAME, names.MCP_PORT),
                (names.PEERS_PORT_NAME, names.PEERS_PORT),
                (names.ADMIN_PORT_NAME, names.ADMIN_PORT),
            )
        ],
        "resources": _resources(gateway.resources),
        "securityContext": {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        },
        "lifecycle": {"preStop": {"sleep": {"seconds": PRE_STOP_SECONDS}}},
        "startupProbe": _probe("/startupz", period=1, timeout=2, failures=120),
        "livenessProbe": _probe("/livez", period=10, timeout=5, failures=6),
        "readinessProbe": _probe("/readyz", period=2, timeout=2, failures=3),
        "volumeMounts": [
            {"name": "config", "mountPath": names.CONFIG_FOLDER, "readOnly": True},
            {"name": "keys", "mountPath": names.KEYS_FOLDER, "readOnly": True},
            *(
                {
                    "name": _volume_of_secret(name),
                    "mountPath": f"{names.SECRETS_FOLDER}/{name}",
                    "readOnly": True,
                }
                for name in secrets
            ),
            {"name": "tmp", "mountPath": names.TMP_FOLDER},
        ],
    }


def _arguments(gateway: Gateway, *, has_secrets: bool) -> list[str]:
    """The folder of secrets exists only with one in it. A file may be newer than the image and
    hold keys that it does not know: it has to start none the less."""
    arguments = ["run", names.CONFIG_PATH, "--ignore-unknown-keys"]
    arguments += ["--host", "0.0.0.0", "--port", str(names.MCP_PORT)]  # noqa: S104 - the pod's own
    arguments += ["--admin-host", "0.0.0.0", "--admin-port", str(names.ADMIN_PORT)]  # noqa: S104
    arguments += ["--keys", names.KEYS_FOLDER]
    if has_secrets:
        arguments += ["--secrets", names.SECRETS_FOLDER]
    arguments += ["--log-format", "json", "--log-level", gateway.log_level.value]
    log = gateway.request_log
    if log is not None:
        arguments += ["--request-log", log.file]
        arguments += ["--request-log-sample", str(log.sample_ratio)]
        arguments += ["--request-log-max-mb", str(log.max_megabytes)]
    return arguments


def _environment(gateway: Gateway) -> list[dict[str, Any]]:
    """HOME is what programs that fetch packages keep them under, and they do not start when it
    cannot be written; users may name another folder."""
    variables: dict[str, dict[str, Any]] = {
        names.POD_NAME_VARIABLE: _from_pod("metadata.name"),
        names.POD_NAMESPACE_VARIABLE: _from_pod("metadata.namespace"),
        "HOME": {"value": names.TMP_FOLDER},
    }
    variables |= {variable.name: {"value": variable.value} for variable in gateway.env}
    return [{"name": name, **source} for name, source in variables.items()]


def _from_pod(path: str) -> dict[str, Any]:
    return {"valueFrom": {"fieldRef": {"apiVersion": "v1", "fieldPath": path}}}


def _resources(wanted: Resources) -> dict[str, Any]:
    """What a group does not request is set to a default, unless it has a limit, which then is
    the request. No limit by default: one of CPU makes every call wait, one of memory kills."""
    requests = {
        name: value for name, value in DEFAULT_REQUESTS.items() if name not in wanted.limits
    }
    resources: dict[str, Any] = {"requests": {**requests, **wanted.requests}}
    if wanted.limits:
        resources["limits"] = dict(wanted.limits)
    return {name: values for name, values in resources.items() if values}


def _probe(path: str, *, period: int, timeout: int, failures: int) -> dict[str, Any]:
    return {
        "httpGet": {"path": path, "port": names.ADMIN_PORT_NAME, "scheme": "HTTP"},
        "periodSeconds": period,
        "timeoutSeconds": timeout,
        "failureThreshold": failures,
    }


def _volumes(group: McpServerGroup, secrets: list[str]) -> list[dict[str, Any]]:
    """Optional, all that can be: a pod whose volume is missing hangs, while the gateway can serve
    other members and say which Secret it misses."""
    group_name = group.metadata.name
    keys = {"secretName": names.keys_secret(group_name), "optional": True}
    mebibytes = _MIB_OF_TMP + _mebibytes_of_log(group.spec.gateway.request_log)
    return [
        {"name": "config", "configMap": {"name": names.child(group_name)}},
        {"name": "keys", "secret": keys},
        *(
            {"name": _volume_of_secret(name), "secret": {"secretName": name, "optional": True}}
            for name in secrets
        ),
        {"name": "tmp", "emptyDir": {"sizeLimit": f"{mebibytes}Mi"}},
    ]


def _volume_of_secret(name: str) -> str:
    """Names of Secrets may be longer than those of volumes, and hold dots."""
    return f"secret-{hashlib.sha256(name.encode()).hexdigest()[:16]}"


def _mebibytes_of_log(log: RequestLog | None) -> int:
    if log is None or log.file == "-":
        return 0
    return _FILES_OF_LOG * log.max_megabytes


def _spread(group_name: str, topology_key: str) -> dict[str, Any]:
    """Evenly where that is possible; only pods of one template are compared, so that those which
    a rollout is about to end do not count."""
    return {
        "maxSkew": 1,
        "topologyKey": topology_key,
        "whenUnsatisfiable": "ScheduleAnyway",
        "labelSelector": {"matchLabels": names.selector(group_name)},
        "matchLabelKeys": ["pod-template-hash"],
    }


def _scheduling(gateway: Gateway) -> dict[str, Any]:
    """What a group says for itself, word for word; nothing where it says nothing."""
    said: dict[str, Any] = {
        "nodeSelector": dict(gateway.node_selector),
        "tolerations": [_plain(toleration) for toleration in gateway.tolerations],
        "affinity": None if gateway.affinity is None else _plain(gateway.affinity),
        "imagePullSecrets": [{"name": secret.name} for secret in gateway.image_pull_secrets],
    }
    return {name: value for name, value in said.items() if value}


def _plain(model: Model) -> dict[str, Any]:
    return model.model_dump(mode="json", exclude_defaults=True)
