"""Levels of the broker's loggers, which admin clients can change."""

from __future__ import annotations

import logging
from collections.abc import Mapping

from aiokafkawire.broker.api_error import ApiError
from aiokafkawire.wire import ErrorCode

__all__ = ("LOGGERS", "BrokerLoggers", "check_level", "check_logger")

LOGGERS = ("aiokafkawire.broker",)
"""Python's loggers of the broker. All nodes share them, as they are in one process."""

LEVELS: Mapping[str, int] = {
    "TRACE": 5,
    "DEBUG": logging.DEBUG,
    "INFO": logging.INFO,
    "WARN": logging.WARNING,
    "ERROR": logging.ERROR,
    "FATAL": logging.CRITICAL,
}
"""Kafka's levels as those of Python, the lowest first."""


class BrokerLoggers:
    """Levels that admin clients have set; they last until the broker stops."""

    def __init__(self) -> None:
        self.levels: dict[str, str] = {}
        self._before: dict[str, int] = {}

    def describe(self) -> dict[str, str]:
        """Return the effective level of each logger."""
        return {name: _level_name(logging.getLogger(name).getEffectiveLevel()) for name in LOGGERS}

    def replace(self, levels: Mapping[str, str]) -> None:
        """Set levels; all other loggers return to those that they had before."""
        self.restore()
        for name, level in levels.items():
            logger = logging.getLogger(name)
            self._before[name] = logger.level
            logger.setLevel(LEVELS[level])
        self.levels = dict(levels)

    def restore(self) -> None:
        """Return all loggers to the levels that they had before."""
        for name, level in self._before.items():
            logging.getLogger(name).setLevel(level)
        self._before.clear()
        self.levels = {}


def check_logger(name: str) -> None:
    """Raise `ApiError` unless a logger exists."""
    if name not in LOGGERS:
        raise ApiError(ErrorCode.INVALID_CONFIG, f"Logger {name} does not exist!")


def check_level(name: str, level: str) -> None:
    """Raise `ApiError` unless a level exists."""
    if level not in LEVELS:
        raise ApiError(
            ErrorCode.INVALID_CONFIG,
            f"Cannot set the log level of {name} to {level} as it is not a supported log level."
            f" Valid log levels are {', '.join(sorted(LEVELS))}",
        )


def _level_name(level: int) -> str:
    """Return the lowest of Kafka's levels that Python's includes."""
    return next((name for name, number in LEVELS.items() if level <= number), "FATAL")
