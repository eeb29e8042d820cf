"""A server's problems (RFC 9457) as errors: those that the broker itself would raise."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from nearcast.errors import (
    BatchError,
    DuplicateIdError,
    NearcastError,
    ServerError,
    UnknownIdError,
    ValidationError,
)

__all__ = ["error_of"]


def error_of(status: int, problem: Mapping[str, Any]) -> NearcastError:
    """The error that a refusal stands for, with everything that was said of it.

    Whatever its class, it has the `status` and the whole `problem` as attributes.
    """
    detail = str(problem.get("detail") or problem.get("title") or f"HTTP status {status}")
    error = _made(status, problem, detail)
    row = problem.get("row")
    if isinstance(row, int):
        error = BatchError(row, error)
    error.args = (detail,)
    error.status, error.problem = status, dict(problem)  # type: ignore[attr-defined]
    return error


def _made(status: int, problem: Mapping[str, Any], detail: str) -> NearcastError:
    field, value = str(problem.get("field") or "body"), problem.get("value")
    remedy = str(problem.get("remedy") or "see the server's documentation")
    match status:
        case 400 | 422:
            return ValidationError(field, value, remedy)
        case 404:
            return UnknownIdError(field, str(value), remedy)
        case 409:
            return DuplicateIdError(field, str(value), remedy)
    return ServerError(detail, status)
