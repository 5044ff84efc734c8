"""The README of the tools: what is independent of the client, and how to judge another one."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

from verify.invariants.events import (
    Acknowledged,
    Event,
    Opened,
    RecordsBuffered,
    Sending,
    TopicCreated,
    make_value,
    to_line,
)

VERIFY = Path(__file__).parents[2] / "verify"
ADAPTER = {"recorder.py", "recorded_producer.py", "recorded_consumer.py", "broker_observer.py"}
NAMES = {"aiokafkawire.types.TopicPartition", "aiokafkawire.wire.ErrorCode"}
README = (VERIFY / "README.md").read_text(encoding="utf-8")


def imported(path: Path) -> set[str]:
    """Return what a module imports from the project."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom):
            found |= {f"{node.module}.{alias.name}" for alias in node.names}
        elif isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
    return {name for name in found if name.startswith(("aiokafkawire", "tests", "verify"))}


def test_the_checks_know_two_names_of_the_client() -> None:
    paths = [path for path in (VERIFY / "invariants").rglob("*.py") if path.name not in ADAPTER]
    found = set().union(*map(imported, paths))
    assert {name for name in found if not name.startswith("verify.invariants.")} == NAMES
    assert not any(name.split(".")[2] + ".py" in ADAPTER for name in found - NAMES)


def test_the_checks_of_proofs_are_independent() -> None:
    assert not imported(VERIFY / "soak" / "checker.py")


def test_paths_and_options_exist() -> None:
    sources = {path: path.read_text("utf-8") for path in (VERIFY / "invariants").rglob("*.py")}
    listed = README.partition("- `Opened` has")[2].partition("- Errors")[0]
    for option in re.findall(r"`([a-z]+(?:_[a-z]+)+)`", listed):
        assert any(f'"{option}"' in source for source in sources.values()), option
    for path in re.findall(r"`((?:invariants|soak)/[\w./]+)`", README):
        assert (VERIFY / path).exists(), path


def write(folder: Path, offset: int) -> None:
    """Write the history of a producer whose record was acknowledged at this offset."""
    value = make_value("p1", 1)
    events: list[Event] = [
        TopicCreated(0.0, "", "orders", 1),
        Opened(1.0, "p1", "producer", {"client_id": "p1", "required_acks": -1}),
        Sending(2.0, "p1", 1, "orders", (value,)),
        RecordsBuffered(3.0, "p1", 1),
        Acknowledged(4.0, "p1", 1, "orders", 0, ((offset, value),)),
    ]
    folder.mkdir()
    (folder / "p1.jsonl").write_text("".join(to_line(event) + "\n" for event in events))


@pytest.mark.parametrize(("offset", "violated"), [(0, False), (1, True)])
def test_a_foreign_history_is_judged(
    offset: int,
    violated: bool,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    write(tmp_path / "histories", offset)
    monkeypatch.chdir(tmp_path)
    code = README.partition("```python\n")[2].partition("```")[0]
    exec(compile(code, "README.md", "exec"), {})
    assert ("(1) " in capsys.readouterr().out) == violated
