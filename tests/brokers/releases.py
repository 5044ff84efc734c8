"""Which Apache Kafka releases can be started, and where their jars come from.

A release is a row of `RELEASES`. Its jars are resolved by Maven into a cache folder,
once: `<cache>/kafka/<version>/lib`. The cache is `.cache` in the project, or the folder
named by the environment variable AIOKAFKAWIRE_CACHE.
"""

from __future__ import annotations

import enum
import hashlib
import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from xml.sax.saxutils import escape

CACHE_VARIABLE = "AIOKAFKAWIRE_CACHE"
PROJECT_ROOT = Path(__file__).resolve().parents[2]
FETCH_TIMEOUT_SECONDS = 600.0
JAVA_VERSION_TIMEOUT_SECONDS = 30.0
OUTPUT_TAIL_LINES = 20


class Unavailable(RuntimeError):
    """This machine lacks something that a real broker needs; the text says how to get it."""


class Mode(enum.Enum):
    KRAFT = "KRaft"
    ZOOKEEPER = "ZooKeeper"


@dataclass(frozen=True, slots=True, kw_only=True)
class Release:
    """One release of Apache Kafka and what it takes to run it.

    `extras` are `group:artifact:version`, added as direct dependencies, so that they win
    over the version that Kafka itself asks for. `minimum_java` is a feature number (17).
    """

    version: str
    mode: Mode
    scala: str = "2.13"
    extras: tuple[str, ...] = ()
    minimum_java: int = 8

    @property
    def number(self) -> tuple[int, ...]:
        """The version, to be compared: (0, 8, 2, 2)."""
        return number_of(self.version)

    @property
    def dependencies(self) -> tuple[str, ...]:
        kafka = f"org.apache.kafka:kafka_{self.scala}:{self.version}"
        tools = f"org.apache.kafka:kafka-tools:{self.version}"
        return (kafka, *((tools,) if self.mode is Mode.KRAFT else ()), *self.extras)


def number_of(version: str) -> tuple[int, ...]:
    """The parts of a version as numbers: (0, 9) for "0.9"."""
    return tuple(map(int, version.split(".")))


# Kafka 4 brings no slf4j binding and would run without a log.
_SIMPLE_LOG = ("org.slf4j:slf4j-simple:1.7.36",)
_LOG4J_1 = ("org.slf4j:slf4j-log4j12:1.7.25",)
# ZooKeeper 3.4.13 does not resolve its own address on recent JDKs.
_OLDER_ZOOKEEPER = ("org.apache.zookeeper:zookeeper:3.4.12",)
# JAXB left the JDK with Java 11.
_JAXB = ("javax.xml.bind:jaxb-api:2.3.1",)
# The snappy of 0.8.0 and 0.8.1 has no native library for current systems.
_NEWER_SNAPPY = ("org.xerial.snappy:snappy-java:1.1.10.7",)

RELEASES: Mapping[str, Release] = {
    release.version: release
    for release in (
        Release(version="4.3.0", mode=Mode.KRAFT, extras=_SIMPLE_LOG, minimum_java=17),
        Release(version="4.2.0", mode=Mode.KRAFT, extras=_SIMPLE_LOG, minimum_java=17),
        Release(version="4.1.1", mode=Mode.KRAFT, extras=_SIMPLE_LOG, minimum_java=17),
        Release(version="4.0.0", mode=Mode.KRAFT, extras=_SIMPLE_LOG, minimum_java=17),
        Release(version="3.9.1", mode=Mode.KRAFT),
        Release(version="3.3.2", mode=Mode.KRAFT),
        Release(version="2.8.2", mode=Mode.ZOOKEEPER, extras=_LOG4J_1),
        Release(
            version="2.1.1", mode=Mode.ZOOKEEPER, scala="2.12", extras=_LOG4J_1 + _OLDER_ZOOKEEPER
        ),
        Release(
            version="2.0.1", mode=Mode.ZOOKEEPER, scala="2.12", extras=_LOG4J_1 + _OLDER_ZOOKEEPER
        ),
        Release(version="1.1.1", mode=Mode.ZOOKEEPER, scala="2.12", extras=_LOG4J_1),
        Release(version="0.11.0.3", mode=Mode.ZOOKEEPER, scala="2.12", extras=_JAXB),
        Release(version="0.10.2.2", mode=Mode.ZOOKEEPER, scala="2.12", extras=_JAXB),
        Release(version="0.10.0.1", mode=Mode.ZOOKEEPER, scala="2.11"),
        Release(version="0.9.0.1", mode=Mode.ZOOKEEPER, scala="2.11"),
        Release(version="0.8.2.2", mode=Mode.ZOOKEEPER, scala="2.11"),
        Release(version="0.8.1.1", mode=Mode.ZOOKEEPER, scala="2.10", extras=_NEWER_SNAPPY),
        Release(version="0.8.0", mode=Mode.ZOOKEEPER, scala="2.10", extras=_NEWER_SNAPPY),
    )
}

# Asked for by the log4j 1.2.15 of old releases; no public repository holds them.
_NOWHERE_TO_BE_HAD = (
    "com.sun.jmx:jmxri",
    "com.sun.jdmk:jmxtools",
    "javax.jms:jms",
    "javax.mail:mail",
)


def cache_folder() -> Path:
    configured = os.environ.get(CACHE_VARIABLE)
    return Path(configured).expanduser() if configured else PROJECT_ROOT / ".cache"


def fetch(release: Release, cache: Path | None = None) -> Path:
    """The folder that holds the jars of `release`, downloaded if it is not there yet.

    Raises `Unavailable`.
    """
    home = (cache or cache_folder()) / "kafka" / release.version
    return fetch_jars(f"Kafka {release.version}", render_pom(release), home)


def fetch_jars(what: str, pom: str, home: Path) -> Path:
    """The folder below `home` that holds the jars a pom depends on, with all theirs.

    An interrupted fetch leaves nothing behind; of two concurrent fetches the second
    finds the first one's jars and drops its own. Raises `Unavailable`.
    """
    if _is_complete(home, pom):
        return home / "lib"
    maven = shutil.which("mvn")
    if maven is None:
        raise Unavailable(
            f"{what} is not in {home} and there is no `mvn` to fetch it: "
            "install Apache Maven (Debian, Ubuntu: apt install maven; macOS: brew install maven)"
        )
    home.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=f"{home.name}-", dir=home.parent) as scratch:
        fresh = Path(scratch) / "fresh"
        fresh.mkdir()
        (fresh / "pom.xml").write_text(pom, encoding="utf-8")
        _copy_dependencies(maven, fresh)
        (fresh / "stamp").write_text(_stamp(pom), encoding="utf-8")
        _put_in_place(fresh, home, pom, Path(scratch) / "outdated")
    return home / "lib"


def render_pom(release: Release) -> str:
    unobtainable = _NOWHERE_TO_BE_HAD if release.mode is Mode.ZOOKEEPER else ()
    return pom_of("kafka", release.version, release.dependencies, unobtainable)


def pom_of(name: str, version: str, coordinates: Iterable[str], exclusions: Iterable[str]) -> str:
    """A project that depends on these `group:artifact:version`, without what is excluded."""
    excluded = tuple(exclusions)
    dependencies = "\n".join(_render_dependency(each, excluded) for each in coordinates)
    return f"""\
<project xmlns="http://maven.apache.org/POM/4.0.0">
  <modelVersion>4.0.0</modelVersion>
  <groupId>aiokafkawire.tests</groupId>
  <artifactId>{escape(name)}</artifactId>
  <version>{escape(version)}</version>
  <packaging>pom</packaging>
  <dependencies>
{dependencies}
  </dependencies>
</project>
"""


def java_for(release: Release) -> Path:
    """The `java` to run `release` with: of JAVA_HOME, else of PATH. Raises `Unavailable`."""
    home = os.environ.get("JAVA_HOME")
    found = shutil.which("java", path=str(Path(home) / "bin") if home else None)
    how = (
        f"install a JDK of version {max(release.minimum_java, 17)} (Debian, Ubuntu: "
        "apt install openjdk-17-jdk-headless; macOS: brew install openjdk@17) "
        "and put it on PATH or name it in JAVA_HOME"
    )
    if found is None:
        where = f"in JAVA_HOME ({home})" if home else "on PATH"
        raise Unavailable(f"there is no `java` {where}: {how}")
    version = java_feature_version(_output_of(found, "-version"))
    if version is None or version < release.minimum_java:
        raise Unavailable(
            f"Kafka {release.version} needs Java {release.minimum_java} or later, "
            f"{found} is {version or 'of an unknown version'}: {how}"
        )
    return Path(found)


def java_feature_version(output: str) -> int | None:
    """The feature number in what `java -version` prints: 17 for "17.0.15", 8 for "1.8.0_402"."""
    match = re.search(r'version "(?:1\.)?(\d+)', output)
    return int(match[1]) if match else None


def tail(text: str, lines: int = OUTPUT_TAIL_LINES) -> str:
    return "\n".join(text.splitlines()[-lines:])


def _render_dependency(coordinates: str, exclusions: Iterable[str]) -> str:
    group, artifact, version = map(escape, coordinates.split(":"))
    excluded = "".join(
        "<exclusion><groupId>{}</groupId><artifactId>{}</artifactId></exclusion>".format(
            *map(escape, exclusion.split(":"))
        )
        for exclusion in exclusions
    )
    return (
        f"    <dependency><groupId>{group}</groupId><artifactId>{artifact}</artifactId>"
        f"<version>{version}</version><exclusions>{excluded}</exclusions></dependency>"
    )


def _stamp(pom: str) -> str:
    return hashlib.sha256(pom.encode()).hexdigest()


def _is_complete(home: Path, pom: str) -> bool:
    """Return whether `home` was filled from this very pom: a changed row is fetched again."""
    stamp = home / "stamp"
    return stamp.is_file() and stamp.read_text(encoding="utf-8") == _stamp(pom)


def _copy_dependencies(maven: str, folder: Path) -> None:
    command = [maven, "-q", "-B", "-f", str(folder / "pom.xml"), "dependency:copy-dependencies"]
    try:
        done = subprocess.run(
            [*command, f"-DoutputDirectory={folder / 'lib'}"],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            timeout=FETCH_TIMEOUT_SECONDS,
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        raise Unavailable(f"Maven did not finish in {FETCH_TIMEOUT_SECONDS:.0f} s") from error
    if done.returncode != 0:
        raise Unavailable(
            f"Maven could not fetch the jars (exit code {done.returncode}; "
            f"does it reach a repository?):\n{tail(done.stdout)}"
        )


def _put_in_place(fresh: Path, home: Path, pom: str, outdated: Path) -> None:
    if home.exists() and not _is_complete(home, pom):
        home.rename(outdated)
    try:
        fresh.rename(home)
    except OSError:
        if not _is_complete(home, pom):
            raise


def _output_of(*command: str) -> str:
    try:
        done = subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            timeout=JAVA_VERSION_TIMEOUT_SECONDS,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise Unavailable(f"{command[0]} does not run: {error}") from error
    return done.stdout
