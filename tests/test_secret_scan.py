"""The scan finds a secret wherever a test shows it, and nothing else."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.secret_scan import LATEST, SecretScan, is_recognisable

ROOT = Path(__file__).parents[1]

OPTIONS = ("-q", "-p", "tests.secret_scan", "-p", "no:cacheprovider", "-c", os.devnull, "-rfEp")

TESTS = """
import logging

import pytest

from aiokafkawire.config import Secret
from aiokafkawire.errors import InvalidOption, UnknownServerError

SECRET = "only-this-file-knows-it"
logger = logging.getLogger("aiokafkawire.test")


@pytest.fixture(autouse=True)
def secret():
    return Secret(SECRET)


def test_log_line():
    logger.warning("The password is %s", SECRET)


def test_log_field():
    logger.warning("Connected", extra={"password": SECRET})


def test_log_line_with_an_exception():
    try:
        raise ValueError(SECRET)
    except ValueError:
        logger.exception("Failed")


def test_log_line_below_the_level_of_pytest():
    logging.getLogger("aiokafkawire").setLevel(logging.DEBUG)
    logger.debug(SECRET)


def test_error():
    with pytest.raises(InvalidOption):
        raise InvalidOption(f"{SECRET!r} is wrong")


def test_error_of_a_subclass():
    assert UnknownServerError(SECRET, code=-7, name="NEW").code == -7


def test_output():
    print(SECRET)


def test_output_of_a_fixture(late):
    pass


@pytest.fixture
def late():
    yield
    print(SECRET)


def test_shows_nothing(secret):
    print(secret)
    logger.warning("The password is %s", secret)
    assert secret.reveal() == SECRET
"""


@pytest.mark.slow
def test_a_test_that_shows_a_secret_fails(tmp_path: Path) -> None:
    (tmp_path / "test_leaks.py").write_text(TESTS, encoding="utf-8")
    done = subprocess.run(
        [sys.executable, "-m", "pytest", *OPTIONS, "--rootdir", tmp_path, tmp_path],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    ended = re.findall(r"^(FAILED|ERROR|PASSED) \S+::(\w+)", done.stdout, re.MULTILINE)
    failed = {name for end, name in ended if end != "PASSED"}
    assert failed == set(re.findall(r"def (test_\w+)", TESTS)) - {"test_shows_nothing"}
    # They fail for this reason alone.
    reasons = re.findall(r"^a secret is shown:$", done.stdout, re.MULTILINE)
    assert len(reasons) == len([end for end, _ in ended if end != "PASSED"])
    assert ("PASSED", "test_shows_nothing") in ended
    assert "only-this-file-knows-it" not in done.stdout.partition("short test summary")[2]


def test_secrets_that_are_in_other_texts_by_chance_are_not_searched_for() -> None:
    for text in ("", "pw", "alice-p", "aaaaaaaa", "abababababab", "Password", "secret"):
        assert not is_recognisable(text)
    assert is_recognisable("alice-secret")


def test_the_latest_secrets_are_searched_for() -> None:
    scan = SecretScan()
    for number in range(LATEST + 1):
        scan.note(f"the-secret-number-{number:05}")
    scan.search("here", "the-secret-number-00000")
    assert scan.take_leaks() == []
    scan.search("here", "it is the-secret-number-00001!")
    assert scan.take_leaks() == ["here: it is (the secret)!"]
    assert scan.take_leaks() == []


def test_secrets_of_other_modules_and_of_hypothesis_are_not_searched_for() -> None:
    scan = SecretScan()
    scan.begin("one", is_paused=False)
    scan.note("of-module-one")
    scan.begin("one", is_paused=True)
    scan.note("of-hypothesis")
    scan.search("here", "of-module-one of-hypothesis")
    assert scan.take_leaks() == ["here: (the secret) of-hypothesis"]
    scan.begin("two", is_paused=False)
    scan.search("here", "of-module-one of-hypothesis")
    assert scan.take_leaks() == []
