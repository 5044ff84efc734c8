"""The two connectors: ours on the project's PySpark, Spark's own on the one that its jars fit.

Each is a process that lives as long as the tests, with one Spark session: it takes cases one after
another, while the other one is at the same.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import threading
from pathlib import Path
from queue import Empty, Queue
from typing import Any

from tests.brokers.process import start_guard
from tests.brokers.releases import Unavailable, tail
from tests.spark.jvm import environment

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[2]

OURS = "aiokafkawire"
THEIRS = "kafka"

START_S = 120
ANSWER_S = 100
STOP_S = 30

JAVA_OPTIONS = "-XX:+UseSerialGC -XX:TieredStopAtLevel=1"


class Connector:
    """A process of `answerer.py`."""

    def __init__(self, name: str, python: Path, jars: str, place: Path) -> None:
        self.name = name
        self._log = place / f"{name}.log"
        command = [str(python), "-P", str(HERE / "answerer.py"), "--format", name]
        command += ["--jars", jars, "--place", str(place / name)]
        variables = os.environ | {
            "JAVA_TOOL_OPTIONS": JAVA_OPTIONS,
            "PYTHONDONTWRITEBYTECODE": "",
        }
        # The tests may run in an variables that names a Spark.
        for variable in ("SPARK_HOME", "PYSPARK_PYTHON", "PYSPARK_DRIVER_PYTHON"):
            variables.pop(variable, None)
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                command,
                cwd=ROOT,
                env=variables,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                start_new_session=True,
            )
        self._guard = start_guard(self._process.pid)
        self._answers: Queue[str] = Queue()
        self._listener = threading.Thread(target=self._listen, daemon=True)
        self._listener.start()

    def wait_until_ready(self) -> str:
        """The version of its PySpark."""
        return str(self._answer(START_S)["pyspark"])

    def ask(self, **what: Any) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(what) + "\n")
        self._process.stdin.flush()

    def answer(self) -> dict[str, Any]:
        return self._answer(ANSWER_S)

    def close(self) -> None:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.close()
        try:
            self._process.wait(STOP_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait(STOP_S)
        self._listener.join(STOP_S)
        self._process.stdout.close()
        self._guard.kill()
        self._guard.communicate()

    def _listen(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self._answers.put(line)
        self._answers.put("")

    def _answer(self, timeout_s: float) -> dict[str, Any]:
        try:
            line = self._answers.get(timeout=timeout_s)
        except Empty:
            line = ""
        if not line:
            output = tail(self._log.read_text(errors="replace"))
            raise AssertionError(f"{self.name}: no answer within {timeout_s} s, or gone:\n{output}")
        answer: dict[str, Any] = json.loads(line)
        return answer


def start_both(place: Path) -> tuple[Connector, Connector]:
    """Ours and theirs. Raises `Unavailable`."""
    if shutil.which("java") is None and "JAVA_HOME" not in os.environ:
        raise Unavailable("Spark needs Java 17 or later: install one, or set JAVA_HOME")
    theirs = environment()
    ours = Connector(OURS, Path(sys.executable), "", place)
    return ours, Connector(THEIRS, theirs.python, theirs.spark_jars, place)
