"""What the operator gives to a gateway is what a gateway takes: file, arguments, folders."""

from __future__ import annotations

from typing import Any

import pytest
import typer
from tests.unit.operator.groups import SETTINGS, SPECS, group_of

from mcpgroup_gateway.command.app import app
from mcpgroup_gateway.key_files import ADMIN_TOKEN
from mcpgroup_gateway.manifest import MAX_BYTES, load
from mcpgroup_gateway.secret_files import references
from mcpgroup_operator import names
from mcpgroup_operator.children import configmap
from mcpgroup_operator.children.configmap import config_file
from mcpgroup_operator.children.pod import pod_template, secret_names

EVERY_GROUP = pytest.mark.parametrize("name", SPECS)


def options(name: str) -> dict[str, Any]:
    """What the command line makes of the arguments of the container."""
    (container,) = pod_template(group_of(SPECS[name]), SETTINGS)["spec"]["containers"]
    command, *arguments = container["args"]
    group = typer.main.get_command(app)
    assert isinstance(group, typer.core.TyperGroup)
    with group.commands[command].make_context(command, arguments) as context:
        return dict(context.params)


@EVERY_GROUP
def test_a_gateway_takes_the_file_whole(name: str) -> None:
    file = config_file(group_of(SPECS[name], generation=7), None)
    for rendered in (True, False):
        manifest = load(file.text.encode(), name="group.yaml", rendered=rendered)
        assert manifest.ignored == ()
        assert manifest.digest == file.hash
        assert manifest.group.metadata.generation == 7
        assert manifest.group.spec.members == group_of(SPECS[name]).spec.members


def test_a_gateway_takes_the_longest_file() -> None:
    assert configmap.MAX_BYTES <= MAX_BYTES


@EVERY_GROUP
def test_a_gateway_understands_its_arguments(name: str) -> None:
    given = options(name)
    assert given["manifest"] == names.CONFIG_PATH
    assert given["ignore_unknown_keys"] is True
    assert (given["host"], given["port"]) == ("0.0.0.0", 8080)  # noqa: S104
    assert (given["admin_host"], given["admin_port"]) == ("0.0.0.0", 9090)  # noqa: S104
    assert given["keys"] == names.KEYS_FOLDER
    assert given["log_format"] == "json"


def test_a_gateway_is_told_of_secrets_when_there_are_some() -> None:
    assert options("secrets")["secrets"] == names.SECRETS_FOLDER
    assert options("smallest")["secrets"] is None


def test_a_gateway_logs_as_its_group_says() -> None:
    given, plain = options("everything"), options("smallest")
    assert given["log_level"] == "Debug"
    assert given["request_log"] == "/tmp/requests.jsonl"  # noqa: S108
    assert (given["request_log_sample"], given["request_log_max_mb"]) == (0.25, 50)
    assert (plain["log_level"], plain["request_log"]) == ("Info", None)


@EVERY_GROUP
def test_every_secret_that_a_gateway_looks_for_has_a_folder(name: str) -> None:
    spec = group_of(SPECS[name]).spec
    wanted = {reference.name for member in spec.members for reference in references(member)}
    assert set(secret_names(spec)) == wanted


def test_the_token_has_one_name() -> None:
    assert names.ADMIN_TOKEN_KEY == ADMIN_TOKEN
