from __future__ import annotations

import pickle
import traceback
from typing import Any

import pytest
from pyspark import cloudpickle

from aiokafkawire.config import Secret
from aiokafkawire.errors import InvalidOption
from aiokafkawire.spark import offsets, options
from aiokafkawire.types import TopicPartition

SERVERS = {"kafka.bootstrap.servers": "localhost:9092"}
T0 = TopicPartition("t", 0)


def read(streaming: bool = False, /, **given: str) -> options.ReadOptions:
    return options.ReadOptions.parse(SERVERS | {"subscribe": "t"} | given, streaming=streaming)


def source_of(**given: str) -> Any:
    return options.ReadOptions.parse(SERVERS | given, streaming=False).consumer_strategy


def test_the_defaults_are_those_of_the_jvms_connector():
    batch, stream = read(), read(True)
    assert (batch.starting_offsets, batch.ending_offsets) == (
        offsets.GlobalOffsetRangeLimit(offsets.EARLIEST),
        offsets.GlobalOffsetRangeLimit(offsets.LATEST),
    )
    assert stream.starting_offsets == offsets.GlobalOffsetRangeLimit(offsets.LATEST)
    assert batch.fail_on_data_loss
    assert not batch.include_headers
    assert not batch.latest_if_no_matching_timestamp
    assert (batch.fetch_offset_num_retries, batch.fetch_offset_retry_interval_ms) == (3, 1000)
    assert batch.max_trigger_delay_ms == 15 * 60_000
    assert batch.min_partitions is batch.max_offsets_per_trigger is batch.group_id is None


def test_names_are_without_case():
    found = options.ReadOptions.parse(
        {
            "KAFKA.Bootstrap.Servers": "localhost:9092",
            "SUBSCRIBE": "t",
            "INCLUDEHEADERS": "TRUE",
            "minpartitions": "7",
            "kafka.Group.Id": "g",
        },
        streaming=True,
    )
    assert found.include_headers
    assert found.min_partitions == 7
    assert found.group_id == "g"


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({"subscribe": "a, b,,a"}, options.SubscribeStrategy(("a", "b"))),
        ({"subscribePattern": "a.*"}, options.SubscribePatternStrategy("a.*")),
        ({"assign": '{"t":[0]}'}, options.AssignStrategy((T0,))),
        ({"assign": "{}"}, options.AssignStrategy(())),
    ],
)
def test_one_of_three_ways_says_what_is_read(given, expected):
    assert source_of(**given) == expected


@pytest.mark.parametrize(
    ("given", "text"),
    [
        ({}, "none is"),
        ({"subscribe": "a", "assign": "{}"}, "subscribe and assign are"),
        ({"subscribe": " , "}, "names nothing"),
        ({"subscribePattern": ""}, "names nothing"),
        ({"subscribePattern": "("}, "not a valid regular expression"),
    ],
)
def test_no_way_and_two_ways_are_refused(given, text):
    with pytest.raises(InvalidOption, match=text):
        source_of(**given)


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({"startingOffsets": " Earliest "}, offsets.GlobalOffsetRangeLimit(offsets.EARLIEST)),
        ({"startingOffsets": '{"t":{"0":5}}'}, offsets.SpecificOffsetRangeLimit({T0: 5})),
        (
            {"startingOffsetsByTimestamp": '{"t":{"0":5}}'},
            offsets.SpecificTimestampRangeLimit({T0: 5}),
        ),
        (
            {"startingTimestamp": "9", "startingOffsetsByTimestamp": "x"},
            offsets.GlobalTimestampRangeLimit(9),
        ),
        (
            {"startingOffsetsByTimestamp": '{"t":{"0":5}}', "startingOffsets": "x"},
            offsets.SpecificTimestampRangeLimit({T0: 5}),
        ),
    ],
)
def test_where_reading_begins(given, expected):
    assert read(**given).starting_offsets == expected


@pytest.mark.parametrize(
    ("streaming", "given", "text"),
    [
        (False, {"startingOffsets": "latest"}, "can't be latest"),
        (False, {"startingOffsets": '{"t":{"0":-1}}'}, "t-0 can't be latest"),
        (False, {"endingOffsets": "earliest"}, "can't be earliest"),
        (False, {"endingOffsets": '{"t":{"0":-2}}'}, "t-0 can't be earliest"),
        (True, {"endingOffsets": "latest"}, "endingOffsets is not valid"),
        (True, {"endingTimestamp": "1"}, "endingTimestamp is not valid"),
        (True, {"endingOffsetsByTimestamp": "{}"}, "endingOffsetsByTimestamp is not valid"),
        (False, {"minPartitions": "0"}, "minPartitions must be"),
        (False, {"minPartitions": "x"}, "minPartitions must be"),
        (False, {"maxRecordsPerPartition": "-1"}, "maxRecordsPerPartition"),
        (True, {"maxOffsetsPerTrigger": "0"}, "maxOffsetsPerTrigger"),
        (
            True,
            {"minOffsetsPerTrigger": "9", "maxOffsetsPerTrigger": "8"},
            r"minOffsetsPerTrigger \(9\) must not exceed maxOffsetsPerTrigger \(8\)",
        ),
        (True, {"maxTriggerDelay": "soon"}, "maxTriggerDelay"),
        (False, {"failOnDataLoss": "maybe"}, "failOnDataLoss"),
        (False, {"startingOffsetsByTimestampStrategy": "guess"}, "Strategy"),
        (False, {"subscirbe": "t"}, "'subscirbe'.*subscribe"),
        (False, {"kafka.fetch.min.byte": "1"}, r"kafka\.fetch\.min\.byte is not"),
        (False, {"kafka.partitioner": "x"}, r"kafka\.partitioner is not"),
        (False, {"kafka.security.protocol": "TLS"}, r"^kafka\.security\.protocol must be one of"),
        (
            False,
            {"kafka.sasl.mechanism": "PLAIN"},
            r"^kafka\.sasl\.mechanism needs kafka\.security\.protocol 'SASL_SSL'",
        ),
        (
            False,
            {"kafka.ssl.truststore.location": "/etc/ssl.d/a.jks"},
            r"^kafka\.ssl\.truststore\.location is a JKS file, .* -srckeystore /etc/ssl.d/a.jks .*"
            r"; then set kafka\.ssl\.truststore\.type=PEM and kafka\.ssl\.truststore\.location=",
        ),
        (
            False,
            {"kafka.ssl.key.location": "a.key", "kafka.security.protocol": "SSL"},
            r"^kafka\.ssl\.key\.location needs kafka\.ssl\.keystore\.location",
        ),
        (
            False,
            {"kafka.sasl.jaas.config": "software.amazon.msk.auth.iam.IAMLoginModule required;"},
            r"^kafka\.sasl\.jaas\.config has the class 'IAMLoginModule': .*docs/security\.md$",
        ),
        (False, {"kafka.ssl.context": "x"}, r"kafka\.ssl\.context is not one"),
        (False, {"bootstrap.servers": "b:1"}, r"did you mean 'kafka\.bootstrap\.servers'"),
        (False, {"batch.size": "1"}, r"did you mean 'kafka\.batch\.size'"),
        (False, {"startingOffsets": "beginning"}, "must be earliest, latest or JSON"),
        (False, {"endingOffsets": "end"}, "endingOffsets must be earliest, latest or JSON"),
        (False, {"kafka.auto.offset.reset": "latest"}, "startingOffsets"),
        (False, {"kafka.enable.auto.commit": "true"}, "not supported"),
        (False, {"kafka.key.deserializer": "x"}, "cast the column"),
        (False, {"kafka.isolation.level": "sometimes"}, r"kafka\.isolation\.level must"),
        (False, {"kafka.fetch.min.bytes": "x"}, r"kafka\.fetch\.min\.bytes must"),
        (False, {"kafka.bootstrap.servers": ""}, r"kafka\.bootstrap\.servers"),
    ],
)
def test_what_is_wrong_is_refused_by_name(streaming, given, text):
    with pytest.raises(InvalidOption, match=text):
        read(streaming, **given)


def test_servers_must_be_given():
    with pytest.raises(InvalidOption, match=r"kafka\.bootstrap\.servers must be given"):
        options.ReadOptions.parse({"subscribe": "t"}, streaming=False)


def test_settings_of_the_client_are_its_arguments():
    given = {
        "kafka.isolation.level": "read_committed",
        "kafka.fetch.max.wait.ms": "100",
        "kafka.check.crcs": "false",
        "kafka.receive.buffer.bytes": "65536",
        "kafka.security.protocol": "plaintext",
        "kafka.linger.ms": "3",
        "checkpointLocation": "somewhere",
    }
    assert read(**given).client == {
        "bootstrap_servers": "localhost:9092",
        "isolation_level": "read_committed",
        "fetch_max_wait_ms": 100,
        "check_crcs": False,
        "security_protocol": "PLAINTEXT",
    }


SECRET = "only-the-tests-know-this-secret"

SECURITY = {
    "kafka.security.protocol": "SASL_SSL",
    "kafka.ssl.truststore.type": "PEM",
    "kafka.ssl.truststore.location": "/etc/kafka/ca",
    "kafka.ssl.keystore.location": "client.pem",
    "kafka.ssl.key.password": SECRET,
    "kafka.sasl.mechanism": "SCRAM-SHA-512",
    "kafka.sasl.jaas.config": "org.apache.kafka.common.security.scram.ScramLoginModule required"
    f' username="alice" password="{SECRET}";',
}


@pytest.mark.parametrize("parse", [options.ReadOptions.parse, options.WriteOptions.parse])
def test_settings_of_tls_and_sasl(parse):
    given = SERVERS | SECURITY
    if parse == options.ReadOptions.parse:
        found = parse(given | {"subscribe": "t"}, streaming=True)
    else:
        found = parse(given | {"topic": "t"})
    assert dict(found.client) == {
        "bootstrap_servers": "localhost:9092",
        "security_protocol": "SASL_SSL",
        "ssl_cafile": "/etc/kafka/ca",
        "ssl_certfile": "client.pem",
        "ssl_password": Secret(SECRET),
        "sasl_mechanism": "SCRAM-SHA-512",
        "sasl_username": "alice",
        "sasl_password": Secret(SECRET),
    }
    assert SECRET not in f"{found} {found!r} {found.client!r}"
    # Spark takes the options to the tasks.
    there = pickle.loads(cloudpickle.dumps(found))
    assert there == found
    assert there.client["sasl_password"].reveal() == SECRET
    assert SECRET not in f"{there} {there!r} {there.client!r}"


def test_settings_of_oauthbearer():
    def parse(secret):
        given = {
            "kafka.security.protocol": "SASL_SSL",
            "kafka.sasl.mechanism": "OAUTHBEARER",
            "kafka.sasl.oauthbearer.token.endpoint.url": "https://idp.example.com/token",
            "kafka.sasl.jaas.config": "org.x.OAuthBearerLoginModule required clientId=c"
            f' clientSecret="{secret}";',
        }
        return read(**given).client

    client = parse(SECRET)
    assert SECRET not in f"{client!r}"
    there = pickle.loads(cloudpickle.dumps(client))
    assert there == client
    assert hash(there["sasl_oauth_token_provider"]) == hash(client["sasl_oauth_token_provider"])
    assert client != parse("another")


def test_an_error_about_tls_and_sasl_shows_no_secret():
    for change in (
        {"kafka.sasl.jaas.config": f'org.x.PlainLoginModule required password="{SECRET}";'},
        {"kafka.sasl.jaas.config": SECRET},
        {"kafka.security.protocol": "SSL"},
        {"kafka.ssl.keystore.type": "JKS"},
        {"kafka.sasl.passwort": SECRET},
    ):
        with pytest.raises(InvalidOption) as refused:
            read(**SECURITY | change)
        assert SECRET not in "".join(traceback.format_exception(refused.value))


def test_settings_of_the_producer():
    given = {
        "topic": "out",
        "kafka.acks": "-1",
        "kafka.batch.size": "1000",
        "kafka.compression.type": "zstd",
        "kafka.compression.zstd.level": "5",
        "kafka.compression.gzip.level": "9",
        "kafka.fetch.min.bytes": "1",
    }
    found = options.WriteOptions.parse(SERVERS | given)
    assert found.topic == "out"
    assert found.client == {
        "bootstrap_servers": "localhost:9092",
        "acks": -1,
        "batch_size_bytes": 1000,
        "compression_type": "zstd",
        "compression_level": 5,
    }
    with pytest.raises(InvalidOption, match="with exactlyOnce each task has its own"):
        options.WriteOptions.parse(SERVERS | {"kafka.transactional.id": "t"})


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("90", 90),
        ("90ms", 90),
        (" 15M ", 900_000),
        ("2h", 7_200_000),
        ("1500us", 1),
        ("1d", 86_400_000),
    ],
)
def test_times_are_read_as_spark_does(text, expected):
    assert options.duration_ms(text, "maxTriggerDelay") == expected


ONCE = SERVERS | {"exactlyOnce": "true", "topic": "t"}


def test_exactly_once_of_a_stream_needs_no_other_option():
    found = options.WriteOptions.parse(ONCE, streaming=True)
    assert found.exactly_once == options.ExactlyOnceOptions(None, None, "t")
    assert found.client["transaction_timeout_ms"] == 900_000
    assert options.WriteOptions.parse(SERVERS | {"topic": "t"}, streaming=True).exactly_once is None
    named = {"txnAppId": " orders ", "txnMarkerTopic": "m", "kafka.transaction.timeout.ms": "7000"}
    found = options.WriteOptions.parse(ONCE | named, streaming=True)
    assert found.exactly_once == options.ExactlyOnceOptions("orders", None, "m")
    assert found.client["transaction_timeout_ms"] == 7_000


def test_exactly_once_of_a_batch_query_has_a_name_and_a_number():
    found = options.WriteOptions.parse(ONCE | {"txnAppId": "orders", "txnVersion": "20261123"})
    assert found.exactly_once == options.ExactlyOnceOptions("orders", 20261123, "t")


@pytest.mark.parametrize(
    ("given", "streaming", "text"),
    [
        (ONCE, False, "needs txnAppId, a name for the job, and txnVersion"),
        (ONCE | {"txnAppId": "a"}, False, "needs txnAppId"),
        (ONCE | {"txnVersion": "1"}, False, "needs txnAppId"),
        (ONCE | {"txnVersion": "-1", "txnAppId": "a"}, False, "txnVersion must be a whole number"),
        (ONCE | {"txnVersion": "1"}, True, "txnVersion is only for batch queries"),
        (ONCE | {"txnAppId": " "}, True, "txnAppId is empty"),
        (SERVERS | {"exactlyOnce": "true"}, True, "option topic or, .*, txnMarkerTopic"),
        (ONCE | {"exactlyOnce": "yes"}, True, "exactlyOnce must be true or false"),
        (SERVERS | {"txnAppId": "a"}, True, "txnAppId requires exactlyOnce=true"),
        (ONCE | {"kafka.acks": "1"}, True, "acks"),
        (
            SERVERS | {"kafka.acks": "two"},
            False,
            r"^kafka\.acks must be 'all', -1, 0 or 1, not 'two'",
        ),
        (SERVERS | {"kafka.acks": "5"}, False, r"^kafka\.acks must be 'all', -1, 0 or 1, not 5"),
        (ONCE | {"kafka.enable.idempotence": "false"}, True, "idempotence"),
        (ONCE | {"kafka.transactional.id": "x"}, True, "with exactlyOnce each task has its own"),
    ],
)
def test_what_contradicts_exactly_once_is_refused(given, streaming, text):
    with pytest.raises(InvalidOption, match=text):
        options.WriteOptions.parse(given, streaming=streaming)
