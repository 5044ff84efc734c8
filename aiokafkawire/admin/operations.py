"""Base class of the operations of the admin client."""

from __future__ import annotations

from abc import ABC, abstractmethod

from aiokafkawire.admin.requester import Requester

__all__ = ("Operations",)


class Operations(ABC):
    """Operations of one area; `Admin` derives from all of them."""

    @abstractmethod
    def _requester(self, timeout_ms: int | None) -> Requester:
        """Return the requester of one call.

        Args:
            timeout_ms: Timeout of the call in milliseconds; None for `default_api_timeout_ms`.

        Raises:
            ClientClosed: The client is not running.
            TypeError: `timeout_ms` is no number.
            ValueError: `timeout_ms` is negative.
        """
