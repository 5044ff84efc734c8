"""TLS over any transport: asyncio's, uvloop's, trio's and the simulated network's.

OpenSSL works on two memory buffers (`ssl.MemoryBIO`), so the code, the errors and the tests are the
same everywhere. Kafka's frames carry their length: a stream that ends without close_notify is an
ordinary end of stream.
"""

from __future__ import annotations

import contextlib
import errno
import ssl
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, cast

import anyio

from aiokafkawire.runtime.interfaces import Buffer, Transport

__all__ = ("TlsTransport", "connect_tls")

READ_BYTES = 256 * 1024
"""Ciphertext that is read at once."""

ENCRYPTED_PIECE_BYTES = 64 * 1024
"""Plaintext that is encrypted before the system is asked to take the result."""

FLUSH: Buffer = b""
"""Returned by `send_nowait` in place of ciphertext that the system did not take."""


class _CloseNotify(Exception):
    """The peer has ended the TLS stream."""


class TlsTransport:
    """A `Transport` that encrypts what another one carries. Call `handshake` first.

    Args:
        transport: The connected stream. The `TlsTransport` owns it.
        context: Certificates and settings.
        server_hostname: Name that the server's certificate must have; None for the server's side.
        server_side: Whether this end accepted the connection.
    """

    def __init__(
        self,
        transport: Transport,
        context: ssl.SSLContext,
        server_hostname: str | None = None,
        *,
        server_side: bool = False,
    ) -> None:
        self._transport = transport
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._ssl = context.wrap_bio(
            self._incoming,
            self._outgoing,
            server_side=server_side,
            server_hostname=server_hostname,
        )
        self._ciphertext = memoryview(bytearray(READ_BYTES))
        self._unsent: Sequence[Buffer] = ()
        self._sending = False

    @property
    def peer(self) -> str:
        return self._transport.peer

    @property
    def version(self) -> str | None:
        """Protocol version, such as `TLSv1.3`."""
        return self._ssl.version()

    def peer_certificate(self) -> dict[str, Any] | None:
        """Return the peer's verified certificate as `ssl.SSLSocket.getpeercert` does."""
        return self._ssl.getpeercert()

    async def handshake(self, checkpoint: Callable[[], Awaitable[None]] | None = None) -> None:
        """Negotiate keys and verify the peer.

        With TLS 1.3 a server refuses a client's certificate after this, with the first read.

        Args:
            checkpoint: Awaited before each step, which takes about 1 ms; none by default.

        Raises:
            ssl.SSLError: The peer is not trusted, does not trust us, or does not speak TLS.
            OSError: The connection was lost.
        """
        while True:
            try:
                if checkpoint is not None:
                    await checkpoint()
                self._ssl.do_handshake()
                break
            except ssl.SSLWantReadError:
                await self._flush()
                await self._feed()
            except ssl.SSLError:
                # The alert names the reason to the peer.
                with contextlib.suppress(OSError):
                    await self._flush()
                raise
        await self._flush()

    async def receive_into(self, buffer: memoryview) -> int:
        while (count := self._decrypt(buffer)) is None:
            if not (received := await self._transport.receive_into(self._ciphertext)):
                return 0
            self._incoming.write(self._ciphertext[:received])
        return count

    async def receive_until_eof(
        self, get_buffer: Callable[[], memoryview], on_received: Callable[[int], None]
    ) -> None:
        incoming, stream = self._incoming, self._ssl

        def decrypt_all() -> None:
            # SSL_read returns one TLS record at a time, at most 16 KiB.
            while count := self._decrypt(get_buffer()):
                on_received(count)
                if not (incoming.pending or stream.pending()):
                    return  # instead of a costly SSLWantReadError
            if count == 0:
                raise _CloseNotify

        def on_ciphertext(count: int) -> None:
            incoming.write(self._ciphertext[:count])
            decrypt_all()

        # What arrives after close_notify is not TLS any more.
        with contextlib.suppress(_CloseNotify):
            decrypt_all()
            await self._transport.receive_until_eof(lambda: self._ciphertext, on_ciphertext)

    def send_nowait(self, buffers: Sequence[Buffer]) -> Sequence[Buffer]:
        if self._unsent:
            return [FLUSH, *buffers]
        joined = _join(buffers)
        if 0 < len(joined) <= ENCRYPTED_PIECE_BYTES:
            self._ssl.write(joined)
            self._unsent = self._transport.send_nowait([self._outgoing.read()])
            return [FLUSH] if self._unsent else ()
        plaintext = _pieces(joined)
        for number, piece in enumerate(plaintext):
            self._ssl.write(piece)
            self._unsent = self._transport.send_nowait([self._outgoing.read()])
            if self._unsent:
                return [FLUSH, *plaintext[number + 1 :]]
        return ()

    async def send(self, buffers: Sequence[Buffer]) -> None:
        self._sending = True
        try:
            await self._flush()
            for piece in _pieces(_join(buffers)):
                self._ssl.write(piece)
                await self._flush()
        finally:
            self._sending = False

    def abort(self) -> None:
        self._transport.abort()

    async def aclose(self) -> None:
        if not self._sending and not self._unsent:
            # Send close_notify, without waiting for the peer's.
            with contextlib.suppress(OSError):
                self._ssl.unwrap()
            with contextlib.suppress(OSError):
                self._transport.send_nowait([self._outgoing.read()])
        await self._transport.aclose()

    def _decrypt(self, buffer: memoryview) -> int | None:
        """Return the number of bytes decrypted, 0 at the end of the stream, None for too little."""
        try:
            return cast("int", self._ssl.read(len(buffer), buffer))
        except ssl.SSLWantReadError:
            return None
        except (ssl.SSLZeroReturnError, ssl.SSLEOFError):
            return 0
        finally:
            # Responses to key updates, and alerts. A `send` in progress takes them along. A broken
            # stream shows with the next read or write; the result of this one must not be lost.
            if self._outgoing.pending and not self._sending and not self._unsent:
                with contextlib.suppress(OSError):
                    self._unsent = self._transport.send_nowait([self._outgoing.read()])

    async def _feed(self) -> None:
        count = await self._transport.receive_into(self._ciphertext)
        if not count:
            raise ConnectionResetError("the connection was closed during the TLS handshake")
        self._incoming.write(self._ciphertext[:count])

    async def _flush(self) -> None:
        """Send the ciphertext there is."""
        unsent, self._unsent = self._unsent, ()
        if unsent:
            await self._transport.send(unsent)
        while self._outgoing.pending:
            await self._transport.send([self._outgoing.read()])


async def connect_tls(
    transport: Transport,
    context: ssl.SSLContext,
    server_hostname: str,
    checkpoint: Callable[[], Awaitable[None]] | None = None,
) -> TlsTransport:
    """Return a TLS stream over a connected one, after the handshake; close that if it fails.

    Args:
        transport: The connected stream.
        context: Trusted authorities and the client's certificate.
        server_hostname: Host name or address that the certificate must have, as advertised.
        checkpoint: See `TlsTransport.handshake`.

    Raises:
        ssl.SSLError: See `TlsTransport.handshake`.
        OSError: The connection was lost, or the host name cannot stand in a certificate.
    """
    try:
        # A certificate has no final dot, which only ends the search of domains.
        made = TlsTransport(transport, context, server_hostname.removesuffix("."))
        await made.handshake(checkpoint)
    except BaseException as error:
        transport.abort()
        with anyio.CancelScope(shield=True):
            await transport.aclose()
        if isinstance(error, ValueError | TypeError) and not isinstance(error, OSError):
            raise OSError(
                errno.EINVAL, f"{server_hostname!a} cannot be the host name of a certificate"
            ) from error
        raise
    return made


def _join(buffers: Sequence[Buffer]) -> Buffer:
    """Join buffers: each would cost a TLS record."""
    return buffers[0] if len(buffers) == 1 else b"".join(buffers)


def _pieces(joined: Buffer) -> list[memoryview]:
    """Cut a large buffer: what the system does not take is kept in encrypted form."""
    whole = memoryview(joined)
    return [
        whole[start : start + ENCRYPTED_PIECE_BYTES]
        for start in range(0, len(whole), ENCRYPTED_PIECE_BYTES)
    ]
