"""Imports by case. Spark imports `pyspark_aiokafkawire` for any Python data source."""

from __future__ import annotations

import subprocess
import sys

import pytest

from aiokafkawire import spark

LOADED = "print(sorted({name.partition('.')[0] for name in sys.modules} & {'pyspark', 'pyarrow'}))"
HIDDEN = "sys.modules['pyspark'] = None"


def printed(*lines: str) -> str:
    code = "\n".join(("import sys", *lines))
    run = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60
    )
    return run.stdout.strip()


@pytest.mark.parametrize(
    ("imported", "loaded"),
    [
        ("import aiokafkawire.spark", "[]"),
        ("from aiokafkawire.spark import options, offsets, ranges, limits, offset_progress", "[]"),
        ("import pyspark_aiokafkawire", "['pyspark']"),
    ],
)
def test_only_needed_modules_are_imported(imported, loaded):
    assert printed(imported, LOADED) == loaded


READY = """
from aiokafkawire.spark import source
from aiokafkawire.spark.options import ReadOptions
from pyspark.sql.types import BinaryType, StructField, StructType
server = {"kafka.bootstrap.servers": "localhost:1"}
read, write = server | {"subscribe": "t"}, server | {"topic": "t"}
value = StructType([StructField("value", BinaryType())])
"""


@pytest.mark.parametrize(
    "done",
    [
        # What the processes do that Spark starts for a query but for planning, reading and writing.
        "source.KafkaDataSource(read).schema()",
        "source.KafkaBatchReader(ReadOptions.parse(read, streaming=False), ['value'])",
        "source.KafkaStreamReader(ReadOptions.parse(read, streaming=True), ['value'])",
        "source.KafkaDataSource(write).streamWriter(value, False).commit([], 0)",
    ],
)
def test_a_process_without_queries_imports_no_client(done):
    clients = "{'aiokafkawire.consumer', 'aiokafkawire.producer', 'anyio'}"
    assert printed(READY, done, f"print({clients} & {{*sys.modules}})") == "set()"


def test_the_source_is_found_under_its_name():
    name = "print(pyspark_aiokafkawire.DefaultSource.name())"
    assert printed("import pyspark_aiokafkawire", name) == "aiokafkawire"


def test_without_pyspark_the_module_is_empty_and_hides_no_other_source():
    there = "print(hasattr(pyspark_aiokafkawire, 'DefaultSource'))"
    assert printed(HIDDEN, "import pyspark_aiokafkawire", there) == "False"


def test_the_room_has_one_public_name():
    assert spark.KafkaDataSource.name() == "aiokafkawire"
    with pytest.raises(AttributeError, match="no attribute 'Other'"):
        _ = spark.Other


def test_what_is_not_installed_is_named(monkeypatch):
    asked = ("try:", "    from aiokafkawire.spark import KafkaDataSource")
    hint = printed(HIDDEN, *asked, "except ImportError as error:", "    print(error)")
    assert hint == "the data source needs PySpark 4.2 or later: install aiokafkawire[spark]"
    monkeypatch.setattr("aiokafkawire.spark.source.find_spec", lambda name: None)
    with pytest.raises(ImportError, match=r"needs pyarrow: install aiokafkawire\[spark\]"):
        spark.KafkaDataSource({})
