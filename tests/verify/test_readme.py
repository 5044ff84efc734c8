"""The README of the tools: what is independent of the client, and how to judge another one."""

from __future__ import annotations

import ast
import io
import re
from collections.abc import Awaitable
from pathlib import Path
from types import SimpleNamespace

import pytest

from verify.invariants.events import (
    Acknowledged,
    Event,
    Failed,
    Opened,
    RecordsBuffered,
    Sending,
    TopicCreated,
    from_lines,
    make_value,
    to_line,
)

VERIFY = Path(__file__).parents[2] / "verify"
ADAPTER = {
    "recorder.py",
    "recorded_client.py",
    "recorded_producer.py",
    "recorded_consumer.py",
    "recorded_share_consumer.py",
    "share_observer.py",
    "broker_observer.py",
    "group_observer.py",
}
NAMES = {"aiokafkawire.types.TopicPartition", "aiokafkawire.wire.ErrorCode"}
README = (VERIFY / "README.md").read_text(encoding="utf-8")
JUDGE, ADAPTER_EXAMPLE = (
    compile(code, "README.md", "exec") for code in re.findall(r"```python\n(.*?)```", README, re.S)
)


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
    exec(JUDGE, {})
    assert ("(1) " in capsys.readouterr().out) == violated


class ForeignProducer:
    """Acknowledges the first record, and fails for the second."""

    def __init__(self) -> None:
        self.values: list[bytes] = []

    async def send(self, topic: str, value: bytes) -> Awaitable[SimpleNamespace]:
        self.values.append(value)
        return self._delivery(len(self.values) - 1)

    async def _delivery(self, offset: int) -> SimpleNamespace:
        if offset:
            raise TimeoutError
        return SimpleNamespace(partition=0, offset=offset)


async def test_the_adapter_of_the_example_records_sends() -> None:
    names: dict[str, type] = {}
    exec(ADAPTER_EXAMPLE, names)
    history, foreign = io.StringIO(), ForeignProducer()
    producer = names["RecordedProducer"](foreign, "p1", history)
    await producer.send_and_wait("orders", b"a")
    with pytest.raises(TimeoutError):
        await producer.send_and_wait("orders", b"b")
    first, second = foreign.values
    *_, acknowledged, _, _, failed = from_lines(history.getvalue().splitlines(keepends=True))
    assert isinstance(acknowledged, Acknowledged)
    assert (acknowledged.client, acknowledged.records) == ("p1", ((0, first),))
    assert isinstance(failed, Failed)
    assert (failed.values, failed.error, failed.may_be_written) == (
        (second,),
        "TimeoutError",
        True,
    )
