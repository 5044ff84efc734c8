"""Queries on brokers with TLS and SASL; their passwords are in no log, plan or event of Spark."""

from __future__ import annotations

import base64
import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from aiokafkawire.broker import BrokerSasl
from tests.broker.threaded_broker import ThreadedBroker, threaded_broker
from tests.spark.kafka import create, fill

SECRET = "only-the-tests-know-this-secret"


@pytest.fixture(scope="module")
def secure() -> Iterator[ThreadedBroker]:
    sasl = BrokerSasl(users={"alice": SECRET}, mechanisms=["SCRAM-SHA-512", "OAUTHBEARER"])
    listeners = ["PLAINTEXT", "SASL_SSL"]
    with threaded_broker(tls=True, sasl=sasl, listeners=listeners) as threaded:
        yield threaded


@pytest.fixture
def options(secure: ThreadedBroker, tmp_path: Path) -> dict[str, str]:
    authority = tmp_path / "ca.pem"
    secure.broker.authority.write(authority)
    return {
        "kafka.bootstrap.servers": secure.broker.listeners["SASL_SSL"],
        "kafka.security.protocol": "SASL_SSL",
        "kafka.ssl.truststore.type": "PEM",
        "kafka.ssl.truststore.location": str(authority),
        "kafka.sasl.mechanism": "SCRAM-SHA-512",
        "kafka.sasl.jaas.config": "org.apache.kafka.common.security.scram.ScramLoginModule required"
        f' username="alice" password="{SECRET}";',
    }


def test_queries_are_authenticated(
    spark: Any,
    secure: ThreadedBroker,
    options: dict[str, str],
    tmp_path: Path,
    capfd: pytest.CaptureFixture[str],
) -> None:
    for topic in ("written", "copied"):
        create(secure, topic, 2)
    rows = spark.range(100).selectExpr("cast(id as string) as value")
    write = rows.write.format("aiokafkawire").options(**options).mode("append")
    write.option("topic", "written").save()
    read = spark.read.format("aiokafkawire").options(**options).option("subscribe", "written")
    frame = read.load()
    assert frame.count() == 100
    frame.explain("extended")
    stream = spark.readStream.format("aiokafkawire").options(**options)
    loaded = stream.option("subscribe", "written").option("startingOffsets", "earliest").load()
    writer = loaded.select("value").writeStream.format("aiokafkawire").options(**options)
    writer = writer.option("topic", "copied").option("exactlyOnce", "true")
    writer = writer.option("checkpointLocation", str(tmp_path / "checkpoint"))
    query = writer.trigger(availableNow=True).start()
    query.awaitTermination()
    assert (
        spark.read.format("aiokafkawire")
        .options(**options)
        .option("subscribe", "copied")
        .load()
        .count()
        == 100
    )
    shown = "".join([*capfd.readouterr(), repr(query.recentProgress), str(query.lastProgress)])
    assert "aiokafkawire" in shown
    assert SECRET not in shown
    files = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert files
    assert not [path for path in files if SECRET.encode() in path.read_bytes()]


def test_queries_take_a_token_from_a_file(
    spark: Any, secure: ThreadedBroker, options: dict[str, str], tmp_path: Path
) -> None:
    fill(secure, "by-token", ["one", "two"])
    token, now = tmp_path / "token", int(time.time())
    claims = json.dumps({"sub": "alice", "iat": now, "exp": now + 600}).encode()
    parts = [base64.urlsafe_b64encode(part).decode() for part in (b'{"alg":"none"}', claims)]
    token.write_text(".".join([*(part.rstrip("=") for part in parts), ""]), encoding="utf-8")
    given = options | {
        "kafka.sasl.mechanism": "OAUTHBEARER",
        "kafka.sasl.oauthbearer.token.endpoint.url": token.as_uri(),
    }
    del given["kafka.sasl.jaas.config"]
    frame = spark.read.format("aiokafkawire").options(**given).option("subscribe", "by-token")
    assert frame.load().count() == 2


def test_a_wrong_password_fails_the_query(spark: Any, options: dict[str, str]) -> None:
    jaas = options["kafka.sasl.jaas.config"].replace(SECRET, f"{SECRET}-wrong")
    given = options | {"kafka.sasl.jaas.config": jaas}
    frame = spark.read.format("aiokafkawire").options(**given).option("subscribe", "t").load()
    with pytest.raises(Exception, match="AuthenticationFailed") as failure:
        frame.count()
    assert SECRET not in str(failure.value)


def test_the_events_of_spark_have_no_secret(spark: Any) -> None:
    """Runs last: the events are those behind Spark's UI, with the plans of all queries."""
    directory = Path(spark.conf.get("spark.eventLog.dir").removeprefix("file:"))
    files = [path for path in directory.rglob("*") if path.is_file()]
    events = "".join(path.read_text(errors="replace") for path in files)
    assert "kafka.sasl.jaas.config" in events or "SparkListenerSQLExecutionStart" in events
    assert SECRET not in events
