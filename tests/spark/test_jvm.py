"""The environment of the JVM's connector, without making one."""

from __future__ import annotations

import sys

import pytest

from tests.brokers import releases
from tests.spark import jvm


@pytest.fixture
def commands(monkeypatch, tmp_path):
    """Record commands instead of running them."""
    ran: list[tuple[str, ...]] = []

    def run(*command: str) -> None:
        ran.append(command)
        if "venv" in command:
            (tmp_path / "spark" / jvm.SPARK / command[-1]).mkdir(parents=True, exist_ok=True)

    def fetched(what, pom, home):
        (home / "lib").mkdir(parents=True, exist_ok=True)
        for name in ("b.jar", "a.jar", "notes.txt"):
            (home / "lib" / name).touch()
        return home / "lib"

    monkeypatch.setattr(jvm, "_run", run)
    monkeypatch.setattr(jvm, "fetch_jars", fetched)
    return ran


def test_it_is_made_once_and_from_pinned_packages(commands, tmp_path):
    first = jvm.environment(tmp_path)
    made, installed = commands
    assert made[:3] == (sys.executable, "-m", "venv")
    assert all("==" in package for package in installed[-2:])
    assert installed[0] == str(first.python)
    assert first.spark_jars.endswith("b.jar")
    assert [jar.name for jar in first.jars] == ["a.jar", "b.jar"]
    assert jvm.environment(tmp_path) == first
    assert len(commands) == 2


def test_other_packages_are_reinstalled(commands, tmp_path, monkeypatch):
    jvm.environment(tmp_path)
    monkeypatch.setattr(jvm, "PACKAGES", ("pyspark==4.0.1",))
    jvm.environment(tmp_path)
    assert commands[-1][-1] == "pyspark==4.0.1"


def test_a_failed_command_is_reported():
    with pytest.raises(jvm.Unavailable, match=r"(?s)could not be installed.*no such thing"):
        jvm._run(sys.executable, "-c", "import sys; sys.exit('no such thing')")
    with pytest.raises(jvm.Unavailable, match="could not be installed"):
        jvm._run("/nowhere/python")


def test_what_spark_brings_is_left_out():
    pom = releases.pom_of("spark", "1", (jvm.CONNECTOR,), jvm.BROUGHT_BY_SPARK)
    assert "<artifactId>spark-sql-kafka-0-10_2.13</artifactId>" in pom
    assert pom.count("<exclusion>") == len(jvm.BROUGHT_BY_SPARK)
