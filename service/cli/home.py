"""Where `bace` keeps what it must find again on this machine: the server's address and the admin token."""

from __future__ import annotations

import contextlib
import ipaddress
import os
import ssl
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

from service.cli.exits import CommandError, Exit
from service.home_folder import make_home

DEFAULT_URL = "http://127.0.0.1:8642"
TOKEN_FILE = "admin-token"  # noqa: S105 - a file's name
ADDRESS_FILE = "address"
LOCK_FILE = "up.lock"


def home() -> Path:
    """BACE_HOME, by default ~/.local/share/bacepipe: where a server started by `bace up` keeps its data."""
    return Path(os.environ.get("BACE_HOME") or Path.home() / ".local" / "share" / "bacepipe")


def server_url() -> str:
    """BACE_URL; else the address that `bace up` has left in BACE_HOME; else the default."""
    given = os.environ.get("BACE_URL")
    if given:
        return given.rstrip("/")
    return _first_line(home() / ADDRESS_FILE) or DEFAULT_URL


def trust(url: str) -> ssl.SSLContext | bool:
    """Whom to believe that it is the server, in httpx's terms: this machine's authorities, and that of BACE_CA_FILE.

    Raises CommandError for a file that holds no certificate. Loading authorities takes longer than a request: nothing
    but https has use for them.
    """
    if not url.startswith("https:"):
        return False
    context = ssl.create_default_context()
    authority = os.environ.get("BACE_CA_FILE")
    if authority:
        try:
            context.load_verify_locations(authority)
        except (OSError, ssl.SSLError) as error:
            raise CommandError(
                f"BACE_CA_FILE: {authority!r} is not valid: expected a file with certificates (PEM): {error}",
                Exit.USAGE,
            ) from None
    return context


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


@contextlib.contextmanager
def only_one_up() -> Iterator[None]:
    """Hold BACE_HOME for this `bace up` alone: two would share a database and hide each other's address.

    The kernel gives the lock back however we end. Raises CommandError while another one holds it, InvalidValueError for
    a folder that cannot be written to.
    """
    import fcntl  # not on every platform that `bace jobs` runs on

    make_home(home())
    with (home() / LOCK_FILE).open("a", encoding="utf-8") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            where = _first_line(home() / ADDRESS_FILE)
            raise CommandError(
                f"`bace up` already runs with BACE_HOME={home()}" + (f", at {where}." if where else "."),
                Exit.FAILED,
                hint="Use that one, end it, or give this one a BACE_HOME of its own.",
            ) from None
        yield


def write_address(url: str, folder: Path) -> None:
    """Leave the address of a running server, and the folder of its token, for the commands that come."""
    make_home(home())
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
