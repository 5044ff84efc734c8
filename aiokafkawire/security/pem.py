"""Certificates and keys in memory: PEM text and PKCS12 files, for `ssl.SSLContext`."""

from __future__ import annotations

import os
import re
import secrets
import ssl
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from aiokafkawire.config import Secret
from aiokafkawire.errors import InvalidOption

__all__ = (
    "ENCRYPTED",
    "is_encrypted",
    "keystore_type",
    "load_pem_chain",
    "load_pkcs12_chain",
    "wrap_pem",
)

PKCS12_NEEDS = (
    "ssl_keystore_location needs the library cryptography: pip install 'aiokafkawire[tls]'; or"
    " convert the file: openssl pkcs12 -in FILE -out client.pem, and pass that as ssl_certfile"
)

JKS_MAGIC = b"\xfe\xed\xfe\xed"
PEM_MAGIC = b"-----BEGIN"
DER_SEQUENCE, DER_LONG = b"0", b"\x80"

ENCRYPTED = "ENCRYPTED"
"""What the PEM text of an encrypted key has: in its first line, or in a header of older ones."""

LINE = 64
"""Characters of a line of PEM (RFC 7468)."""

_BLOCK = re.compile(
    r"\s*-----BEGIN (?P<kind>[A-Z0-9 ]+)-----\s*(?P<base64>[A-Za-z0-9+/=\s]+?)\s*"
    r"-----END (?P=kind)-----\s*"
)


def keystore_type(path: str) -> str | None:
    """Return "JKS" or "PKCS12" for a file that looks like one, None for others."""
    try:
        with Path(path).open("rb") as file:
            start = file.read(len(JKS_MAGIC))
    except OSError:
        return None
    if start == JKS_MAGIC:
        return "JKS"
    return "PKCS12" if start[:1] == DER_SEQUENCE and start[1:2] >= DER_LONG else None


def is_encrypted(path: str) -> bool:
    """Return True if a PEM file has an encrypted key."""
    try:
        return ENCRYPTED.encode() in Path(path).read_bytes()
    except OSError:
        return False


def wrap_pem(text: str) -> str:
    """Return PEM text with lines of the usual length; options on one line have spaces instead."""

    def wrap(match: re.Match[str]) -> str:
        data = "".join(match["base64"].split())
        lines = [data[at : at + LINE] for at in range(0, len(data), LINE)]
        kind = match["kind"]
        return "\n".join(["", f"-----BEGIN {kind}-----", *lines, f"-----END {kind}-----", ""])

    return _BLOCK.sub(wrap, text)


def load_pem_chain(context: ssl.SSLContext, pem: Secret, password: Secret | None) -> None:
    """Load a certificate with its chain and its key.

    Raises:
        ssl.SSLError: The text has no certificate, no key, or a key of another certificate, or the
            password is wrong.
    """
    # OpenSSL asks on the terminal for a password unless it gets one.
    revealed = "" if password is None else password.reveal()
    with _as_file(pem.reveal().encode()) as path:
        context.load_cert_chain(path, password=lambda: revealed)


def load_pkcs12_chain(context: ssl.SSLContext, path: str, password: Secret | None) -> None:
    """Load certificate, chain and key of a PKCS12 file. Needs the library `cryptography`.

    Raises:
        InvalidOption: The file cannot be read, or the library is not installed.
    """
    try:
        from cryptography.hazmat.primitives import serialization  # noqa: PLC0415
        from cryptography.hazmat.primitives.serialization import pkcs12  # noqa: PLC0415
    except ImportError:
        raise InvalidOption(PKCS12_NEEDS) from None
    try:
        data = Path(path).read_bytes()
    except OSError as error:
        raise _unusable(path, error.strerror or str(error)) from None
    if keystore_type(path) == "JKS":
        raise _unusable(
            path,
            f"it is a JKS file; convert it: keytool -importkeystore -srckeystore {path}"
            f" -destkeystore {path}.p12 -deststoretype PKCS12",
        )
    if data.startswith(PEM_MAGIC):
        raise _unusable(path, "it is a PEM file; pass it as ssl_certfile")
    try:
        key, certificate, others = pkcs12.load_key_and_certificates(
            data, None if password is None else password.reveal().encode()
        )
    except ValueError:
        hint = "ssl_keystore_password is missing" if password is None else "wrong password"
        raise _unusable(path, f"{hint}, or no PKCS12 file") from None
    if key is None or certificate is None:
        raise _unusable(path, "it has no key with a certificate")
    # The key is encrypted for the moment in which OpenSSL reads it from a file.
    once = Secret(secrets.token_urlsafe())
    encoding = serialization.Encoding.PEM
    pem = key.private_bytes(
        encoding,
        serialization.PrivateFormat.PKCS8,
        serialization.BestAvailableEncryption(once.reveal().encode()),
    )
    for each in (certificate, *others):
        pem += each.public_bytes(encoding)
    try:
        load_pem_chain(context, Secret(pem.decode()), once)
    except ssl.SSLError as error:
        raise _unusable(path, error.reason or str(error)) from None


def _unusable(path: str, reason: str) -> InvalidOption:
    return InvalidOption(f"ssl_keystore_location {path!r} cannot be used: {reason}")


@contextmanager
def _as_file(data: bytes) -> Iterator[str]:
    """Yield the path of a file with this content, because OpenSSL reads keys from files alone.

    It is in memory where the system can do that. Elsewhere it is a temporary file that only this
    user can read, and which is deleted at once.
    """
    if hasattr(os, "memfd_create") and Path("/proc/self/fd").is_dir():
        descriptor = os.memfd_create("pem")
        try:
            _write_all(descriptor, data)
            yield f"/proc/self/fd/{descriptor}"
        finally:
            os.close(descriptor)
        return
    descriptor, path = tempfile.mkstemp()  # mode 0600
    try:
        try:
            _write_all(descriptor, data)
        finally:
            os.close(descriptor)
        yield path
    finally:
        with suppress(OSError):
            Path(path).unlink()


def _write_all(descriptor: int, data: bytes) -> None:
    while data:
        data = data[os.write(descriptor, data) :]
