"""Pytest plugin: a test fails if a secret that it uses is in a log line, an error or its output.

Every `Secret` is noted when it is made, in this process. Texts are searched for the latest ones of
the module. Tests of hypothesis are left out, whose secrets are in many texts by chance.
"""

from __future__ import annotations

import functools
import logging
from collections import OrderedDict
from collections.abc import Generator
from typing import Any

import pytest

from aiokafkawire.config import Secret
from aiokafkawire.errors import KafkaError

__all__ = ("LATEST", "SECRETS", "SecretScan", "is_recognisable")

LATEST = 32
"""Number of secrets to search for."""

MIN_LENGTH = 8
MIN_CHARACTERS = 5
"""Shorter secrets, and those of fewer different characters, are in many texts by chance."""

WORDS = frozenset({"password", "passwort", "secret", "credentials"})
"""Secrets that are ordinary words."""


STANDARD = frozenset(vars(logging.makeLogRecord({})))
FORMATTER = logging.Formatter()


def is_recognisable(text: str) -> bool:
    """Return True if a text that contains the secret does so because of the secret."""
    return (
        len(text) >= MIN_LENGTH and len(set(text)) >= MIN_CHARACTERS and text.lower() not in WORDS
    )


class SecretScan(logging.Handler):
    """Notes secrets, and searches log records and errors for them."""

    def __init__(self) -> None:
        super().__init__(level=0)
        self._latest: OrderedDict[str, None] = OrderedDict()
        self._module: object = None
        self._is_paused = False
        self.leaks: list[str] = []

    def begin(self, module: object, *, is_paused: bool) -> None:
        """Begin a test; forget the secrets of other modules."""
        if module != self._module:
            self._latest.clear()
        self._module, self._is_paused = module, is_paused

    def note(self, text: str) -> None:
        """Search for this secret from now on."""
        if is_recognisable(text) and not self._is_paused:
            self._latest[text] = None
            self._latest.move_to_end(text)
            if len(self._latest) > LATEST:
                self._latest.popitem(last=False)

    def search(self, where: str, text: str) -> None:
        """Note a leak if the text has a secret."""
        for secret in self._latest:
            if secret in text:
                self.leaks.append(f"{where}: {text.replace(secret, '(the secret)')[:500]}")

    def emit(self, record: logging.LogRecord) -> None:
        if self._latest:
            extra = {name: value for name, value in vars(record).items() if name not in STANDARD}
            error = FORMATTER.formatException(record.exc_info) if record.exc_info else ""
            self.search(f"log line of {record.name}", f"{record.getMessage()} {extra} {error}")

    def on_error(self, error: KafkaError) -> None:
        """Search a new error."""
        if self._latest:
            self.search(f"text of {type(error).__name__}", f"{error.reason} {error.args}")

    def take_leaks(self) -> list[str]:
        """Return the leaks since the last call."""
        leaks, self.leaks = self.leaks, []
        return leaks


SECRETS = SecretScan()


def pytest_configure() -> None:
    init_secret, init_error = Secret.__init__, KafkaError.__init__

    @functools.wraps(init_secret)
    def note_secret(self: Secret, text: str) -> None:
        init_secret(self, text)
        SECRETS.note(text)

    @functools.wraps(init_error)
    def note_error(self: KafkaError, *args: Any, **context: Any) -> None:
        init_error(self, *args, **context)
        SECRETS.on_error(self)

    Secret.__init__ = note_secret  # type: ignore[method-assign]
    KafkaError.__init__ = note_error  # type: ignore[method-assign]
    logging.getLogger("aiokafkawire").addHandler(SECRETS)


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    function = getattr(item, "obj", None)
    SECRETS.begin(item.path, is_paused=getattr(function, "is_hypothesis_test", False))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport() -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    for name, text in report.sections:
        SECRETS.search(name, text)
    leaks = SECRETS.take_leaks()
    if leaks and report.outcome == "passed":
        report.outcome = "failed"
        report.longrepr = "\n".join(["a secret is shown:", *dict.fromkeys(leaks)])
    return report
