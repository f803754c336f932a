"""`bace server`: prepares the database and the first token, refuses what would be unsafe, and serves."""

from __future__ import annotations

import asyncio
import gc
import ipaddress
import os
from pathlib import Path

import uvicorn
from fastapi import FastAPI
from sqlalchemy import Engine
from sqlalchemy.exc import OperationalError

from scheduler.errors import InvalidValueError
from service import logging, tokens
from service.adapters.clock import SystemClock
from service.db import migrate
from service.db.claim import sole_server
from service.db.engine import Mode, make_engine
from service.db.repositories import access
from service.db.transaction import transact
from service.errors import ConflictError, UnavailableError
from service.home_folder import make_home
from service.policy import policy_of
from service.settings import Settings
from service.tls import check_certificate
from service.tokens import NewToken
from service.wiring import Assembly, assemble

ADMIN_TOKEN_FILE = "admin-token"  # noqa: S105 - the name of a file
GRACEFUL_SHUTDOWN_S = 5
GARBAGE_OBJECTS = 10_000
"""The collector runs when so many more objects have been made than have gone: a request makes thousands, and hardly any
of them in a cycle."""

KEEP_ALIVE_S = 75
"""An idle connection stays this long: many agents beat every 20 s, and need not connect anew for each."""


def serve(settings: Settings) -> None:
    """Serve until SIGTERM or SIGINT.

    Raises InvalidValueError for settings that cannot be meant or would be unsafe, ConflictError where the database is
    not as this program needs it, UnavailableError where it cannot be reached.
    """
    policy_of(settings)
    check_certificate(settings)
    make_home(settings.home_folder)
    logging.configure()
    assembly = assemble(settings)
    try:
        with sole_server(assembly.engine):
            prepare_database(assembly.engine)
            check_listening(settings, assembly.engine)
            check_port(settings.host, settings.port)
            _first_token(settings, assembly)
            config = uvicorn.Config(
                assembly.app,
                host=settings.host,
                port=settings.port,
                log_config=None,
                access_log=False,
                server_header=False,
                timeout_graceful_shutdown=GRACEFUL_SHUTDOWN_S,
                timeout_keep_alive=KEEP_ALIVE_S,
                ssl_certfile=settings.tls_cert_file or None,
                ssl_keyfile=settings.tls_key_file or None,
                proxy_headers=bool(settings.trusted_proxies),
                forwarded_allow_ips=settings.trusted_proxies,
            )
            _leave_what_stays_to_itself(assembly.app)
            uvicorn.Server(config).run()
    finally:
        assembly.close()


def migrate_database(settings: Settings) -> str:
    """`bace migrate`: to the newest schema; answers its revision. Errors as `serve`."""
    make_home(settings.home_folder)
    engine = make_engine(settings.database)
    try:
        _refuse_newer(_revision(engine))
        migrate.upgrade(engine)
        return migrate.head()
    finally:
        engine.dispose()


def prepare_database(engine: Engine) -> None:
    """An empty database, or SQLite's file, is brought up to date; a PostgreSQL in use is not touched unasked."""
    revision = _revision(engine)
    _refuse_newer(revision)
    if revision == migrate.head():
        return
    if revision is not None and engine.dialect.name != "sqlite":
        raise ConflictError(
            f"the database is at schema {revision}, this program needs {migrate.head()}: run `bace migrate` first"
        )
    migrate.upgrade(engine)


def check_listening(settings: Settings, engine: Engine) -> None:
    """Beyond loopback only with TLS, and only where a token has been made. Raises InvalidValueError."""
    if is_loopback(settings.host):
        return
    if not (settings.speaks_tls or settings.tls_terminated):
        raise InvalidValueError(
            "BACE_HOST",
            settings.host,
            "127.0.0.1, or BACE_TLS_CERT_FILE and BACE_TLS_KEY_FILE, or a proxy that speaks TLS before the server and "
            "BACE_TLS_TERMINATED=true: it can be reached from elsewhere, and tokens would travel in the clear",
        )
    now_s = SystemClock().now()
    usable, _ = transact(engine, Mode.READ, lambda session: access.usable_tokens(session, now_s))
    if not usable:
        raise InvalidValueError(
            "BACE_HOST",
            settings.host,
            f"127.0.0.1 at the first start, which writes {settings.home_folder / ADMIN_TOKEN_FILE}: it can be reached "
            "from elsewhere, and no token has been made yet",
        )


def check_port(host: str, port: int) -> None:
    """Raises InvalidValueError where nobody can listen there: another program does, or it is another machine's."""

    async def listen() -> None:
        (await asyncio.get_running_loop().create_server(asyncio.Protocol, host, port)).close()

    try:
        asyncio.run(listen())
    except OSError as error:
        expected = f"an address of this machine and a port that is free ({error.strerror})"
        raise InvalidValueError("BACE_HOST, BACE_PORT", f"{host}:{port}", expected) from None


def is_loopback(host: str) -> bool:
    """Whether nobody else can reach that address. A name other than localhost may mean anything."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _leave_what_stays_to_itself(app: FastAPI) -> None:
    """Modules, models and routes live as long as the process. The collector would look through all of them again and
    again while it serves: a quarter of its processor's time under load, and a pause of a tenth of a second each."""
    for route in app.routes:  # the framework makes them when they are first asked for
        route.matches({"type": "http", "method": "GET", "path": "/", "root_path": "", "headers": []})
    gc.collect()
    gc.freeze()
    gc.set_threshold(GARBAGE_OBJECTS)


def _revision(engine: Engine) -> str | None:
    try:
        with engine.connect() as connection:
            return migrate.current(connection)
    except OperationalError as error:
        raise UnavailableError(
            f"BACE_DATABASE_URL: the database cannot be reached: {str(error.orig).strip()}"
        ) from error


def _refuse_newer(revision: str | None) -> None:
    if revision is not None and not migrate.knows(revision):
        raise ConflictError(
            f"the database is at schema {revision}, which this program does not know: install the version that made it"
        )


def _first_token(settings: Settings, assembly: Assembly) -> None:
    """Without any token nobody could do anything: an administrator's is made, and lies in a file for its owner."""
    made = asyncio.run(tokens.bootstrap(assembly.services))
    if made is not None:
        _write_secret(settings.home_folder / ADMIN_TOKEN_FILE, made)


def _write_secret(path: Path, made: NewToken) -> None:
    path.unlink(missing_ok=True)
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
    with os.fdopen(descriptor, "w", encoding="ascii") as file:
        file.write(made.text + "\n")
        file.flush()
        os.fsync(file.fileno())
