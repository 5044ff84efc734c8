"""Spark's own Kafka connector, and the PySpark that it fits, in an environment of its own.

    python -m tests.spark.jvm           # make it, and print its path

It stands in the cache folder, beside the jars of brokers, and is made once.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

from tests.brokers.releases import Unavailable, cache_folder, fetch_jars, pom_of, tail

SPARK = "4.0.0"
"""The newest release of the connector whose artifacts all resolve."""

CONNECTOR = f"org.apache.spark:spark-sql-kafka-0-10_2.13:{SPARK}"

PACKAGES = (f"pyspark=={SPARK}", "py4j==0.10.9.9")

BROUGHT_BY_SPARK = (
    "org.apache.hadoop:*",
    "org.apache.spark:spark-tags_2.13",
    "org.lz4:*",
    "org.scala-lang:*",
    "org.scala-lang.modules:*",
    "org.slf4j:*",
    "org.xerial.snappy:*",
    "com.google.code.findbugs:*",
)
"""What the connector depends on and PySpark has: a second one beside it may not fit it."""

INSTALL_TIMEOUT_SECONDS = 600.0


@dataclass(frozen=True, slots=True)
class Environment:
    """`python` has PySpark; `jars` are the connector's, for `spark.jars`."""

    python: Path
    jars: tuple[Path, ...]

    @property
    def spark_jars(self) -> str:
        return ",".join(map(str, self.jars))


def environment(cache: Path | None = None) -> Environment:
    """The environment, made if it is not there yet. Raises `Unavailable`."""
    home = (cache or cache_folder()) / "spark" / SPARK
    pom = pom_of("spark", SPARK, (CONNECTOR,), BROUGHT_BY_SPARK)
    jars = fetch_jars(f"Spark's Kafka connector {SPARK}", pom, home / "connector")
    return Environment(_python(home), tuple(sorted(jars.glob("*.jar"))))


def _python(home: Path) -> Path:
    # Named for what it holds: other packages, or another Python, are another one.
    version = ".".join(map(str, sys.version_info[:3]))
    place = home / f"python-{version}"
    python = place / "bin" / "python"
    stamp = place / "stamp"
    wanted = "\n".join(PACKAGES)
    if stamp.is_file() and stamp.read_text(encoding="utf-8") == wanted:
        return python
    home.mkdir(parents=True, exist_ok=True)
    # An environment cannot be moved: who comes second makes it once more, in the same place.
    _run(sys.executable, "-m", "venv", str(place))
    _run(str(python), "-m", "pip", "install", "--quiet", *PACKAGES)
    with tempfile.NamedTemporaryFile("w", dir=place, delete=False, encoding="utf-8") as file:
        file.write(wanted)
    Path(file.name).rename(stamp)
    return python


def _run(*command: str) -> None:
    try:
        done = subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            timeout=INSTALL_TIMEOUT_SECONDS,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise Unavailable(f"PySpark {SPARK} could not be installed: {error}") from error
    if done.returncode:
        raise Unavailable(f"PySpark {SPARK} could not be installed:\n{tail(done.stdout)}")


if __name__ == "__main__":
    try:
        made = environment()
    except Unavailable as error:
        sys.exit(str(error))
    print(made.python, *made.jars, sep="\n")
