"""`bace account` and `bace token rotate` ask for what they were told, and show it."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from typer.testing import Result

from service.api.schemas.access import TOKEN, NewToken, WhoAmI
from service.api.schemas.accounts import Account
from service.cli.exits import Exit
from tests.unit.cli.conftest import FakeServer

Bace = Callable[..., Result]

[ACCOUNT] = Account.model_json_schema()["examples"]
[ME] = WhoAmI.model_json_schema()["examples"]


def sent(model: Any, document: Any) -> Any:
    return model.model_validate(document).model_dump(mode="json")


@pytest.mark.parametrize(
    ("arguments", "method", "path", "body"),
    [
        (
            ["create", "ci", "--kind", "service", "--role", "submitter", "--project", "nlp"],
            "POST",
            "/v1/accounts",
            {"name": "ci", "kind": "service", "role": "submitter", "project": "nlp"},
        ),
        (
            ["grant", "ci", "viewer", "--project", "nlp"],
            "PUT",
            "/v1/accounts/ci/roles/nlp",
            {"role": "viewer"},
        ),
        (["grant", "ci", "admin"], "PUT", "/v1/accounts/ci/roles/%2A", {"role": "admin"}),
        (["grant", "ci", "none", "--project", "nlp"], "PUT", "/v1/accounts/ci/roles/nlp", {"role": None}),
        (["disable", "ci"], "POST", "/v1/accounts/ci/disable", None),
        (["enable", "ci"], "POST", "/v1/accounts/ci/enable", None),
    ],
)
def test_an_account_is_changed_as_it_was_told(
    bace: Bace, server: FakeServer, arguments: list[str], method: str, path: str, body: Any
) -> None:
    server.answer(method, path, sent(Account, ACCOUNT))
    result = bace("account", *arguments)
    assert result.exit_code == Exit.OK, result.output
    assert "submitter in nlp" in result.output
    [asked] = server.asked
    assert (asked["method"], asked["path"], asked["body"]) == (method, path, body)


def test_a_token_is_rotated_by_its_id_or_the_one_in_use(bace: Bace, server: FakeServer) -> None:
    made = sent(NewToken, {**TOKEN, "token": "bace_secret"})
    server.answer("GET", "/v1/whoami", sent(WhoAmI, ME))
    server.answer("POST", f"/v1/tokens/{TOKEN['token_id']}/rotate", made)
    server.answer("POST", "/v1/tokens/token-2/rotate", made)
    own = bace("token", "rotate")
    other = bace("token", "rotate", "token-2", "--overlap", "1d", "--expires", "30d", "-o", "json")
    assert (own.exit_code, other.exit_code) == (Exit.OK, Exit.OK)
    assert "bace_secret" in own.output
    assert json.loads(other.stdout)["token"] == "bace_secret"
    bodies = [asked["body"] for asked in server.asked if asked["method"] == "POST"]
    assert bodies == [{"overlap_s": 3600.0}, {"overlap_s": 86_400.0, "expires_in_s": 30 * 86_400.0}]
    assert bace("token", "rotate", "--overlap", "soon").exit_code == Exit.USAGE


def test_a_token_that_never_expires_is_asked_for_in_words(bace: Bace, server: FakeServer) -> None:
    server.answer("POST", "/v1/tokens", sent(NewToken, {**TOKEN, "token": "bace_secret"}), 201)
    bace("token", "create", "x", "--role", "viewer", "--account", "ci", "--expires", "never")
    [asked] = server.asked
    assert asked["body"] == {"name": "x", "role": "viewer", "account": "ci", "never_expires": True}
