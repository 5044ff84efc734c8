"""Spark's processes on this machine: drivers, and a cluster of a master and two workers."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import ExitStack, asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import anyio
import pyspark

__all__ = ("SPARK_HOME", "Cluster", "Failed", "Running", "cluster", "configure", "running", "until")

HERE = Path(__file__).resolve().parent
SPARK_HOME = Path(pyspark.__file__).parent
START_S = 60.0
LOOK_S = 0.1
TAIL = 4_000

DEFAULTS = {
    # Of the server that a declarative pipeline starts for itself, at port 15002.
    "spark.connect.grpc.binding.address": "127.0.0.1",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.extraJavaOptions": "-XX:+UseSerialGC -XX:TieredStopAtLevel=1",
    "spark.executor.extraJavaOptions": "-XX:+UseSerialGC -XX:TieredStopAtLevel=1",
    "spark.executor.memory": "512m",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.streaming.pollingDelay": "10ms",
}
"""Small, and nothing that others on the network can see."""


class Failed(Exception):
    """A process of Spark did not do what it should; the text has the end of its log."""


class Running:
    """A process with all that it started, and its log."""

    def __init__(self, command: Sequence[str | Path], place: Path, name: str) -> None:
        self.name = name
        self._ended = False
        self._log = place / f"{name}.log"
        with self._log.open("wb") as log:
            # A session of its own: what it starts can be ended with it.
            self._process = subprocess.Popen(
                [str(part) for part in command],
                cwd=place,
                env=os.environ | _environment(place),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )

    @property
    def code(self) -> int | None:
        """How it ended; None while it runs."""
        code = self._process.poll()
        if code is not None:
            self.kill()
        return code

    @property
    def text(self) -> str:
        """What it has told."""
        return self._log.read_text(errors="replace")

    def failed(self, how: str) -> Failed:
        return Failed(f"{self.name} {how}:\n{self.text[-TAIL:]}")

    async def told(self, pattern: str) -> str:
        """Wait for a word in its log."""
        await until(lambda: self.code is not None or re.search(pattern, self.text), START_S)
        found = re.search(pattern, self.text)
        if found is None:
            raise self.failed(f"did not tell {pattern}")
        return found[0]

    async def end(self, deadline_s: float) -> None:
        """Wait for the end. Raises `Failed` if that is no good one."""
        if not await until(lambda: self.code is not None, deadline_s):
            raise self.failed(f"did not end in {deadline_s:.0f} s")
        if self.code != 0:
            raise self.failed(f"ended with {self.code}")

    def kill(self) -> None:
        """The process and all that belongs to it, at once."""
        # Once: the number may be another one's later.
        if not self._ended:
            self._ended = True
            with suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()


async def until(condition: Callable[[], object], deadline_s: float) -> bool:
    """Whether a condition comes true in time: processes and files tell nobody when they change."""
    with anyio.move_on_after(deadline_s):
        while not condition():  # noqa: ASYNC110 - see above
            await anyio.sleep(LOOK_S)
    return bool(condition())


def configure(place: Path, **more: str) -> None:
    """Where Spark looks for what the command line does not say."""
    values = DEFAULTS | {
        "spark.sql.warehouse.dir": str(place / "warehouse"),
        "spark.local.dir": str(place / "local"),
        **more,
    }
    (place / "conf").mkdir()
    (place / "conf" / "spark-defaults.conf").write_text(
        "".join(f"{name} {value}\n" for name, value in values.items())
    )


def _environment(place: Path) -> dict[str, str]:
    paths = [str(HERE), os.environ.get("PYTHONPATH", "")]
    return {
        "SPARK_HOME": str(SPARK_HOME),
        "SPARK_CONF_DIR": str(place / "conf"),
        "SPARK_LOCAL_IP": "127.0.0.1",
        # Of drivers and of workers: both import the data source.
        "PYSPARK_PYTHON": sys.executable,
        "PYTHONPATH": os.pathsep.join(filter(None, paths)),
    }


@contextmanager
def running(command: Sequence[str | Path], place: Path, name: str) -> Iterator[Running]:
    """A process that does not outlive this."""
    started = Running(command, place, name)
    try:
        yield started
    finally:
        started.kill()


@dataclass(frozen=True, slots=True)
class Cluster:
    """A standalone cluster; each worker has one core and runs its executor as a child."""

    url: str
    workers: Sequence[Running]


@asynccontextmanager
async def cluster(place: Path, workers: int = 2) -> AsyncIterator[Cluster]:
    """A master and workers, each with a folder of its own."""
    start = SPARK_HOME / "bin" / "spark-class"
    here = ("--host", "127.0.0.1", "--port", "0", "--webui-port", "0")
    with ExitStack() as stack:
        master = stack.enter_context(
            running([start, "org.apache.spark.deploy.master.Master", *here], place, "master")
        )
        url = await master.told(r"spark://127\.0\.0\.1:[0-9]+")
        those = []
        for number in range(1, workers + 1):
            folder = place / f"worker-{number}"
            own = ("--cores", "1", "--memory", "768m", "--work-dir", folder)
            command = [start, "org.apache.spark.deploy.worker.Worker", *here, *own, url]
            those.append(stack.enter_context(running(command, place, folder.name)))
        for worker in those:
            await worker.told("Successfully registered with master")
        yield Cluster(url, those)
