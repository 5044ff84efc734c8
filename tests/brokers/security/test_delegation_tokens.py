"""Clients get in with a delegation token (KIP-48) that Kafka's own tool has created."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import anyio
import pytest
from anyio import to_thread

from aiokafkawire.errors import AuthenticationFailed
from aiokafkawire.producer import Producer
from tests.brokers.security.cases import password_access
from tests.brokers.security.servers import SCRAM, SecureKafka, SecureServers
from tests.brokers.security.support import WITHIN_S, use_all

# Each test runs Java.
pytestmark = pytest.mark.slow

CREATE = "org.apache.kafka.tools.DelegationTokenCommand"
TOKEN = re.compile(r"^(?P<id>[\w-]{20,}) +(?P<hmac>[\w+/]{20,}=*) ", re.MULTILINE)
RETRY_S = 0.1


def create_token(kafka: SecureKafka, folder: Path) -> tuple[str, str]:
    """Return the id and the HMAC of a new token of alice."""
    client = folder / "client.properties"
    client.write_text(
        "security.protocol=SASL_PLAINTEXT\n"
        "sasl.mechanism=PLAIN\n"
        "sasl.jaas.config=org.apache.kafka.common.security.plain.PlainLoginModule required"
        ' username="alice" password="alice-password";\n',
        encoding="ascii",
    )
    printed = kafka.run_tool(
        CREATE,
        *("--bootstrap-server", kafka.address("SASL"), "--command-config", str(client)),
        *("--create", "--max-life-time-period", "-1"),
    )
    found = TOKEN.search(printed)
    assert found is not None, printed
    return found["id"], found["hmac"]


async def connect(address: str, options: dict[str, Any]) -> None:
    async with Producer(bootstrap_servers=address, **options):
        pass


async def wait_until_known(address: str, options: dict[str, Any]) -> None:
    """Return once the broker takes the token, which it does when its metadata has spread."""
    with anyio.fail_after(WITHIN_S):
        while True:
            try:
                return await connect(address, options)
            except AuthenticationFailed:
                await anyio.sleep(RETRY_S)


@pytest.mark.parametrize("mechanism", SCRAM)
async def test_a_token_is_a_user_of_scram(
    servers: SecureServers, kafka: SecureKafka, topic: str, tmp_path: Path, mechanism: str
):
    token_id, hmac = await to_thread.run_sync(create_token, kafka, tmp_path)
    listener, access = password_access(servers, "SASL_TLS", mechanism)
    options = access.options() | {"sasl_username": token_id, "sasl_password": hmac}
    options["sasl_token_auth"] = True
    address = kafka.address(listener)
    await wait_until_known(address, options)
    await use_all(address, topic, options)
    # The same name is no user without the extension.
    with pytest.raises(AuthenticationFailed):
        await connect(address, options | {"sasl_token_auth": False})
