"""Tools that ask the client: with requests in the old era, by their result in the new one."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import mcp_types as types
from tests.conformance.fixture_calls import form, roots, sample
from tests.conformance.fixture_tools import ToolFailed, arguments, text, tool

if TYPE_CHECKING:
    from tests.conformance.fixture_calls import Call
    from tests.conformance.fixture_tools import Content


@tool("test_missing_capability", "Needs a client that samples")
async def missing_capability(call: Call) -> Content:
    call.require("sampling/createMessage")
    return text("The client samples.")


@tool("test_sampling", "Asks the client's model", arguments("prompt", prompt={"type": "string"}))
async def sampling(call: Call) -> Content:
    answers = await call.ask({"sample": sample(str(call.arguments["prompt"]))})
    return text(f"LLM response: {_said(answers['sample'])}")


@tool("test_elicitation", "Asks the user", arguments("message", message={"type": "string"}))
async def elicitation(call: Call) -> Content:
    question = form(
        str(call.arguments["message"]),
        {
            "username": {"type": "string", "description": "User's response"},
            "email": {"type": "string", "description": "User's email address"},
        },
        "username",
        "email",
    )
    return text(f"User response: {_filled(await call.ask({'form': question}))}")


@tool("test_streaming_elicitation", "Reports progress, then asks the user")
async def streaming_elicitation(call: Call) -> Content:
    await call.progress(1, 2)
    question = form("Go on?", {"ok": {"type": "boolean"}}, "ok")
    return text(f"User response: {_filled(await call.ask({'form': question}))}")


@tool("test_elicitation_sep1034_defaults", "Asks the user, with defaults of every type")
async def elicitation_defaults(call: Call) -> Content:
    statuses = ["active", "inactive", "pending"]
    question = form(
        "Please review these values",
        {
            "name": {"type": "string", "default": "John Doe"},
            "age": {"type": "integer", "default": 30},
            "score": {"type": "number", "default": 95.5},
            "status": {"type": "string", "enum": statuses, "default": "active"},
            "verified": {"type": "boolean", "default": True},
        },
    )
    return text(f"Elicitation completed: {_filled(await call.ask({'form': question}))}")


@tool("test_elicitation_sep1330_enums", "Asks the user to choose, in every way")
async def elicitation_enums(call: Call) -> Content:
    plain = ["option1", "option2", "option3"]
    titled = [
        {"const": f"value{number}", "title": f"{word} Option"}
        for number, word in enumerate(("First", "Second", "Third"), 1)
    ]
    question = form(
        "Please choose",
        {
            "untitledSingle": {"type": "string", "enum": plain},
            "titledSingle": {"type": "string", "oneOf": titled},
            "legacyEnum": {
                "type": "string",
                "enum": ["opt1", "opt2", "opt3"],
                "enumNames": ["Option One", "Option Two", "Option Three"],
            },
            "untitledMulti": {"type": "array", "items": {"type": "string", "enum": plain}},
            "titledMulti": {"type": "array", "items": {"anyOf": titled}},
        },
    )
    return text(f"Elicitation completed: {_filled(await call.ask({'form': question}))}")


_NAME = form("What is your name?", {"name": {"type": "string"}}, "name")
_CONFIRM = form("Please confirm", {"ok": {"type": "boolean"}}, "ok")


@tool("test_input_required_result_elicitation", "Asks the user for a name")
async def ask_user(call: Call) -> Content:
    answers = await call.ask({"user_name": _NAME})
    return text(f"Hello, {_field(answers['user_name'], 'name')}!")


@tool("test_input_required_result_sampling", "Asks the client's model for a capital")
async def ask_model(call: Call) -> Content:
    question = sample("What is the capital of France?")
    return text(_said((await call.ask({"capital_question": question}))["capital_question"]))


@tool("test_input_required_result_list_roots", "Asks for the client's roots")
async def ask_roots(call: Call) -> Content:
    return text(_listed((await call.ask({"client_roots": roots()}))["client_roots"]))


@tool("test_input_required_result_request_state", "Asks once and wants its state back")
async def ask_with_state(call: Call) -> Content:
    return await _confirmed(call)


@tool("test_input_required_result_tampered_state", "Refuses a state that is not its own")
async def ask_with_sealed_state(call: Call) -> Content:
    return await _confirmed(call)


async def _confirmed(call: Call) -> Content:
    await call.ask({"confirm": _CONFIRM}, state="asked")
    if call.modern and call.state != "asked":
        raise ToolFailed("the state did not come back")
    return text("state-ok")


@tool("test_input_required_result_multiple_inputs", "Asks for three things at once")
async def ask_three(call: Call) -> Content:
    answers = await call.ask(
        {
            "user_name": _NAME,
            "greeting": sample("Generate a greeting", 50),
            "client_roots": roots(),
        },
        state="three",
    )
    name = _field(answers["user_name"], "name")
    return text(f"{_said(answers['greeting'])} {name} {_listed(answers['client_roots'])}")


@tool("test_input_required_result_multi_round", "Asks twice, one after the other")
async def ask_twice(call: Call) -> Content:
    known: dict[str, Any] = json.loads(call.state or "{}")
    if "name" not in known:
        question = form("Step 1: What is your name?", {"name": {"type": "string"}}, "name")
        answer = (await call.ask({"step1": question}, state="{}"))["step1"]
        known["name"] = _field(answer, "name")
    question = form("Step 2: What is your favorite color?", {"color": {"type": "string"}}, "color")
    answer = (await call.ask({"step2": question}, state=json.dumps(known)))["step2"]
    return text(f"{known['name']} likes {_field(answer, 'color')}")


@tool("test_input_required_result_capabilities", "Asks for all that the client can do")
async def ask_what_it_can(call: Call) -> Content:
    possible: dict[str, types.InputRequest] = {
        "user_name": _NAME,
        "greeting": sample("Greet", 50),
        "client_roots": roots(),
    }
    chosen = {key: request for key, request in possible.items() if call.can(request.method)}
    answers = await call.ask(chosen) if chosen else {}
    return text(f"Answered: {', '.join(answers)}")


# -- what the client said


def _said(answer: Any) -> str:
    assert isinstance(answer, types.CreateMessageResult)
    assert isinstance(answer.content, types.TextContent)
    return answer.content.text


def _field(answer: Any, name: str) -> Any:
    assert isinstance(answer, types.ElicitResult)
    return (answer.content or {}).get(name)


def _filled(answers: Any) -> str:
    answer = answers["form"]
    assert isinstance(answer, types.ElicitResult)
    return f"action={answer.action}, content={json.dumps(answer.content)}"


def _listed(answer: Any) -> str:
    assert isinstance(answer, types.ListRootsResult)
    return ", ".join(str(root.uri) for root in answer.roots)
