from __future__ import annotations

from pathlib import Path

import anyio
import pytest

import aiokafkawire
from aiokafkawire import Broker
from benchmarks.compare import BEFORE, NOW, Side, link_package, ratio, run_step, table
from benchmarks.rows import OURS, Actor

PACKAGE = Path(aiokafkawire.__file__).parent


def test_a_ratio_is_the_median_of_the_pairs() -> None:
    costs = {BEFORE: [1.0, 2.0, 10.0], NOW: [2.0, 1.0, 11.0]}
    assert ratio(costs) == 1.1
    assert ratio(costs, BEFORE, NOW) == pytest.approx(1 / 1.1)


def test_the_table_shows_another_client_beside_both() -> None:
    costs = {BEFORE: [2e-6], NOW: [3e-6], "confluent-kafka": [1e-6]}
    assert list(table({"one": costs}))[2:] == [
        "| one | 2 | 3 | 1.500 |",
        "| one, beside confluent-kafka (1 us) | 2.00 × | 3.00 × | |",
    ]


def test_the_other_folder_needs_the_package(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="is not a package"):
        link_package(tmp_path / "aiokafkawire", tmp_path / "link")


async def test_a_side_imports_the_package_of_its_folder(tmp_path: Path) -> None:
    copied = tmp_path / "other" / PACKAGE.name
    copied.mkdir(parents=True)
    for part in PACKAGE.iterdir():
        if part.name != "__pycache__":  # a compiled file of another copy may look up to date
            (copied / part.name).symlink_to(part)
    # Only this copy reports its import.
    (copied / "__init__.py").unlink()
    text = (PACKAGE / "__init__.py").read_text(encoding="utf-8")
    line = f"open({str(tmp_path / 'imported')!r}, 'w').close()\n"
    (copied / "__init__.py").write_text(text + line, encoding="utf-8")
    folder = link_package(copied, tmp_path / "link")
    async with Broker() as broker:
        await broker.create_topic("t", partitions=4)
        side = Side(NOW, Actor(OURS, "send"), folder)
        with side.running(broker.bootstrap_servers, "t") as process:
            cost = await anyio.to_thread.run_sync(run_step, process, 100)
            again = await anyio.to_thread.run_sync(run_step, process, 100)
    assert min(cost, again) > 0
    assert (tmp_path / "imported").exists()
