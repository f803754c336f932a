"""The one root of the errors that use-cases raise. Only `service/api/problems.py` knows their HTTP statuses."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class FieldError:
    """One thing wrong with the input: where (JSON pointer), what was given, what would be right.

    `where` is the part of the request that the pointer goes into: body, query, path or header.
    """

    pointer: str
    detail: str
    code: str = "invalid"
    value: Any = None
    where: str = "body"


_PYDANTIC = {
    "Value error, ": "",
    "Input should be ": "expected ",
    "String should match pattern ": "expected text that matches ",
    "String should have ": "expected ",
}


def without_kind(message: str) -> str:
    """What a validator said of a value, as every refusal is told: pydantic puts words of its own before it."""
    for theirs, ours in _PYDANTIC.items():
        if message.startswith(theirs):
            return ours + message.removeprefix(theirs)
    return message


class ServiceError(Exception):
    """A refusal. `code` is for machines, `detail` says what to do, `extra` goes into the problem document."""

    code = "service_error"

    def __init__(
        self,
        detail: str,
        *,
        errors: tuple[FieldError, ...] = (),
        reasons: tuple[dict[str, Any], ...] = (),
        **extra: Any,
    ) -> None:
        super().__init__(detail)
        self.detail = detail
        self.errors = errors
        self.reasons = reasons
        self.extra = extra


class InvalidInputError(ServiceError):
    """The input cannot be meant. Nothing was stored."""

    code = "invalid_input"


class NotFoundError(ServiceError):
    """There is no such object, or it is not the caller's to see."""

    code = "not_found"


class ConflictError(ServiceError):
    """The object is in a state in which this cannot be done."""

    code = "conflict"


class AmbiguousIdError(ServiceError):
    """An id prefix that fits more than one object."""

    code = "ambiguous_id"


class IdempotencyMismatchError(ServiceError):
    """The Idempotency-Key was used before with another body."""

    code = "idempotency_key_reused"


class PreconditionFailedError(ServiceError):
    """If-Match names a version that is not the current one."""

    code = "version_mismatch"


class UnauthenticatedError(ServiceError):
    """No token, or one that is unknown, expired or revoked."""

    code = "unauthenticated"


class ForbiddenError(ServiceError):
    """The token's role does not allow this."""

    code = "forbidden"


class TooLargeError(ServiceError):
    """More than the limit of `service/limits.py` allows."""

    code = "too_large"


class RateLimitedError(ServiceError):
    """Too many requests from one caller, or altogether. Nothing was done; try again after `retry_after_s`."""

    code = "too_many_requests"

    def __init__(self, detail: str, retry_after_s: float) -> None:
        super().__init__(detail, retry_after_s=retry_after_s)
        self.retry_after_s = retry_after_s


class UnavailableError(ServiceError):
    """The database does not answer at present. Nothing was stored; try again."""

    code = "unavailable"
