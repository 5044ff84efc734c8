"""The base class of the clients: start, stop, `async with`, and failures."""

from __future__ import annotations

import random
from typing import Any

import pytest

from aiokafkawire import Admin, Consumer, Producer
from aiokafkawire.errors import ClientClosed, NoBrokerAvailable
from aiokafkawire.kafka07 import Client as Kafka07Client
from aiokafkawire.runtime import NEVER, BaseClient, RealRuntime, Runtime, Session, Supervisor


class Least(BaseClient[Session]):
    """The least client there can be; it notes what it is asked."""

    def __init__(
        self, failure: Exception | None = None, runtime: Runtime | None = None, log_prefix: str = ""
    ) -> None:
        super().__init__("client", "Least servers='none'", runtime, log_prefix)
        self.runtimes: list[Runtime] = []
        self.left_with: list[BaseException | None] = []
        self._failure = failure

    async def _start(self, runtime: Runtime, supervisor: Supervisor) -> Session:
        assert supervisor.is_running
        self.runtimes.append(runtime)
        return Session()

    async def _close(self, body_error: BaseException | None) -> Exception | None:
        self.left_with.append(body_error)

        async def close_session(_: Session) -> None: ...

        await self._lifecycle.stop(close_session, NEVER)
        failure, self._failure = self._failure, None
        return failure


async def test_start_and_stop_equal_async_with():
    async with Least() as entered:
        assert repr(entered) == "<Least servers='none' (running)>"
    started = Least()
    await started.start()
    assert repr(started) == repr(entered).replace("closed", "running")
    await started.aclose()
    assert started.left_with == entered.left_with == [None]
    assert repr(started) == repr(entered) == "<Least servers='none' (closed)>"


@pytest.mark.parametrize(
    "client",
    [
        Producer(bootstrap_servers="localhost"),
        Consumer(bootstrap_servers="localhost"),
        Admin(bootstrap_servers="localhost"),
        Kafka07Client("localhost"),
    ],
    ids=lambda client: type(client).__name__,
)
def test_a_plain_with_statement_is_refused(client: Any):
    with pytest.raises(TypeError, match=f"^use 'async with {type(client).__name__}"), client:
        pass


async def test_the_runtime_is_the_given_one_or_that_of_the_running_loop():
    given = RealRuntime(rng=random.Random(1))
    async with Least(runtime=given) as one, Least() as other:
        assert one.runtimes == [given]
        assert isinstance(other.runtimes[0], RealRuntime)


async def test_the_first_stop_raises_the_failure():
    client = Least(ValueError("two records failed"))
    await client.start()
    with pytest.raises(ValueError, match="two records failed"):
        await client.stop()
    await client.stop()


async def test_leaving_the_block_raises_the_failure():
    with pytest.raises(ValueError, match="two records failed"):
        async with Least(ValueError("two records failed")):
            pass


async def test_the_failure_becomes_a_note_of_the_bodys_exception():
    own = KeyError("the body's")
    client = Least(ValueError("two records failed"))
    with pytest.raises(KeyError) as raised:
        async with client:
            raise own
    assert raised.value is own
    assert own.__notes__ == ["two records failed"]
    assert client.left_with == [own]


async def test_the_bodys_exception_has_no_note_without_a_failure():
    with pytest.raises(KeyError) as raised:
        async with Least():
            raise KeyError
    assert not hasattr(raised.value, "__notes__")


async def test_a_stopped_client_cannot_be_started_again():
    client = Least()
    await client.start()
    await client.stop()
    with pytest.raises(ClientClosed, match="closed"):
        await client.start()
    assert len(client.runtimes) == 1


@pytest.mark.parametrize("client", [Producer, Consumer, Admin, Kafka07Client])
@pytest.mark.parametrize("name", ["start", "stop"])
def test_each_client_documents_start_and_stop(client: type[BaseClient[Any]], name: str) -> None:
    assert getattr(client, name).__doc__ != getattr(BaseClient, name).__doc__


@pytest.mark.slow
async def test_log_lines_name_the_client(caplog: pytest.LogCaptureFixture):
    async def fail() -> None:
        raise LookupError("a defect")

    options: dict[str, Any] = {
        "bootstrap_servers": "127.0.0.1:1",
        "default_api_timeout_ms": 100,
        "retry_backoff_ms": 1,
    }
    clients: list[tuple[Admin | Consumer | Producer, str]] = [
        (Producer(client_id="writer", **options), "producer writer"),
        (Consumer(client_id="reader", **options), "consumer reader"),
        (Admin(client_id="operator", **options), "admin operator"),
        (Consumer(group_id="billing", **options), "consumer aiokafkawire of group billing"),
    ]
    for real, who in clients:
        with pytest.raises(NoBrokerAvailable):
            await real.start()
        assert any(text.startswith(f"{who}: ") for text in caplog.messages)
        caplog.clear()
    client = Least(log_prefix="client of tests")
    await client.start()
    await client._lifecycle.supervisor.spawn(fail, name="odd").wait()
    await client.stop()
    assert caplog.messages == ["client of tests: task odd failed"]
