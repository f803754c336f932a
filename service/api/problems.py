"""Every refusal as `application/problem+json` (RFC 9457). The only module that knows HTTP statuses of errors."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from http import HTTPStatus
from types import MappingProxyType
from typing import Any

import structlog
from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse, Response
from starlette.exceptions import HTTPException

from scheduler.errors import InvalidValueError
from scheduler.spec.issues import pointer_of
from service import errors, limits
from service.api.audit_trail import CODE
from service.errors import FieldError, ServiceError, without_kind
from service.logging import without_secrets

MEDIA_TYPE = "application/problem+json"

STATUSES: Mapping[type[ServiceError], HTTPStatus] = MappingProxyType(
    {
        errors.InvalidInputError: HTTPStatus.UNPROCESSABLE_ENTITY,
        errors.IdempotencyMismatchError: HTTPStatus.UNPROCESSABLE_ENTITY,
        errors.UnauthenticatedError: HTTPStatus.UNAUTHORIZED,
        errors.ForbiddenError: HTTPStatus.FORBIDDEN,
        errors.NotFoundError: HTTPStatus.NOT_FOUND,
        errors.ConflictError: HTTPStatus.CONFLICT,
        errors.AmbiguousIdError: HTTPStatus.CONFLICT,
        errors.PreconditionFailedError: HTTPStatus.PRECONDITION_FAILED,
        errors.TooLargeError: HTTPStatus.REQUEST_ENTITY_TOO_LARGE,
        errors.RateLimitedError: HTTPStatus.TOO_MANY_REQUESTS,
        errors.UnavailableError: HTTPStatus.SERVICE_UNAVAILABLE,
    }
)
RETRY_AFTER_S = 1
_CODES = {404: "not_found", 405: "method_not_allowed"}
_log = structlog.get_logger("api")


def install(app: FastAPI) -> None:
    """Answers every error of ours, of the framework, and every defect, with a problem."""
    app.add_exception_handler(ServiceError, _service_error)
    app.add_exception_handler(InvalidValueError, _invalid_value)
    app.add_exception_handler(RequestValidationError, _invalid_request)
    app.add_exception_handler(HTTPException, _framework_error)
    app.add_exception_handler(Exception, _defect)


def problem(
    status: int,
    code: str,
    detail: str,
    *,
    instance: str,
    trace_id: str,
    field_errors: Iterable[FieldError] = (),
    reasons: Iterable[Mapping[str, Any]] = (),
    extra: Mapping[str, Any] = MappingProxyType({}),
) -> dict[str, Any]:
    """The document. A token that was sent in the wrong place is not repeated."""
    return {
        **extra,
        "type": f"about:blank#{code}",
        "title": HTTPStatus(status).phrase,
        "status": int(status),
        "detail": without_secrets(detail),
        "instance": without_secrets(instance),
        "code": code,
        "errors": [
            {
                "pointer": error.pointer,
                "where": error.where,
                "detail": error.detail,
                "code": error.code,
                "value": shown(error.value),
            }
            for error in field_errors
        ],
        "reasons": list(reasons),
        "trace_id": trace_id,
    }


def status_of(error: ServiceError) -> HTTPStatus:
    """The nearest entry of the table for the error's class."""
    for kind in type(error).__mro__:
        if kind in STATUSES:
            return STATUSES[kind]
    return HTTPStatus.INTERNAL_SERVER_ERROR


def shown(value: Any) -> str | None:
    """A refused value, shortened and printable; None where nothing was given."""
    if value is None:
        return None
    if isinstance(value, dict | list):
        return f"a {'mapping' if isinstance(value, dict) else 'list'} of {len(value)}"
    text = value[: limits.MAX_VALUE_SHOWN + 1] if isinstance(value, str) else _number_text(value)
    text = without_secrets(text)
    text = text.encode("unicode_escape").decode("ascii") if not text.isprintable() else text
    return text if len(text) <= limits.MAX_VALUE_SHOWN else text[: limits.MAX_VALUE_SHOWN] + "…"


def retry_after(error: errors.RateLimitedError) -> str:
    """The header: whole seconds, at least one."""
    return str(max(RETRY_AFTER_S, math.ceil(error.retry_after_s)))


def trace_id_of(request: Request) -> str:
    """The id under which the log knows the request."""
    return str(request.scope.get("bace_request_id", ""))


def service_problem(error: ServiceError, instance: str, trace_id: str) -> dict[str, Any]:
    """One of our errors as a document."""
    return problem(
        status_of(error),
        error.code,
        error.detail,
        instance=instance,
        trace_id=trace_id,
        field_errors=error.errors,
        reasons=error.reasons,
        extra=error.extra,
    )


async def _service_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, ServiceError)  # noqa: S101 - what the handler was installed for
    status = status_of(error)
    headers: dict[str, str] = {}
    if status == HTTPStatus.UNAUTHORIZED:
        headers["WWW-Authenticate"] = 'Bearer realm="bacepipe"'
    if status == HTTPStatus.SERVICE_UNAVAILABLE:
        headers["Retry-After"] = str(RETRY_AFTER_S)
    if isinstance(error, errors.RateLimitedError):
        headers["Retry-After"] = retry_after(error)
    if status == HTTPStatus.INTERNAL_SERVER_ERROR:
        _log.error("defect", code=error.code, trace_id=trace_id_of(request), exc_info=error)
    document = service_problem(error, request.url.path, trace_id_of(request))
    return _answer(request, status, document, headers)


async def _invalid_value(request: Request, error: Exception) -> Response:
    assert isinstance(error, InvalidValueError)  # noqa: S101
    field = FieldError(
        "/" + error.field.replace(".", "/"), f"expected {error.expected}", error.code, error.value
    )
    return _refused(request, f"{error.field}: expected {error.expected}", [field])


async def _invalid_request(request: Request, error: Exception) -> Response:
    assert isinstance(error, RequestValidationError)  # noqa: S101
    fields = [_field(entry) for entry in error.errors()[: limits.MAX_ERRORS_SHOWN]]
    names = ", ".join(field.pointer.strip("/").replace("/", ".") or field.where for field in fields)
    return _refused(request, f"not valid: {names}", fields)


async def _framework_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)  # noqa: S101
    code = _CODES.get(error.status_code, HTTPStatus(error.status_code).phrase.lower().replace(" ", "_"))
    detail = str(error.detail)
    if error.status_code == HTTPStatus.NOT_FOUND:
        detail = "there is no such address: GET /openapi.json describes those there are"
    if error.status_code == HTTPStatus.METHOD_NOT_ALLOWED:
        detail = f"{request.method} is not a method of this address"
    document = problem(
        error.status_code, code, detail, instance=request.url.path, trace_id=trace_id_of(request)
    )
    return _answer(request, error.status_code, document, error.headers or {})


async def _defect(request: Request, error: Exception) -> Response:
    trace_id = trace_id_of(request)
    _log.error("defect", path=request.url.path, trace_id=trace_id, exc_info=error)
    document = problem(
        HTTPStatus.INTERNAL_SERVER_ERROR,
        "internal_error",
        f"a defect of the server: its log tells more under {trace_id}",
        instance=request.url.path,
        trace_id=trace_id,
    )
    # The framework answers a defect outside of our own middleware, so the id is said here.
    return _answer(request, HTTPStatus.INTERNAL_SERVER_ERROR, document, {"X-Request-Id": trace_id})


def _refused(request: Request, detail: str, fields: list[FieldError]) -> Response:
    status = HTTPStatus.UNPROCESSABLE_ENTITY
    document = problem(
        status,
        errors.InvalidInputError.code,
        detail,
        instance=request.url.path,
        trace_id=trace_id_of(request),
        field_errors=fields,
    )
    return _answer(request, status, document, {})


def _field(entry: Mapping[str, Any]) -> FieldError:
    where, *path = entry["loc"]
    value = None if entry["type"] == "missing" else entry.get("input")
    return FieldError(
        pointer_of(path), without_kind(str(entry["msg"])), str(entry["type"]), value, str(where)
    )


def _number_text(value: object) -> str:
    if isinstance(value, int) and value.bit_length() > 256:
        return f"a number of {value.bit_length()} bits"
    return str(value)


def _answer(request: Request, status: int, document: dict[str, Any], headers: Mapping[str, str]) -> Response:
    request.scope[CODE] = document["code"]
    return JSONResponse(document, status, headers=dict(headers), media_type=MEDIA_TYPE)
