"""Recognises bearer tokens: of whom they are, whether they still open anything, and when they were used last. Keeps
callers to their rates on the way."""

from __future__ import annotations

import asyncio
import hmac
from collections import Counter, OrderedDict
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import NoReturn

from service import limits
from service.access import Credential, Grant, Principal, Role, any_covers, sha256_of
from service.db.records import AccountRecord, TokenRecord
from service.db.repositories import access
from service.db.session import Session
from service.errors import RateLimitedError, UnauthenticatedError
from service.rate_limits import TokenBuckets
from service.services import Services

RENEWED_AFTER = 2 / 3
"""Of its life an identity is renewed: what is left is time for an agent that cannot reach the server."""
_UNKNOWN = "the bearer token is unknown, expired or revoked, or its account has lost the role that it is for"


@dataclass(frozen=True, slots=True)
class _Known:
    """A token as it was read at a moment of the monotonic clock."""

    read_at_s: float
    token: TokenRecord
    account: AccountRecord
    is_covered: bool
    """Whether the account still holds the role that the token carries, or more."""
    principal: Principal
    """Whoever shows it, while it opens anything."""


class Authenticator:
    """Recognises tokens, and remembers for `limits.TOKEN_CACHE_S` which ones are good."""

    def __init__(self, services: Services) -> None:
        settings = services.settings
        self._services = services
        self._rates = TokenBuckets(
            settings.rate_limit_per_s, settings.rate_limit_burst, most_keys=limits.TOKENS_KNOWN
        )
        self._failures = TokenBuckets(
            settings.failed_logins_per_s, settings.failed_logins_burst, most_keys=limits.ADDRESSES_KNOWN
        )
        self._streams: Counter[str] = Counter()
        self._known: OrderedDict[str, _Known] = OrderedDict()
        self._reading: dict[str, asyncio.Task[_Known | None]] = {}
        self._noted: OrderedDict[str, float] = OrderedDict()
        self._unwritten: set[str] = set()

    async def recognise(self, text: str, address: str) -> Principal:
        """The caller that shows this token.

        Raises UnauthenticatedError for a token that opens nothing, RateLimitedError for too many of these from one
        address (a token that was good lately is let in all the same: who else is behind that address is no guesser).
        """
        sha256, now_s = sha256_of(text), self._services.clock.monotonic()
        if sha256 not in self._known:
            wait_s = self._failures.wait_s(address, now_s)
            if wait_s > 0:
                self._limited("address", "too many tokens from this address that open nothing", wait_s)
        try:
            return await self.check(sha256)
        except UnauthenticatedError:
            self._failures.take(address, now_s)
            raise

    def keep_to_rate(self, principal: Principal, cost: float = 1.0) -> None:
        """Counts a request. Raises RateLimitedError for too many of one token."""
        wait_s = self._rates.take(principal.token_id, self._services.clock.monotonic(), cost)
        if wait_s > 0:
            self._limited("token", "too many requests with this token", wait_s)

    @contextmanager
    def streaming(self, principal: Principal) -> Iterator[None]:
        """Counts a stream as open. Raises RateLimitedError for more than a token may have."""
        most = self._services.settings.max_streams_per_token
        if self._streams[principal.token_id] >= most:
            self._limited("streams", f"{most} streams of this token are open already", limits.STREAM_POLL_S)
        self._streams[principal.token_id] += 1
        try:
            yield
        finally:
            self._streams[principal.token_id] -= 1
            if not self._streams[principal.token_id]:
                del self._streams[principal.token_id]

    def _limited(self, limit: str, detail: str, wait_s: float) -> NoReturn:
        self._services.metrics.rate_limited.labels(limit).inc()
        raise RateLimitedError(f"{detail}: try again in {wait_s:.1f} s", wait_s)

    async def check(self, sha256: str) -> Principal:
        """The same by the hash: streams ask again and again whether they may go on."""
        known = await self._look(sha256)
        now_s = self._services.clock.now()
        if known is None or not _opens(known, sha256, now_s):
            raise UnauthenticatedError(_UNKNOWN)
        self._note_use(known.token, now_s)
        return known.principal

    def forget_token(self, token: TokenRecord) -> None:
        """Look into the database again: it was revoked or rotated here."""
        for sha256 in (token.sha256, token.previous_sha256):
            if sha256 is not None:
                self._forget(sha256)

    def forget_account(self, account_id: str) -> None:
        """Look into the database again: what the account may do was changed here."""
        for sha256 in [key for key, known in self._known.items() if known.account.account_id == account_id]:
            self._forget(sha256)
        self._reading.clear()  # whose they are is not known yet

    def _forget(self, sha256: str) -> None:
        self._known.pop(sha256, None)
        self._reading.pop(sha256, None)

    async def write_uses(self) -> None:
        """Store which tokens were used since the last time. Raises UnavailableError; they are not lost then."""
        if not self._unwritten:
            return
        used, now_s = sorted(self._unwritten), self._services.clock.now()
        await self._services.db.run(lambda session: access.were_used(session, used, now_s))
        self._unwritten.difference_update(used)

    async def _look(self, sha256: str) -> _Known | None:
        now_s = self._services.clock.monotonic()
        known = self._known.get(sha256)
        if known is not None and now_s - known.read_at_s < limits.TOKEN_CACHE_S:
            return known
        # Whoever shows the same token meanwhile waits for the same answer.
        reading = self._reading.get(sha256)
        if reading is None:
            reading = self._reading[sha256] = asyncio.ensure_future(self._read_anew(sha256, now_s))
            reading.add_done_callback(_look_at_its_end)
        return await asyncio.shield(reading)

    async def _read_anew(self, sha256: str, now_s: float) -> _Known | None:
        is_wanted = False
        try:
            known = await self._services.db.read(lambda session: _read(session, sha256, now_s))
        finally:
            # Where it was forgotten meanwhile, what was read is no longer what is there.
            if self._reading.get(sha256) is asyncio.current_task():
                del self._reading[sha256]
                is_wanted = True
        if is_wanted:
            self._known.pop(sha256, None)
            if known is not None:
                self._known[sha256] = known
                _bound(self._known)
        return known

    def _note_use(self, token: TokenRecord, now_s: float) -> None:
        last_s = max(token.last_used_at_s or 0.0, self._noted.get(token.token_id, 0.0))
        if now_s - last_s < limits.LAST_USED_GRAIN_S or len(self._unwritten) >= limits.TOKENS_KNOWN:
            return
        self._noted[token.token_id] = now_s
        self._noted.move_to_end(token.token_id)
        _bound(self._noted)
        self._unwritten.add(token.token_id)


def _look_at_its_end(reading: asyncio.Future[_Known | None]) -> None:
    """Also where nobody waits for it any more: whoever asked may have gone away."""
    if not reading.cancelled():
        reading.exception()


def _read(session: Session, sha256: str, now_s: float) -> _Known | None:
    found = access.shown(session, sha256)
    if found is None:
        return None
    token, account = found.token, found.account
    grants = [Grant(Role(each.role), each.project) for each in found.roles]
    is_covered = any_covers(grants, Grant(Role(token.role), token.project))
    return _Known(now_s, token, account, is_covered, _principal(token, account, sha256))


def _principal(token: TokenRecord, account: AccountRecord, sha256: str) -> Principal:
    return Principal(
        token_id=token.token_id,
        name=token.name,
        role=Role(token.role),
        project=token.project,
        sha256=sha256,
        account_id=account.account_id,
        account=account.name,
        expires_at_s=token.expires_at_s,
        credential=_credential(token, sha256) if token.role == Role.AGENT else None,
    )


def _opens(known: _Known, sha256: str, now_s: float) -> bool:
    token = known.token
    if token.revoked_at_s is not None or (token.expires_at_s is not None and token.expires_at_s <= now_s):
        return False
    is_current = hmac.compare_digest(token.sha256, sha256)
    is_previous = (
        hmac.compare_digest(token.previous_sha256 or "", sha256) and (token.previous_until_s or 0.0) > now_s
    )
    return (is_current or is_previous) and known.account.disabled_at_s is None and known.is_covered


def _credential(token: TokenRecord, sha256: str) -> Credential:
    began_s, renew_at_s = token.rotated_at_s or token.created_at_s, None
    if token.expires_at_s is not None:
        renew_at_s = began_s + RENEWED_AFTER * (token.expires_at_s - began_s)
    is_newest = hmac.compare_digest(token.sha256, sha256)
    if not is_newest:
        renew_at_s = began_s  # its new secret has not reached it
    return Credential(
        token.token_id,
        sha256,
        token.agent_id,
        token.single_use,
        renew_at_s,
        token.sha256,
        replaces_another=is_newest and token.previous_sha256 is not None,
    )


def _bound(remembered: OrderedDict[str, _Known] | OrderedDict[str, float]) -> None:
    while len(remembered) > limits.TOKENS_KNOWN:
        remembered.popitem(last=False)
