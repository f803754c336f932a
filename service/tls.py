"""The server's own certificate: looked at before anything is served, so that a slip is told in words."""

from __future__ import annotations

import ssl
import stat
from pathlib import Path

from scheduler.errors import InvalidValueError
from service.settings import Settings


def check_certificate(settings: Settings) -> None:
    """Raises InvalidValueError for files that cannot be read or do not belong together, and for a key that others than
    its owner may read."""
    if not settings.speaks_tls:
        return
    cert, key = Path(settings.tls_cert_file), Path(settings.tls_key_file)
    for name, path in (("BACE_TLS_CERT_FILE", cert), ("BACE_TLS_KEY_FILE", key)):
        if not path.is_file():
            raise InvalidValueError(name, str(path), "a file")
    if key.stat().st_mode & (stat.S_IRWXG | stat.S_IRWXO):
        raise InvalidValueError(
            "BACE_TLS_KEY_FILE", str(key), "a file that only its owner may read (chmod 600)"
        )
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    try:
        context.load_cert_chain(cert, key, password="")  # never asks for one on the terminal
    except (ssl.SSLError, OSError) as error:
        detail = f"a certificate (PEM) and the key of it without a password ({error})"
        raise InvalidValueError("BACE_TLS_CERT_FILE", str(cert), detail) from error
