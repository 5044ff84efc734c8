"""kcat's options and output formats."""

from __future__ import annotations

import json

import pytest

from aiokafkawire.cli.application import expand_mode
from aiokafkawire.cli.kcat import json_formatter, metadata_text, metadata_to_dict
from aiokafkawire.cluster import MetadataSnapshot, PartitionMetadata, TopicMetadata
from aiokafkawire.cluster.metadata import NodeInfo
from aiokafkawire.records import Record
from aiokafkawire.runtime import Address
from aiokafkawire.types import TimestampType
from aiokafkawire.wire import ZERO_UUID

from .conftest import Cli
from .shell import aiokafkawire

printed = json_formatter(lambda tp: 7 + tp.partition)


def test_a_record_is_printed_as_kcat_does():
    record = Record(
        "orders", 3, 17, timestamp_ms=5, key=b"k", value=b'say "h\xc3\xa9"\n', headers=()
    )
    assert printed(record).decode() == (
        '{"topic":"orders","partition":3,"offset":17,"tstype":"create","ts":5,"broker":10,'
        '"key":"k","payload":"say \\"hé\\"\\n"}\n'
    )


def test_headers_take_turns_and_null_is_null():
    headers = (("a", b"1"), ("b", None), ("a", b"2"))
    appended = TimestampType.LOG_APPEND_TIME
    record = Record("t", 0, 1, timestamp_ms=5, timestamp_type=appended, headers=headers)
    assert printed(record).decode() == (
        '{"topic":"t","partition":0,"offset":1,"tstype":"logappend","ts":5,"broker":7,'
        '"headers":["a","1","b",null,"a","2"],"key":null,"payload":null}\n'
    )


def test_a_record_without_a_timestamp_and_bytes_that_are_no_text():
    record = Record("t", 0, 1, timestamp_type=TimestampType.NONE, key=b"", value=b"\xff")
    assert printed(record).decode() == (
        '{"topic":"t","partition":0,"offset":1,"broker":7,"key":"","payload":"\ufffd"}\n'
    )


CLUSTER = MetadataSnapshot(
    controller_id=2,
    nodes={2: NodeInfo(2, Address("b", 9093)), 1: NodeInfo(1, Address("a", 9092))},
)
TOPICS = [
    TopicMetadata(
        "orders",
        ZERO_UUID,
        {
            1: PartitionMetadata(1, -1, replicas=(2, 1), isr=()),
            0: PartitionMetadata(0, 1, replicas=(1, 2), isr=(1, 2)),
        },
    ),
    TopicMetadata("refunds", ZERO_UUID, {0: PartitionMetadata(0, 2, replicas=(2,), isr=(2,))}),
]


def test_metadata_is_printed_as_kcat_does():
    assert (
        metadata_text(CLUSTER, "a:9092", TOPICS, "*")
        == """\
Metadata for all topics (from broker 1: a:9092/1):
 2 brokers:
  broker 1 at a:9092
  broker 2 at b:9093 (controller)
 2 topics:
  topic "orders" with 2 partitions:
    partition 0, leader 1, replicas: 1,2, isrs: 1,2
    partition 1, leader -1, replicas: 2,1, isrs: , Broker: Leader not available
  topic "refunds" with 1 partitions:
    partition 0, leader 2, replicas: 2, isrs: 2
"""
    )
    text = metadata_text(CLUSTER, "c:1", TOPICS[1:], "refunds")
    assert text.startswith("Metadata for refunds (from broker -1: c:1/bootstrap):\n")


def test_metadata_is_kcats_json():
    assert metadata_to_dict(CLUSTER, "2 at b:9093", TOPICS[:1], "orders") == {
        "originating_broker": {"id": 2, "name": "b:9093/2"},
        "query": {"topic": "orders"},
        "controllerid": 2,
        "brokers": [{"id": 1, "name": "a:9092"}, {"id": 2, "name": "b:9093"}],
        "topics": [
            {
                "topic": "orders",
                "partitions": [
                    {
                        "partition": 0,
                        "leader": 1,
                        "replicas": [{"id": 1}, {"id": 2}],
                        "isrs": [{"id": 1}, {"id": 2}],
                    },
                    {
                        "partition": 1,
                        "error": "Broker: Leader not available",
                        "leader": -1,
                        "replicas": [{"id": 2}, {"id": 1}],
                        "isrs": [],
                    },
                ],
            }
        ],
    }


@pytest.mark.parametrize(
    ("typed", "meant"),
    [
        ("-L -b h:1", "metadata -b h:1"),
        ("-b h:1 -L -t t", "metadata -b h:1 -t t"),
        ("-LJ -b h:1", "metadata -J -b h:1"),
        ("-C -b h:1 -t t", "consume -b h:1 -t t"),
        ("-b h:1 -t t -CJe -o -5", "consume -b h:1 -t t -Je -o -5"),
        ("-Ct t -b h:1", "consume -t t -b h:1"),
        ("-b h:1 -t t -P", "produce -b h:1 -t t"),
        ("-b h:1 -G g t", "consume -b h:1 -G g t"),
        ("-G g -b h:1 t", "consume -G g -b h:1 t"),
        ("consume -L", "consume -L"),
        ("topics list -L", "topics list -L"),
        ("-b h:1", "-b h:1"),
        ("--version", "--version"),
        ("-h", "-h"),
        ("", ""),
    ],
)
def test_modes_of_kcat_are_commands(typed: str, meant: str):
    assert expand_mode(typed.split()) == meant.split()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("-L", "-b", "h:1", "-J", "--json"), "--json and -J exclude each other"),
        (("-L", "-b", "h:1", "t", "u"), "'t' and 'u' are given: give one topic, or none for all"),
        (("-b", "h:1", "-t", "t"), "a command comes first, or one of -P, -C, -L; see"),
        (("-C", "-b", "h:1", "t", "-J", "--json"), "exclude each other"),
        (("-C", "-b", "h:1", "t", "-J", "-f", "%s"), "omit -f"),
        (("-C", "-b", "h:1", "t", "-J", "-Z"), "omit -Z"),
    ],
)
def test_wrong_usage(arguments: tuple[str, ...], message: str, cli: Cli):
    code, out, err = cli(*arguments)
    assert (code, out, err.count("\n")) == (2, b"", 1)
    assert message in err


@pytest.mark.slow
def test_a_cluster_as_kcat_shows_it(cli: Cli, servers: str):
    made = ("topics", "create", "-b", servers, "listed", "-p", "2", "-r", "2")
    assert cli(*made) == (0, b"", "")
    first = servers.split(",", maxsplit=1)[0]
    code, out, err = cli("-L", "-b", first, "-t", "listed")
    lines = out.decode().splitlines()
    assert (code, err) == (0, "")
    assert lines[0] == f"Metadata for listed (from broker 1: {first}/1):"
    assert lines[1] == " 2 brokers:"
    assert [line.removesuffix(" (controller)") for line in lines[2:4]] == [
        f"  broker {number} at {address}" for number, address in enumerate(servers.split(","), 1)
    ]
    assert lines[4:6] == [" 1 topics:", '  topic "listed" with 2 partitions:']
    assert len(lines) == 8
    assert 'topic "listed" with 2 partitions' in cli("metadata", "-b", servers)[1].decode()
    form = json.loads(cli("metadata", "-b", servers, "listed", "-J")[1])
    assert form["query"] == {"topic": "listed"}
    assert [broker["name"] for broker in form["brokers"]] == servers.split(",")
    own = json.loads(cli("metadata", "-b", servers, "--json")[1])
    assert [f"{each['host']}:{each['port']}" for each in own["brokers"]] == servers.split(",")
    (described,) = [topic for topic in own["topics"] if topic["topic"] == "listed"]
    assert described == json.loads(cli("topics", "describe", "-b", servers, "listed", "--json")[1])
    code, out, err = cli("-L", "-b", servers, "-t", "listd")
    assert (code, out) == (1, b"")
    assert "did you mean 'listed'?" in err


@pytest.mark.slow
def test_records_name_the_broker_that_they_are_from(cli: Cli, servers: str):
    aiokafkawire("topics", "create", "-b", servers, "spread", "-p", "2")
    for partition in ("0", "1"):
        given = ("-b", servers, "-t", "spread", "-p", partition, "-H", "a=b")
        assert aiokafkawire("produce", *given, stdin=b"x\n").returncode == 0
    topic = json.loads(cli("topics", "describe", "-b", servers, "spread", "--json")[1])
    leaders = {each["partition"]: each["leader"] for each in topic["partitions"]}
    for given in (("-t", "spread"), ("-G", "as-kcat", "spread", "-o", "beginning")):
        code, out, err = cli("-C", "-b", servers, "-e", "-q", "-J", *given)
        assert (code, err) == (0, "")
        seen = [json.loads(line) for line in out.splitlines()]
        assert {each["partition"]: each["broker"] for each in seen} == leaders
        assert {each["payload"] for each in seen} == {"x"}
        assert [each["headers"] for each in seen] == [["a", "b"]] * 2
