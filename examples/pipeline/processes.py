"""Start Spark's processes on this machine: drivers, and a cluster of a master and two workers."""

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

__all__ = (
    "SPARK_HOME",
    "Cluster",
    "ProcessFailed",
    "SparkProcess",
    "configure",
    "run_process",
    "start_cluster",
    "wait_until",
)

HERE = Path(__file__).resolve().parent
SPARK_HOME = Path(pyspark.__file__).parent
START_S = 60.0
POLL_INTERVAL_S = 0.1
TAIL = 4_000

DEFAULTS = {
    # The Spark Connect server that a declarative pipeline starts on port 15002.
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
"""Small settings, bound to the loopback interface."""


class ProcessFailed(Exception):
    """A Spark process failed; the text has the end of its log."""


class SparkProcess:
    """A process with all its descendants, and its log."""

    def __init__(self, command: Sequence[str | Path], folder: Path, name: str) -> None:
        self.name = name
        self._ended = False
        self._log = folder / f"{name}.log"
        with self._log.open("wb") as log:
            # A new session, so that its descendants can be killed with it.
            self._process = subprocess.Popen(
                [str(part) for part in command],
                cwd=folder,
                env=os.environ | _environment(folder),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )

    @property
    def code(self) -> int | None:
        """The exit code; None while it runs."""
        code = self._process.poll()
        if code is not None:
            self.kill()
        return code

    @property
    def text(self) -> str:
        """The log."""
        return self._log.read_text(errors="replace")

    def failed(self, how: str) -> ProcessFailed:
        return ProcessFailed(f"{self.name} {how}:\n{self.text[-TAIL:]}")

    async def wait_for_log(self, pattern: str) -> str:
        """Wait until a pattern appears in the log; return the match."""
        await wait_until(lambda: self.code is not None or re.search(pattern, self.text), START_S)
        found = re.search(pattern, self.text)
        if found is None:
            raise self.failed(f"did not print_table {pattern}")
        return found[0]

    async def end(self, deadline_s: float) -> None:
        """Wait until the process ends; raise `ProcessFailed` unless it succeeded."""
        if not await wait_until(lambda: self.code is not None, deadline_s):
            raise self.failed(f"did not end in {deadline_s:.0f} s")
        if self.code != 0:
            raise self.failed(f"ended with {self.code}")

    def kill(self) -> None:
        """Kill the process and all its descendants."""
        # Kill once: the process id may be reused.
        if not self._ended:
            self._ended = True
            with suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()


async def wait_until(condition: Callable[[], object], deadline_s: float) -> bool:
    """Poll until the condition is true; return False after the deadline."""
    with anyio.move_on_after(deadline_s):
        while not condition():  # noqa: ASYNC110 - see above
            await anyio.sleep(POLL_INTERVAL_S)
    return bool(condition())


def configure(folder: Path, **more: str) -> None:
    """Write Spark's default configuration."""
    values = DEFAULTS | {
        "spark.sql.warehouse.dir": str(folder / "warehouse"),
        "spark.local.dir": str(folder / "local"),
        **more,
    }
    (folder / "conf").mkdir()
    (folder / "conf" / "spark-defaults.conf").write_text(
        "".join(f"{name} {value}\n" for name, value in values.items())
    )


def _environment(folder: Path) -> dict[str, str]:
    paths = [str(HERE), os.environ.get("PYTHONPATH", "")]
    return {
        "SPARK_HOME": str(SPARK_HOME),
        "SPARK_CONF_DIR": str(folder / "conf"),
        "SPARK_LOCAL_IP": "127.0.0.1",
        # For drivers and workers: both import the data source.
        "PYSPARK_PYTHON": sys.executable,
        "PYTHONPATH": os.pathsep.join(filter(None, paths)),
    }


@contextmanager
def run_process(command: Sequence[str | Path], folder: Path, name: str) -> Iterator[SparkProcess]:
    """Run a process until the block ends."""
    started = SparkProcess(command, folder, name)
    try:
        yield started
    finally:
        started.kill()


@dataclass(frozen=True, slots=True)
class Cluster:
    """A standalone cluster; each worker has one core and runs its executor as a child process."""

    url: str
    workers: Sequence[SparkProcess]


@asynccontextmanager
async def start_cluster(folder: Path, workers: int = 2) -> AsyncIterator[Cluster]:
    """Start a master and workers, each in its own folder."""
    start = SPARK_HOME / "bin" / "spark-class"
    here = ("--host", "127.0.0.1", "--port", "0", "--webui-port", "0")
    with ExitStack() as stack:
        master = stack.enter_context(
            run_process([start, "org.apache.spark.deploy.master.Master", *here], folder, "master")
        )
        url = await master.wait_for_log(r"spark://127\.0\.0\.1:[0-9]+")
        started = []
        for number in range(1, workers + 1):
            worker_folder = folder / f"worker-{number}"
            own = ("--cores", "1", "--memory", "768m", "--work-dir", worker_folder)
            command = [start, "org.apache.spark.deploy.worker.Worker", *here, *own, url]
            started.append(stack.enter_context(run_process(command, folder, worker_folder.name)))
        for worker in started:
            await worker.wait_for_log("Successfully registered with master")
        yield Cluster(url, started)
