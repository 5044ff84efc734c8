"""kafka-delegation-tokens of Kafka 4.3.0 works against the embedded broker."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import anyio

from aiokafkawire import Producer
from tests.broker.threaded_broker import threaded_broker
from tests.brokers.fixtures import what_real_kafka_needs
from tests.brokers.kafka import DEFAULT_VERSION, JAVA_OPTIONS
from tests.brokers.releases import RELEASES, fetch, java_for

MAIN = "org.apache.kafka.tools.DelegationTokenCommand"
TOKEN = re.compile(r"^(?P<id>[\w-]{20,}) +(?P<hmac>[\w+/]{20,}=*) ", re.MULTILINE)
TIMEOUT_S = 120

CLIENT = """\
security.protocol=SASL_PLAINTEXT
sasl.mechanism=PLAIN
sasl.jaas.config=org.apache.kafka.common.security.plain.PlainLoginModule required \
username="alice" password="alice-pw";
"""


def test_kafka_delegation_tokens(tmp_path: Path) -> None:
    with what_real_kafka_needs():
        release = RELEASES[DEFAULT_VERSION]
        java, jars = java_for(release), fetch(release)
    config = tmp_path / "client.properties"
    config.write_text(CLIENT, "ascii")
    with threaded_broker(
        as_of="4.3", sasl={"alice": "alice-pw"}, delegation_token_secret_key="key"
    ) as server:

        def tool(*arguments: str) -> str:
            result = subprocess.run(
                [
                    *(str(java), *JAVA_OPTIONS),
                    "-Dorg.slf4j.simpleLogger.defaultLogLevel=error",
                    *("-cp", f"{jars}/*", MAIN),
                    *("--bootstrap-server", server.servers, "--command-config", str(config)),
                    *arguments,
                ],
                capture_output=True,
                text=True,
                check=False,
                timeout=TIMEOUT_S,
            )
            output = result.stdout + result.stderr
            assert result.returncode == 0, output
            return output

        created = TOKEN.search(tool("--create", "--max-life-time-period", "-1"))
        assert created is not None
        hmac = created["hmac"]

        async def log_in() -> None:
            async with Producer(
                bootstrap_servers=server.servers,
                security_protocol="SASL_PLAINTEXT",
                sasl_mechanism="SCRAM-SHA-256",
                sasl_username=created["id"],
                sasl_password=hmac,
                sasl_token_auth=True,
            ) as producer:
                await producer.send_and_wait("t", b"v")

        anyio.run(log_in)
        owner = ("--describe", "--owner-principal", "User:alice")
        described = TOKEN.search(tool(*owner))
        assert described is not None
        assert described["id"] == created["id"]
        tool("--renew", "--hmac", hmac, "--renew-time-period", "-1")
        tool("--expire", "--hmac", hmac, "--expiry-time-period", "-1")
        assert TOKEN.search(tool(*owner)) is None
