"""How what decides says no: an error code for the response."""

from __future__ import annotations

from aiokafkawire.wire import ErrorCode

__all__ = ("ApiError", "StorageError")


class ApiError(Exception):
    """Part of a request is refused; never leaves the broker but as an error code."""

    def __init__(self, code: ErrorCode, message: str | None = None) -> None:
        super().__init__(message or code.name)
        self.code = code
        self.message = message


class StorageError(ApiError):
    """A write to the data directory failed; nothing of it is stored."""

    def __init__(
        self, code: ErrorCode = ErrorCode.KAFKA_STORAGE_ERROR, message: str | None = None
    ) -> None:
        super().__init__(code, message)
