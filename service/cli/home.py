"""Where `bace` keeps what it must find again on this machine: the server's address and the admin token."""

from __future__ import annotations

import ipaddress
import os
from pathlib import Path
from urllib.parse import urlsplit

DEFAULT_URL = "http://127.0.0.1:8642"
TOKEN_FILE = "admin-token"  # noqa: S105 - a file's name
ADDRESS_FILE = "address"


def home() -> Path:
    """BACE_HOME, by default ~/.local/share/bacepipe: where a server started by `bace up` keeps its data."""
    return Path(os.environ.get("BACE_HOME") or Path.home() / ".local" / "share" / "bacepipe")


def server_url() -> str:
    """BACE_URL; else the address that `bace up` has left in BACE_HOME; else the default."""
    given = os.environ.get("BACE_URL")
    if given:
        return given.rstrip("/")
    return _first_line(home() / ADDRESS_FILE) or DEFAULT_URL


def server_token(url: str) -> str | None:
    """BACE_TOKEN; else, only for a server on this very machine, the admin token that it left here.

    A token file is never sent to another host.
    """
    given = os.environ.get("BACE_TOKEN")
    if given:
        return given.strip()
    if not is_loopback(url):
        return None
    left = _lines(home() / ADDRESS_FILE)
    folder = Path(left[1]) if len(left) == 2 and left[0] == url else home()
    return _first_line(folder / TOKEN_FILE)


def is_loopback(url: str) -> bool:
    """Whether the address is this machine's own."""
    host = urlsplit(url).hostname or ""
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def write_address(url: str, folder: Path) -> None:
    """Leave the address of a running server, and the folder of its token, for the commands that come."""
    home().mkdir(parents=True, exist_ok=True, mode=0o700)
    (home() / ADDRESS_FILE).write_text(f"{url}\n{folder}\n", encoding="utf-8")


def remove_address(url: str) -> None:
    """Take the address away again, unless another server has written its own since."""
    if _first_line(home() / ADDRESS_FILE) == url:
        (home() / ADDRESS_FILE).unlink(missing_ok=True)


def _first_line(path: Path) -> str | None:
    lines = _lines(path)
    return lines[0] if lines else None


def _lines(path: Path) -> list[str]:
    try:
        return path.read_text(encoding="utf-8").splitlines()
    except OSError:
        return []
