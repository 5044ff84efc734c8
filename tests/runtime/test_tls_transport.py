"""TLS over the real network of each event loop, and over the simulated one."""

from __future__ import annotations

import contextlib
import datetime
import ssl
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager

import anyio
import pytest
import trustme
from hypothesis import given, settings
from hypothesis import strategies as st

from aiokafkawire.runtime import Address, Buffer, RealRuntime, Transport
from aiokafkawire.runtime.tls_transport import TlsTransport, connect_tls
from aiokafkawire.testing.simulation import World

LOOPBACK = Address("127.0.0.1", 0)
LIMIT_S = 20
HOST = "broker.example"

CA = trustme.CA(key_type=trustme.KeyType.ECDSA)
OTHER_CA = trustme.CA(key_type=trustme.KeyType.ECDSA)
ALICE = CA.issue_cert("alice@example.com")
LONG_AGO = datetime.datetime(2020, 1, 1, tzinfo=datetime.UTC)


def server_context(
    *names: str,
    ca: trustme.CA = CA,
    wants_certificate: bool = False,
    not_after: datetime.datetime | None = None,
) -> ssl.SSLContext:
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    before = LONG_AGO if not_after is not None else None
    ca.issue_cert(*(names or (HOST,)), not_before=before, not_after=not_after).configure_cert(
        context
    )
    if wants_certificate:
        context.verify_mode = ssl.CERT_REQUIRED
        CA.configure_trust(context)
    return context


def client_context(certificate: trustme.LeafCert | None = None) -> ssl.SSLContext:
    context = ssl.create_default_context()
    CA.configure_trust(context)
    if certificate is not None:
        certificate.configure_cert(context)
    return context


@asynccontextmanager
async def pair() -> AsyncIterator[tuple[Transport, Transport]]:
    """Connect two plain transports."""
    runtime = RealRuntime()
    listener = await runtime.listen(LOOPBACK)
    client = await runtime.connect(listener.address)
    server = await listener.accept()
    await listener.aclose()
    try:
        with anyio.fail_after(LIMIT_S):
            yield client, server
    finally:
        with anyio.CancelScope(shield=True):
            await client.aclose()
            await server.aclose()


@asynccontextmanager
async def secure_pair(
    server_side: ssl.SSLContext | None = None, client_side: ssl.SSLContext | None = None
) -> AsyncIterator[tuple[TlsTransport, TlsTransport]]:
    async with pair() as (client, server):
        secured = TlsTransport(server, server_side or server_context(), server_side=True)
        async with anyio.create_task_group() as group:
            group.start_soon(secured.handshake)
            connected = await connect_tls(client, client_side or client_context(), HOST)
        yield connected, secured
        await connected.aclose()
        await secured.aclose()


async def receive_exactly(transport: Transport | TlsTransport, size: int) -> bytes:
    buffer = bytearray(size)
    view = memoryview(buffer)
    while view:
        count = await transport.receive_into(view)
        assert count, "the stream ended early"
        view = view[count:]
    return bytes(buffer)


async def test_bytes_go_both_ways() -> None:
    async with secure_pair() as (client, server):
        assert client.version == "TLSv1.3"
        assert client.peer_certificate()
        assert client.send_nowait([b"one ", memoryview(b"two "), bytearray(b"three")]) == ()
        assert await receive_exactly(server, 13) == b"one two three"
        await server.send([b"back"])
        assert await receive_exactly(client, 4) == b"back"
        await client.aclose()
        assert await server.receive_into(memoryview(bytearray(1))) == 0


async def test_the_ciphertext_does_not_show_the_plaintext() -> None:
    async with pair() as (client, server):
        seen = bytearray()
        spied = Spy(client, seen)
        secured = TlsTransport(server, server_context(), server_side=True)
        async with anyio.create_task_group() as group:
            group.start_soon(secured.handshake)
            connected = await connect_tls(spied, client_context(), HOST)
        await connected.send([b"hunter2" * 100])
        assert await receive_exactly(secured, 700) == b"hunter2" * 100
        assert b"hunter2" not in seen
        assert len(seen) > 700


async def test_a_slow_reader_gets_everything_in_order() -> None:
    data = bytes(range(256)) * 16_384
    async with secure_pair() as (client, server):

        async def write() -> None:
            for start in range(0, len(data), 100_000):
                rest: Sequence[Buffer] = [data[start : start + 100_000]]
                if rest := client.send_nowait(rest):
                    await client.send(rest)

        async with anyio.create_task_group() as group:
            group.start_soon(write)
            await anyio.sleep(0.05)
            assert await receive_exactly(server, len(data)) == data


async def test_all_that_arrives_is_received_until_the_end() -> None:
    async with secure_pair() as (client, server):
        # Before anyone receives, and after.
        await client.send([b"early"])
        found = bytearray()
        all_there = anyio.Event()
        buffer = memoryview(bytearray(1_000))

        def on_received(count: int) -> None:
            found.extend(buffer[:count])
            if len(found) == 100_005:
                all_there.set()

        async with anyio.create_task_group() as group:
            group.start_soon(server.receive_until_eof, lambda: buffer, on_received)
            await client.send([b"x" * 100_000])
            await all_there.wait()
            await client.aclose()
        assert bytes(found) == b"early" + b"x" * 100_000


async def test_an_error_of_the_receiver_ends_receiving() -> None:
    async with secure_pair() as (client, server):
        await client.send([b"bad frame"])
        buffer = memoryview(bytearray(100))

        def on_received(_: int) -> None:
            raise ValueError("bad frame")

        with pytest.raises(ValueError, match="bad frame"):
            await server.receive_until_eof(lambda: buffer, on_received)


async def test_a_stream_that_is_cut_ends() -> None:
    """Without close_notify: Kafka's frames carry their length."""
    async with pair() as (client, server):
        secured = TlsTransport(server, server_context(), server_side=True)
        async with anyio.create_task_group() as group:
            group.start_soon(secured.handshake)
            connected = await connect_tls(client, client_context(), HOST)
        await connected.send([b"last"])
        assert await receive_exactly(secured, 4) == b"last"
        await server.aclose()
        assert await end_of(connected) in {0, ConnectionResetError}


async def end_of(transport: Transport | TlsTransport) -> object:
    """Return how a stream ends: 0 or the class of the error."""
    try:
        return await transport.receive_into(memoryview(bytearray(1)))
    except OSError as error:
        return type(error)


REFUSED: dict[str, tuple[Callable[[], ssl.SSLContext], int]] = {
    "unknown CA": (lambda: server_context(ca=OTHER_CA), 20),
    "wrong host": (lambda: server_context("other.example"), 62),
    "expired": (
        lambda: server_context(not_after=LONG_AGO + datetime.timedelta(days=1)),
        10,
    ),
}


@pytest.mark.parametrize("reason", REFUSED)
async def test_a_server_that_cannot_be_trusted_is_refused(reason: str) -> None:
    make, verify_code = REFUSED[reason]
    async with pair() as (client, server):
        secured = TlsTransport(server, make(), server_side=True)
        alerts: list[ssl.SSLError] = []

        async def serve() -> None:
            try:
                await secured.handshake()
            except ssl.SSLError as error:
                alerts.append(error)

        async with anyio.create_task_group() as group:
            group.start_soon(serve)
            with pytest.raises(ssl.SSLCertVerificationError) as refused:
                await connect_tls(client, client_context(), HOST)
        assert refused.value.verify_code == verify_code


async def test_a_client_certificate_is_verified() -> None:
    wanted = server_context(wants_certificate=True)
    async with secure_pair(wanted, client_context(ALICE)) as (_, server):
        assert "alice@example.com" in str(server.peer_certificate())


async def test_a_missing_client_certificate_shows_with_the_first_read_of_tls_1_3() -> None:
    async with pair() as (client, server):
        secured = TlsTransport(server, server_context(wants_certificate=True), server_side=True)

        async def serve() -> None:
            with pytest.raises(ssl.SSLError, match="PEER_DID_NOT_RETURN_A_CERTIFICATE"):
                await secured.handshake()

        async with anyio.create_task_group() as group:
            group.start_soon(serve)
            connected = await connect_tls(client, client_context(), HOST)
            with pytest.raises(ssl.SSLError, match="CERTIFICATE_REQUIRED"):
                await connected.receive_into(memoryview(bytearray(1)))


async def test_tls_1_2() -> None:
    old = server_context()
    old.maximum_version = ssl.TLSVersion.TLSv1_2
    async with secure_pair(old) as (client, server):
        assert client.version == "TLSv1.2"
        await client.send([b"x"])
        assert await receive_exactly(server, 1) == b"x"


async def test_a_server_without_tls() -> None:
    async with pair() as (client, server):
        await server.send([b"this is no TLS record"])
        with pytest.raises(ssl.SSLError, match=r"WRONG_VERSION_NUMBER|RECORD_LAYER_FAILURE"):
            await connect_tls(client, client_context(), HOST)


async def test_a_connection_that_is_lost_in_the_handshake() -> None:
    async with pair() as (client, server):
        await server.aclose()
        with pytest.raises(OSError, match=r"closed|reset|[Cc]onnection"):
            await connect_tls(client, client_context(), HOST)


async def test_a_handshake_that_hangs_can_be_cancelled() -> None:
    async with pair() as (client, _):
        with anyio.move_on_after(0.05) as scope:
            await connect_tls(client, client_context(), HOST)
        assert scope.cancelled_caught


class Spy:
    """A transport that keeps a copy of what is sent."""

    def __init__(self, transport: Transport, seen: bytearray) -> None:
        self._transport = transport
        self._seen = seen

    def __getattr__(self, name: str) -> object:
        return getattr(self._transport, name)

    def send_nowait(self, buffers: Sequence[Buffer]) -> Sequence[Buffer]:
        self._seen += b"".join(buffers)
        return self._transport.send_nowait(buffers)

    async def send(self, buffers: Sequence[Buffer]) -> None:
        self._seen += b"".join(buffers)
        await self._transport.send(buffers)


async def test_nothing_is_received_after_close_notify() -> None:
    async with pair() as (client, server):
        secured = TlsTransport(server, server_context(), server_side=True)
        async with anyio.create_task_group() as group:
            group.start_soon(secured.handshake)
            connected = await connect_tls(client, client_context(), HOST)
        found = bytearray()
        buffer = memoryview(bytearray(100))
        await connected.send([b"last"])
        with contextlib.suppress(ssl.SSLError):
            connected._ssl.unwrap()
        await connected.send([])
        # The peer goes on in plain text, and does not close.
        await client.send([bytes(100_000)])
        await secured.receive_until_eof(lambda: buffer, lambda count: found.extend(buffer[:count]))
        assert found == b"last"
        assert secured._incoming.pending < 200_000
        assert await secured.receive_into(buffer) == 0


@pytest.mark.parametrize("name", [".example", "a..b", "x" * 64 + ".example", "", "a\0b"])
async def test_a_host_name_that_no_certificate_has_closes_the_stream(name: str) -> None:
    async with pair() as (client, server):
        with pytest.raises(OSError, match="cannot be the host name of a certificate"):
            await connect_tls(client, client_context(), name)
        assert await end_of(server) in {0, ConnectionResetError}


async def test_a_final_dot_of_the_host_name_is_ignored() -> None:
    async with pair() as (client, server):
        secured = TlsTransport(server, server_context(), server_side=True)
        async with anyio.create_task_group() as group:
            group.start_soon(secured.handshake)
            await connect_tls(client, client_context(), f"{HOST}.")


async def test_an_output_that_fails_does_not_lose_what_was_read() -> None:
    async with secure_pair() as (client, server):
        await server.send([b"received"])

        class Broken(Spy):
            def send_nowait(self, _: Sequence[Buffer]) -> Sequence[Buffer]:
                raise ConnectionResetError("broken")

        client._transport = Broken(client._transport, bytearray())  # type: ignore[assignment]
        client._outgoing.write(b"an alert")
        assert await receive_exactly(client, 8) == b"received"


# --- the simulated network ---


def test_on_the_simulated_network() -> None:
    world = World(seed=3)
    server_runtime, client_runtime = world.runtime("10.0.0.1"), world.runtime("10.0.1.1")
    data = bytes(range(256)) * 2_000

    async def main() -> bytes:
        listener = await server_runtime.listen(Address("10.0.0.1", 9093))
        result = bytearray()

        async def serve() -> None:
            secured = TlsTransport(await listener.accept(), server_context(), server_side=True)
            await secured.handshake()
            result.extend(await receive_exactly(secured, len(data)))

        async with anyio.create_task_group() as group:
            group.start_soon(serve)
            plain = await client_runtime.connect(Address("10.0.0.1", 9093))
            client = await connect_tls(plain, client_context(), HOST)
            await client.send([data])
        await listener.aclose()
        return bytes(result)

    assert world.run(main, limit_s=60) == data


# --- hostile input ---


class Scripted:
    """A transport that delivers given bytes, and then the end of the stream."""

    peer = "hostile"

    def __init__(self, pieces: list[bytes]) -> None:
        self._pieces = pieces

    async def receive_into(self, buffer: memoryview) -> int:
        if not self._pieces:
            return 0
        piece = self._pieces.pop(0)[: len(buffer)]
        buffer[: len(piece)] = piece
        return len(piece)

    def send_nowait(self, _: Sequence[Buffer]) -> Sequence[Buffer]:
        return ()

    async def send(self, _: Sequence[Buffer]) -> None:
        return None

    def abort(self) -> None:
        return None

    async def aclose(self) -> None:
        return None


RECORD = st.builds(
    lambda kind, body: bytes([kind, 3, 3]) + len(body).to_bytes(2, "big") + body,
    st.sampled_from([20, 21, 22, 23, 24]),
    st.binary(max_size=60),
)


@settings(deadline=None)
@given(
    pieces=st.lists(st.binary(min_size=1, max_size=200) | RECORD, max_size=6),
    server_side=st.booleans(),
)
def test_hostile_bytes_end_in_an_os_error(pieces: list[bytes], server_side: bool) -> None:
    context = SERVER if server_side else CLIENT
    name = None if server_side else HOST
    stream = Scripted(pieces)
    secured = TlsTransport(stream, context, name, server_side=server_side)  # type: ignore[arg-type]
    with pytest.raises(OSError, match=r".+"):
        anyio.run(secured.handshake)


SERVER, CLIENT = server_context(), client_context()
