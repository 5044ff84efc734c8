from __future__ import annotations

import textwrap
from pathlib import Path

import pytest

from tests.behaviour.features import FEATURES
from tests.brokers import releases
from tests.brokers.kafka import DEFAULT_VERSION

RELEASE = releases.Release(
    version="9.9.9", mode=releases.Mode.KRAFT, extras=("some.group:extra:1",), minimum_java=17
)

# Stands in for Maven: notes that it was called and "downloads" one jar.
FAKE_MAVEN = """\
    #!/bin/sh
    echo called >> "$(dirname "$0")/calls"
    for argument; do case $argument in -DoutputDirectory=*) out=${argument#*=};; esac; done
    mkdir -p "$out" && : > "$out/kafka.jar"
"""


def script(path: Path, text: str) -> Path:
    path.write_text(textwrap.dedent(text))
    path.chmod(0o755)
    return path


@pytest.fixture
def tools(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder that comes first on PATH."""
    folder = tmp_path / "tools"
    folder.mkdir()
    monkeypatch.setenv("PATH", f"{folder}:/usr/bin:/bin")
    monkeypatch.delenv("JAVA_HOME", raising=False)
    return folder


def calls(tools: Path) -> int:
    return len((tools / "calls").read_text().splitlines())


def test_jars_are_fetched_once(tools: Path, tmp_path: Path) -> None:
    script(tools / "mvn", FAKE_MAVEN)
    first = releases.fetch(RELEASE, tmp_path / "cache")
    assert first == tmp_path / "cache/kafka/9.9.9/lib"
    assert [jar.name for jar in first.iterdir()] == ["kafka.jar"]
    assert releases.fetch(RELEASE, tmp_path / "cache") == first
    assert calls(tools) == 1
    assert [entry.name for entry in (tmp_path / "cache/kafka").iterdir()] == ["9.9.9"]


def test_a_changed_row_is_fetched_again(tools: Path, tmp_path: Path) -> None:
    script(tools / "mvn", FAKE_MAVEN)
    jars = releases.fetch(RELEASE, tmp_path)
    (jars / "outdated.jar").touch()
    releases.fetch(releases.Release(version="9.9.9", mode=releases.Mode.KRAFT), tmp_path)
    assert calls(tools) == 2
    assert [jar.name for jar in jars.iterdir()] == ["kafka.jar"]


def test_a_failed_download_leaves_nothing_and_reports_mavens_output(
    tools: Path, tmp_path: Path
) -> None:
    script(tools / "mvn", FAKE_MAVEN + "    echo could not resolve; exit 1\n")
    with pytest.raises(releases.Unavailable, match="could not resolve"):
        releases.fetch(RELEASE, tmp_path / "cache")
    assert list((tmp_path / "cache/kafka").iterdir()) == []


def test_without_maven_the_reason_says_how_to_get_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(releases.Unavailable, match="apt install maven"):
        releases.fetch(RELEASE, tmp_path / "cache")


def test_the_cache_is_in_the_project_unless_configured(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.delenv("AIOKAFKAWIRE_CACHE", raising=False)
    assert releases.cache_folder() == releases.PROJECT_ROOT / ".cache"
    assert (releases.PROJECT_ROOT / "pyproject.toml").is_file()
    monkeypatch.setenv("AIOKAFKAWIRE_CACHE", str(tmp_path))
    assert releases.cache_folder() == tmp_path


def test_the_pom_names_kafka_and_what_goes_with_it() -> None:
    pom = releases.render_pom(releases.RELEASES["4.3.0"])
    for artifact in ("kafka_2.13", "kafka-tools", "slf4j-simple"):
        assert f"<artifactId>{artifact}</artifactId>" in pom
    assert "<exclusion>" not in pom
    old = releases.render_pom(releases.RELEASES["2.0.1"])
    assert "kafka-tools" not in old
    assert "<artifactId>zookeeper</artifactId><version>3.4.12</version>" in old
    assert "<artifactId>jmxtools</artifactId></exclusion>" in old


@pytest.mark.parametrize(
    ("output", "version"),
    [
        ('openjdk version "17.0.15" 2025-04-15\n', 17),
        ('java version "1.8.0_402"\n', 8),
        ('Picked up JAVA_TOOL_OPTIONS: -Xmx1g\nopenjdk version "25" 2025-09-16\n', 25),
        ("The operation couldn’t be completed. Unable to locate a Java Runtime.", None),
    ],
)
def test_java_version_is_read(output: str, version: int | None) -> None:
    assert releases.java_feature_version(output) == version


def test_java_of_the_path_or_of_java_home(
    tools: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    new = script(tools / "java", "#!/bin/sh\necho 'openjdk version \"21.0.1\"' >&2\n")
    assert releases.java_for(RELEASE) == new
    (tmp_path / "jdk/bin").mkdir(parents=True)
    script(tmp_path / "jdk/bin/java", "#!/bin/sh\necho 'openjdk version \"11.0.2\"' >&2\n")
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "jdk"))
    with pytest.raises(
        releases.Unavailable, match=r"needs Java 17 or later, .*jdk/bin/java is 11: install"
    ):
        releases.java_for(RELEASE)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    with pytest.raises(releases.Unavailable, match="no `java` in JAVA_HOME"):
        releases.java_for(RELEASE)


def test_the_newest_release_lacks_only_what_was_taken_away():
    """So what is left out there is about older releases alone."""
    assert all(each.on(DEFAULT_VERSION) for each in FEATURES.values() if each.until is None)
