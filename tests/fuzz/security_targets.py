"""Targets for the SASL machines and for the TLS transport.

The input of a SASL target is the peer's tokens, separated by `TOKEN_SEPARATOR`. The input of a TLS
target says at which point hostile bytes take part in a connection with an honest peer: see
`Tampering`.
"""

from __future__ import annotations

import base64
import contextlib
import hashlib
import hmac
import ssl
from collections.abc import Callable, Coroutine, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, partial
from typing import Any, Self

import trustme

from aiokafkawire.errors import AuthenticationFailed
from aiokafkawire.runtime import Buffer
from aiokafkawire.runtime.tls_transport import READ_BYTES, TlsTransport
from aiokafkawire.security import (
    ClientMechanism,
    CredentialsRefused,
    OAuthBearerClient,
    OAuthBearerServer,
    OAuthBearerToken,
    PlainClient,
    PlainServer,
    SaltedPasswords,
    ScramClient,
    ScramCredential,
    ScramServer,
    Secret,
    ServerMechanism,
    TokenRefused,
)
from tests.wire.fuzz import Broken

__all__ = ("SECURITY_TARGETS", "Refused", "replayed_flights", "security_beginnings")


class Refused(Exception):
    """An input was refused by an error of the documented kind."""


# --- SASL ---

USER, PASSWORD = "bob", "hunter2"
CLIENT_NONCE, SERVER_NONCE = "rOprNGfwEbeRWgbNEkqO", "hvYDpWUa2RaTCAfuxFIlj"
SCRAM = "SCRAM-SHA-256"
SALT, ITERATIONS = b"salt of bob", 4_096

TOKEN_SEPARATOR = b"\xfe"
"""Never part of UTF-8."""

MAX_ANSWER_BYTES_PER_BYTE, ANSWER_ALLOWANCE_BYTES = 4, 1_024


class QuickSaltedPasswords(SaltedPasswords):
    """Replaces PBKDF2, which would take all the time."""

    def get(self, algorithm: str, password: Secret, salt: bytes, iterations: int) -> bytes:
        if (salt, iterations) == (SALT, ITERATIONS):
            return _salted_password()
        return hmac.digest(password.reveal().encode(), b"%b/%d" % (salt, iterations), algorithm)


@cache
def _salted_password() -> bytes:
    return hashlib.pbkdf2_hmac("sha256", PASSWORD.encode(), SALT, ITERATIONS)


@cache
def _credential() -> ScramCredential:
    return ScramCredential.from_password(SCRAM, Secret(PASSWORD), SALT, ITERATIONS)


def _credential_of(name: str, is_token: bool) -> tuple[str, ScramCredential] | None:
    return (name, _credential()) if name == USER and not is_token else None


def _validate(token: Secret, _: Mapping[str, str]) -> str:
    if token.reveal() != PASSWORD:
        raise TokenRefused
    return USER


CLIENTS: Mapping[str, Callable[[], ClientMechanism]] = {
    "plain_client": lambda: PlainClient(USER, Secret(PASSWORD)),
    "scram_client": lambda: ScramClient(
        SCRAM, USER, Secret(PASSWORD), CLIENT_NONCE, QuickSaltedPasswords()
    ),
    "oauthbearer_client": lambda: OAuthBearerClient(OAuthBearerToken(Secret(PASSWORD))),
}

SERVERS: Mapping[str, Callable[[], ServerMechanism]] = {
    "plain_server": lambda: PlainServer({USER: Secret(PASSWORD)}.get),
    "scram_server": lambda: ScramServer(SCRAM, _credential_of, SERVER_NONCE),
    "oauthbearer_server": lambda: OAuthBearerServer(_validate),
}


def _run_client(name: str, raw: bytes) -> None:
    """Give tokens of a broker to a client, which must not accept one without the password."""
    client = CLIENTS[name]()
    sent, received = [client.first()], list[bytes]()
    for token in raw.split(TOKEN_SEPARATOR):
        received.append(token)
        client.blocks(token)
        try:
            answer = client.next(token)
        except AuthenticationFailed as error:
            _check_error(error)
            raise Refused from error
        if answer is None:
            if name == "scram_client":
                _, signature = _proof_and_signature(*sent[:1], received[0], sent[1])
                if _attribute(received[1], 0, b"v") != signature:
                    raise Broken(f"the client accepts {received}")
            return
        _check_size(answer, token)
        sent.append(answer)
    raise Refused


def _run_server(name: str, raw: bytes) -> None:
    """Give tokens of a client to a broker, which must not admit one without the password."""
    server = SERVERS[name]()
    received, sent = list[bytes](), list[bytes]()
    for token in raw.split(TOKEN_SEPARATOR):
        received.append(token)
        try:
            answer = server.next(token)
        except CredentialsRefused as error:
            _check_error(error)
            if server.is_complete or server.principal is not None:
                raise Broken(f"{name} admits {server.principal!r} after a refusal") from error
            raise Refused from error
        if server.is_complete:
            proves = PASSWORD.encode() in token
            if name == "scram_server":
                proof, _ = _proof_and_signature(received[0], sent[0], token)
                proves = _attribute(token, -1, b"p") == proof
            if server.principal != USER or not proves:
                raise Broken(f"{name} admits {server.principal!r} for {received}")
            return
        _check_size(answer, token)
        sent.append(answer)
    raise Refused


def _proof_and_signature(
    client_first: bytes, server_first: bytes, client_final: bytes
) -> tuple[bytes, bytes]:
    """Compute the client's proof and the server's signature from the messages, as RFC 5802 does."""
    salt, iterations = _attribute(server_first, 1, b"s"), server_first.split(b",")[2][2:]
    salted = QuickSaltedPasswords().get("sha256", Secret(PASSWORD), salt, int(iterations))
    bare = client_first.split(b",", 2)[2]
    signed = b",".join((bare, server_first, client_final.rpartition(b",p=")[0]))
    client_key = hmac.digest(salted, b"Client Key", "sha256")
    stored_key = hashlib.sha256(client_key).digest()
    mask = hmac.digest(stored_key, signed, "sha256")
    proof = bytes(one ^ other for one, other in zip(client_key, mask, strict=True))
    return proof, hmac.digest(hmac.digest(salted, b"Server Key", "sha256"), signed, "sha256")


def _attribute(message: bytes, position: int, name: bytes) -> bytes | None:
    found, _, value = message.split(b",")[position].partition(b"=")
    return base64.b64decode(value) if found == name else None


def _check_error(error: Exception) -> None:
    if PASSWORD in f"{error}{error!r}":
        raise Broken(f"the error shows the password: {error!r}") from error


def _check_size(answer: bytes, token: bytes) -> None:
    if len(answer) > MAX_ANSWER_BYTES_PER_BYTE * len(token) + ANSWER_ALLOWANCE_BYTES:
        raise Broken(f"{len(answer)} bytes answer {len(token)}")


def _exchange(mechanism: str) -> tuple[bytes, bytes]:
    """Return the broker's and the client's tokens of an authentication that succeeds."""
    client, server = CLIENTS[f"{mechanism}_client"](), SERVERS[f"{mechanism}_server"]()
    token: bytes | None = client.first()
    sent, received = list[bytes](), list[bytes]()
    while token is not None:
        sent.append(token)
        received.append(server.next(token))
        token = client.next(received[-1])
    return TOKEN_SEPARATOR.join(received), TOKEN_SEPARATOR.join(sent)


# --- TLS ---

HOST = "broker.example"
PLAINTEXT = bytes(range(256)) * 6
"""Sent by the honest peer after the handshake, in two TLS records."""

MAX_PENDING_BYTES = 2 * READ_BYTES
"""Ciphertext that may wait for OpenSSL."""

HEADER_BYTES = 4
TLS_1_2, REPLACE, INSERT, NO_PEER = 1, 2, 4, 8


@cache
def _contexts(old: bool) -> tuple[ssl.SSLContext, ssl.SSLContext]:
    """Return the contexts of a client and of a server, which trust each other."""
    authority = trustme.CA(key_type=trustme.KeyType.ECDSA)
    client = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.configure_trust(client)
    authority.issue_cert(HOST).configure_cert(server)
    if old:
        server.maximum_version = ssl.TLSVersion.TLSv1_2
    return client, server


@dataclass(frozen=True, slots=True)
class Tampering:
    """The change of one flight of the honest peer.

    The first byte of an input has the flags `TLS_1_2`, `REPLACE`, `INSERT` and `NO_PEER` (hostile
    bytes are all that arrives) and, in its high bits, the size of the pieces that arrive. Then come
    the number of the flight, and the offset in it, in units of four bytes, that the hostile bytes
    are written to. Without `REPLACE` and `INSERT` they overwrite what is there; with both, the
    flight ends there and nothing follows.
    """

    flags: int
    flight: int
    offset: int
    hostile: bytes

    @classmethod
    def parse(cls, raw: bytes) -> Self:
        return cls(raw[0], raw[1] % 4, int.from_bytes(raw[2:4]) % 2_048, raw[HEADER_BYTES:])

    def apply(self, number: int, flight: bytes) -> bytes:
        if number != self.flight:
            return flight
        start, rest = flight[: self.offset], flight[self.offset :]
        if self.flags & INSERT and self.flags & REPLACE:
            return start + self.hostile
        if self.flags & INSERT:
            return start + self.hostile + rest
        if self.flags & REPLACE:
            return self.hostile
        return start + self.hostile + rest[len(self.hostile) :]


class TamperedTransport:
    """A transport without a network: an honest peer of OpenSSL, and hostile bytes. Never waits."""

    peer = "hostile"

    def __init__(self, tampering: Tampering, *, server_side: bool) -> None:
        client, server = _contexts(bool(tampering.flags & TLS_1_2))
        self._tampering = tampering
        self._piece = (1, 7, 100, READ_BYTES)[tampering.flags >> 4 & 3]
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._honest = (client if server_side else server).wrap_bio(
            self._incoming,
            self._outgoing,
            server_side=not server_side,
            server_hostname=HOST if server_side else None,
        )
        self._arrives = tampering.hostile if tampering.flags & NO_PEER else b""
        self._is_shaken, self._has_failed = False, bool(tampering.flags & NO_PEER)
        self._flights = 0
        self.secured: TlsTransport | None = None

    async def receive_into(self, buffer: memoryview) -> int:
        assert self.secured is not None
        if self.secured._incoming.pending > MAX_PENDING_BYTES:
            raise Broken(f"{self.secured._incoming.pending} bytes of ciphertext wait")
        if not self._arrives and not self._has_failed:
            self._run_peer()
        count = min(len(buffer), len(self._arrives), self._piece)
        buffer[:count], self._arrives = self._arrives[:count], self._arrives[count:]
        return count

    async def receive_until_eof(
        self, get_buffer: Callable[[], memoryview], on_received: Callable[[int], None]
    ) -> None:
        while count := await self.receive_into(get_buffer()):
            on_received(count)

    def send_nowait(self, buffers: Sequence[Buffer]) -> Sequence[Buffer]:
        for buffer in buffers:
            self._incoming.write(buffer)
        return ()

    async def send(self, buffers: Sequence[Buffer]) -> None:
        self.send_nowait(buffers)

    def abort(self) -> None:
        return None

    async def aclose(self) -> None:
        return None

    def _run_peer(self) -> None:
        """Let the peer answer what it got; after the handshake it sends, and closes."""
        try:
            if self._is_shaken:
                self._has_failed = True
                return
            self._honest.do_handshake()
            self._is_shaken = True
            half = len(PLAINTEXT) // 2
            self._honest.write(PLAINTEXT[:half])
            self._honest.write(PLAINTEXT[half:])
            self._honest.unwrap()
        except (ssl.SSLWantReadError, ssl.SSLSyscallError):
            pass
        except ssl.SSLError:
            self._has_failed = True
        self._arrives = self._tampering.apply(self._flights, self._outgoing.read())
        self._flights += 1


def _run_tls(server_side: bool, raw: bytes) -> None:
    """Connect and read to the end. Whatever arrives, nothing but the peer's data may come out."""
    if len(raw) < HEADER_BYTES:
        return
    transport = TamperedTransport(Tampering.parse(raw), server_side=server_side)
    context = _contexts(bool(raw[0] & TLS_1_2))[server_side]
    name = None if server_side else HOST
    secured = TlsTransport(transport, context, name, server_side=server_side)  # type: ignore[arg-type]
    transport.secured = secured
    received = bytearray()
    buffer = memoryview(bytearray(4_096))

    async def use() -> None:
        await secured.handshake()
        if count := await secured.receive_into(buffer):
            received.extend(buffer[:count])
            await secured.receive_until_eof(
                lambda: buffer, lambda count: received.extend(buffer[:count])
            )

    try:
        _finish(use())
    except OSError as error:
        raise Refused from error
    finally:
        if received != PLAINTEXT[: len(received)]:
            raise Broken(f"{len(received)} bytes that the peer has not sent")
        with contextlib.suppress(OSError):
            secured.send_nowait([b"x"])
        _finish(secured.aclose())
    if received != PLAINTEXT:
        raise Refused


def _finish(coroutine: Coroutine[Any, Any, None]) -> None:
    """Run a coroutine that never waits."""
    try:
        coroutine.send(None)
    except StopIteration:
        return
    raise Broken("the transport waits")


SECURITY_TARGETS: Mapping[str, Callable[[bytes], None]] = {
    **{name: partial(_run_client, name) for name in CLIENTS},
    **{name: partial(_run_server, name) for name in SERVERS},
    "tls_client": partial(_run_tls, False),
    "tls_server": partial(_run_tls, True),
}


def security_beginnings(name: str) -> Iterator[bytes]:
    """Yield inputs of authentications and connections that succeed."""
    mechanism, _, side = name.rpartition("_")
    if mechanism != "tls":
        broker, client = _exchange(mechanism)
        yield broker if side == "client" else client
        return
    for flags in (INSERT, INSERT | TLS_1_2, INSERT | 0x30, 0x10, 0x20 | TLS_1_2):
        for flight in range(3):
            yield bytes((flags, flight, 0, 100))


def replayed_flights(name: str) -> Iterator[bytes]:
    """Yield refused inputs of a TLS target: the first flight of another connection."""
    if not name.startswith("tls_"):
        return
    for flags in (NO_PEER, NO_PEER | TLS_1_2, REPLACE, REPLACE | TLS_1_2):
        yield bytes((flags, 0, 0, 0)) + _first_flight(flags, server_side=name == "tls_client")


def _first_flight(flags: int, *, server_side: bool) -> bytes:
    """Return what a client says first, or what a server answers: of another connection."""
    client_context, server_context = _contexts(bool(flags & TLS_1_2))
    hello, answer = ssl.MemoryBIO(), ssl.MemoryBIO()
    client = client_context.wrap_bio(ssl.MemoryBIO(), hello, server_hostname=HOST)
    server = server_context.wrap_bio(hello, answer, server_side=True)
    for peer in (client, server):
        with contextlib.suppress(ssl.SSLWantReadError):
            peer.do_handshake()
        if not server_side:
            break
    return (answer if server_side else hello).read()
