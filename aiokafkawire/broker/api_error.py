"""Errors that handlers raise to answer with an error code."""

from __future__ import annotations

from aiokafkawire.wire import ErrorCode

__all__ = ("ApiError", "StorageError", "invalid_request")


class ApiError(Exception):
    """An error code for a request or a part of it; handlers turn it into a response."""

    def __init__(self, code: ErrorCode, message: str | None = None) -> None:
        super().__init__(message or code.name)
        self.code = code
        self.message = message


class StorageError(ApiError):
    """A write to the data directory failed and stored nothing."""

    def __init__(
        self, code: ErrorCode = ErrorCode.KAFKA_STORAGE_ERROR, message: str | None = None
    ) -> None:
        super().__init__(code, message)


def invalid_request(message: str) -> ApiError:
    """Return the error of a request whose content is invalid."""
    return ApiError(ErrorCode.INVALID_REQUEST, message)
