"""What user input must never become: no shell, no pickle, no code, and no address that the server fetches.

Read from the sources themselves, so that nobody has to remember it.
"""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PACKAGES = ("agents", "migrations", "scheduler", "service")

UNPICKLING = {"pickle", "cPickle", "_pickle", "dill", "cloudpickle", "marshal", "shelve", "joblib"}
TO_CODE = {"eval", "exec", "compile", "__import__"}
SHELLS = {
    "os.system",
    "os.popen",
    "subprocess.getoutput",
    "subprocess.getstatusoutput",
    "asyncio.create_subprocess_shell",
    "commands.getoutput",
}
OUTWARD = {
    "aiohttp",
    "boto3",
    "ftplib",
    "http.client",
    "httpx",
    "httpx_sse",
    "paramiko",
    "requests",
    "smtplib",
    "socket",
    "telnetlib",
    "urllib.request",
    "urllib3",
    "websockets",
    "xmlrpc",
}
DIALS_OUT = {"service/cli"}
"""Commands are clients of a server. The server itself reaches its database and Redis, both named by its operator."""


def sources(*packages: str) -> Iterator[tuple[str, ast.Module]]:
    for package in packages:
        for path in sorted((ROOT / package).rglob("*.py")):
            yield str(path.relative_to(ROOT)), ast.parse(path.read_text(encoding="utf-8"))


def imports(tree: ast.Module) -> Iterator[str]:
    """Every module that is imported, with the names from it."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and not node.level:
            yield node.module or ""
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def calls(tree: ast.Module) -> Iterator[tuple[str, ast.Call]]:
    """Every call with its dotted name."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Call):
            yield ast.unparse(node.func), node


def shells(tree: ast.Module) -> list[str]:
    found = [name for name, _ in calls(tree) if name in SHELLS]
    for name, call in calls(tree):
        for keyword in call.keywords:
            if keyword.arg == "shell" and not (
                isinstance(keyword.value, ast.Constant) and keyword.value.value is False
            ):
                found.append(f"{name}(shell=…)")  # noqa: PERF401 - two conditions read better apart
    found += [name for name in imports(tree) if name in SHELLS]
    return found


def code_from_data(tree: ast.Module) -> list[str]:
    found = [name for name in imports(tree) if name.partition(".")[0] in UNPICKLING]
    for name, call in calls(tree):
        keywords = {keyword.arg: ast.unparse(keyword.value) for keyword in call.keywords}
        if name in TO_CODE:
            found.append(name)
        if keywords.get("allow_pickle", "False") != "False":
            found.append(f"{name}(allow_pickle=…)")
        if name == "torch.load":
            found.append(name)
        if name in ("yaml.load", "yaml.load_all") and "Safe" not in ast.unparse(call):
            found.append(f"{name} without a safe loader")
        if name in ("yaml.unsafe_load", "yaml.full_load"):
            found.append(name)
    return found


def dials(tree: ast.Module) -> list[str]:
    return [
        name
        for name in imports(tree)
        if any(name == module or name.startswith(f"{module}.") for module in OUTWARD)
    ]


def test_nothing_is_run_by_a_shell() -> None:
    assert {path: found for path, tree in sources(*PACKAGES) if (found := shells(tree))} == {}


def test_no_data_is_turned_into_code() -> None:
    assert {path: found for path, tree in sources(*PACKAGES) if (found := code_from_data(tree))} == {}


def test_the_server_fetches_no_address() -> None:
    assert {
        path: found
        for path, tree in sources("service", "scheduler")
        if not any(path.startswith(f"{folder}/") for folder in DIALS_OUT) and (found := dials(tree))
    } == {}


def test_a_running_server_has_not_even_loaded_a_client() -> None:
    program = (
        "import sys, service.server\n"
        "print(sorted({'httpx', 'requests', 'aiohttp', 'urllib3'} & set(sys.modules)))"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "[]"


def test_no_rule_on_shells_and_pickles_is_switched_off_anywhere() -> None:
    silenced = re.compile(r"noqa:[^#\n]*\b(S301|S302|S307|S506|S602|S604|S605|S609|S614)\b|nosec")
    found = [
        f"{path.relative_to(ROOT)}:{number}"
        for package in PACKAGES
        for path in sorted((ROOT / package).rglob("*.py"))
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), start=1)
        if silenced.search(line)
    ]
    assert found == []


@pytest.mark.parametrize(
    ("text", "rule"),
    [
        ("import os\nos.system(name)", shells),
        ("import subprocess\nsubprocess.run(name, shell=True)", shells),
        ("import subprocess\nsubprocess.run(name, shell=flag)", shells),
        ("from os import popen", shells),
        ("import pickle", code_from_data),
        ("from cloudpickle import loads", code_from_data),
        ("eval(text)", code_from_data),
        ("np.load(path, allow_pickle=True)", code_from_data),
        ("torch.load(path)", code_from_data),
        ("yaml.load(text)", code_from_data),
        ("import httpx", dials),
        ("from urllib.request import urlopen", dials),
        ("import urllib.request", dials),
    ],
)
def test_each_rule_finds_what_it_is_there_for(text: str, rule) -> None:
    assert rule(ast.parse(text))


@pytest.mark.parametrize(
    ("text", "rule"),
    [
        ("import subprocess\nsubprocess.run([name], shell=False)", shells),
        ("import re\nre.compile(text)", code_from_data),
        ("yaml.load(text, Loader=yaml.SafeLoader)", code_from_data),
        ("from urllib.parse import quote", dials),
        ("from http import HTTPStatus", dials),
    ],
)
def test_and_nothing_else(text: str, rule) -> None:
    assert not rule(ast.parse(text))
