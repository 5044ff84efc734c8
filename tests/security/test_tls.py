"""TLS settings of a client from files, PEM text and PKCS12 files."""

from __future__ import annotations

import logging
import os
import ssl
import sys
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from aiokafkawire.config import ClientConfig, make_config
from aiokafkawire.errors import InvalidOption
from aiokafkawire.security import pem
from aiokafkawire.security.pem import wrap_pem
from aiokafkawire.security.tls import ClientTls

pytest.importorskip("trustme", reason="trustme is not installed")
serialization = pytest.importorskip("cryptography.hazmat.primitives.serialization")

from cryptography import x509  # noqa: E402
from cryptography.hazmat.primitives.serialization import pkcs12  # noqa: E402

from aiokafkawire.broker import CertificateAuthority  # noqa: E402

SECRET = "only-the-tests-know-this-secret"

AUTHORITY = CertificateAuthority()
ALICE = AUTHORITY.issue("alice")
BOB = AUTHORITY.issue("bob")


def tls(**options: Any) -> ClientTls:
    given = {"bootstrap_servers": "h:1", "security_protocol": "SSL", **options}
    return ClientTls(make_config(ClientConfig, given))


def encrypted(key: str) -> str:
    loaded = serialization.load_pem_private_key(key.encode(), None)
    encryption = serialization.BestAvailableEncryption(SECRET.encode())
    form = serialization.PrivateFormat.PKCS8
    made: bytes = loaded.private_bytes(serialization.Encoding.PEM, form, encryption)
    return made.decode()


def keystore(path: Path, password: str | None = SECRET) -> str:
    key: Any = serialization.load_pem_private_key(ALICE.key_pem.encode(), None)
    certificates = x509.load_pem_x509_certificates(ALICE.certificate_pem.encode())
    authority = x509.load_pem_x509_certificate(AUTHORITY.pem.encode())
    encryption = (
        serialization.NoEncryption()
        if password is None
        else serialization.BestAvailableEncryption(password.encode())
    )
    path.write_bytes(
        pkcs12.serialize_key_and_certificates(b"a", key, certificates[0], [authority], encryption)
    )
    return str(path)


def client_principal(context: ssl.SSLContext) -> str | None:
    """Return the common name that a server sees in a handshake in memory."""
    server = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    AUTHORITY.configure_server(server, ["localhost"])
    AUTHORITY.configure_trust(server)
    server.verify_mode = ssl.CERT_REQUIRED
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    ours = context.wrap_bio(to_client, to_server, server_hostname="localhost")
    theirs = server.wrap_bio(to_server, to_client, server_side=True)
    open_sides = [ours, theirs]
    for _ in range(10):
        for side in list(open_sides):
            try:
                side.do_handshake()
            except ssl.SSLWantReadError:
                continue
            open_sides.remove(side)
    assert not open_sides
    subject: Any = theirs.getpeercert()
    return next(value for ((name, value),) in subject["subject"] if name == "commonName")


def options_of(kind: str, directory: Path) -> dict[str, Any]:
    """Return options that give the certificate of alice."""
    certificate, key = ALICE.write(directory)
    both = directory / "both.pem"
    both.write_text(ALICE.key_pem + ALICE.certificate_pem)
    locked = directory / "locked.key"
    locked.write_text(encrypted(ALICE.key_pem))
    one_line = {
        "ssl_certdata": " ".join(ALICE.certificate_pem.split("\n")),
        "ssl_keydata": " ".join(ALICE.key_pem.split("\n")),
    }
    kinds: dict[str, dict[str, Any]] = {
        "two files": {"ssl_certfile": str(certificate), "ssl_keyfile": str(key)},
        "one file": {"ssl_certfile": str(both)},
        "encrypted file": {
            "ssl_certfile": str(certificate),
            "ssl_keyfile": str(locked),
            "ssl_password": SECRET,
        },
        "two texts": {"ssl_certdata": ALICE.certificate_pem, "ssl_keydata": ALICE.key_pem},
        "one text": {"ssl_certdata": ALICE.certificate_pem + ALICE.key_pem},
        "texts on one line": one_line,
        "encrypted text": {
            "ssl_certdata": ALICE.certificate_pem,
            "ssl_keydata": encrypted(ALICE.key_pem),
            "ssl_password": SECRET,
        },
        "keystore": {
            "ssl_keystore_location": keystore(directory / "a.p12"),
            "ssl_keystore_password": SECRET,
        },
        "open keystore": {"ssl_keystore_location": keystore(directory / "b.p12", None)},
    }
    return kinds[kind]


KINDS = (
    "two files",
    "one file",
    "encrypted file",
    "two texts",
    "one text",
    "texts on one line",
    "encrypted text",
    "keystore",
    "open keystore",
)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("has_memfd", [True, False])
def test_a_certificate_is_loaded_and_leaves_no_file(
    kind: str, has_memfd: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(temporary))
    if not has_memfd:
        monkeypatch.delattr(os, "memfd_create", raising=False)
    options = options_of(kind, tmp_path)
    context = tls(ssl_cadata=AUTHORITY.pem, **options).load()
    assert client_principal(context) == "alice"
    assert context.minimum_version == ssl.TLSVersion.TLSv1_2
    assert not [*temporary.iterdir()]


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has other permissions")
@pytest.mark.parametrize("kind", ["two texts", "keystore"])
def test_a_temporary_key_is_for_this_user_alone(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delattr(os, "memfd_create", raising=False)
    seen: list[tuple[int, bytes]] = []
    load = ssl.SSLContext.load_cert_chain

    def spy(self: ssl.SSLContext, path: str, *args: Any, **named: Any) -> None:
        seen.append((Path(path).stat().st_mode & 0o777, Path(path).read_bytes()))
        load(self, path, *args, **named)

    monkeypatch.setattr(ssl.SSLContext, "load_cert_chain", spy)
    tls(**options_of(kind, tmp_path)).load()
    ((mode, content),) = seen
    assert mode == 0o600
    # The key of a keystore is encrypted even there.
    assert (b"ENCRYPTED" in content) is (kind == "keystore")


def refused(**options: Any) -> str:
    with pytest.raises(InvalidOption) as caught:
        tls(**options).load()
    shown = "".join(traceback.format_exception(caught.value))
    assert SECRET not in shown
    assert ALICE.key_pem.split("\n")[1] not in shown
    return str(caught.value)


def test_what_cannot_be_used_is_named(tmp_path: Path) -> None:
    certificate, key = map(str, ALICE.write(tmp_path))
    other = BOB.key_pem
    text = {"ssl_certdata": ALICE.certificate_pem}
    assert refused(**text, ssl_keydata=other) == (
        "ssl_keydata cannot be used: the key belongs to another certificate"
    )
    locked = text | {"ssl_keydata": encrypted(ALICE.key_pem)}
    assert refused(**locked, ssl_password="wrong") == (
        "ssl_keydata cannot be used: the key is encrypted, and ssl_password is not its password"
    )
    assert refused(**locked) == (
        "ssl_keydata cannot be used: the key is encrypted: ssl_password is missing"
    )
    assert refused(**text).startswith("ssl_certdata cannot be used: no PEM")
    store = keystore(tmp_path / "a.p12")
    named = f"ssl_keystore_location {store!r} cannot be used: "
    assert refused(ssl_keystore_location=store) == (
        f"{named}ssl_keystore_password is missing, or no PKCS12 file"
    )
    assert refused(ssl_keystore_location=store, ssl_keystore_password="x") == (
        f"{named}wrong password, or no PKCS12 file"
    )
    assert "it is a PEM file; pass it as ssl_certfile" in refused(ssl_keystore_location=key)
    missing = str(tmp_path / "missing")
    assert "No such file" in refused(ssl_keystore_location=missing)
    jks = tmp_path / "a.jks"
    jks.write_bytes(b"\xfe\xed\xfe\xed\0\0\0\2")
    assert f"it is a JKS file; convert it: keytool -importkeystore -srckeystore {jks}" in refused(
        ssl_keystore_location=str(jks)
    )
    for name, path, kind in (("ssl_cafile", jks, "JKS"), ("ssl_certfile", store, "PKCS12")):
        assert refused(**{name: str(path)}) == (
            f"{name} {str(path)!r} cannot be used: it is a {kind} file, not PEM; docs/security.md"
            " says how to convert it"
        )
    assert certificate


def test_a_keystore_without_a_key_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "trust.p12"
    authority = x509.load_pem_x509_certificate(AUTHORITY.pem.encode())
    none = serialization.NoEncryption()
    path.write_bytes(pkcs12.serialize_key_and_certificates(b"a", None, None, [authority], none))
    assert refused(ssl_keystore_location=str(path)).endswith("it has no key with a certificate")


def test_the_error_without_cryptography_has_the_command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = keystore(tmp_path / "a.p12")
    for name in [*sys.modules]:
        if name.startswith("cryptography.hazmat.primitives"):
            monkeypatch.setitem(sys.modules, name, None)
    assert refused(ssl_keystore_location=store) == pem.PKCS12_NEEDS
    assert "pip install 'aiokafkawire[tls]'" in pem.PKCS12_NEEDS


@pytest.mark.parametrize("kind", ["two files", "keystore"])
def test_a_replaced_certificate_is_used(
    kind: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    loaded = tls(ssl_cadata=AUTHORITY.pem, **options_of(kind, tmp_path))
    first = loaded.load()
    assert loaded.context is first
    changed = tmp_path / ("client.crt" if kind == "two files" else "a.p12")
    good = changed.read_bytes()
    changed.write_bytes(b"half")
    assert loaded.context is None
    with caplog.at_level(logging.WARNING):
        assert loaded.load() is first
    assert "keeping those read before" in caplog.text
    changed.write_bytes(good + (b"\n" if kind == "two files" else b""))
    os.utime(changed, ns=(1, 1))
    assert loaded.context is None
    second = loaded.load()
    assert second is not first
    assert client_principal(second) == "alice"


@pytest.mark.parametrize(
    "change",
    [
        lambda text: text,
        lambda text: " ".join(text.split("\n")),
        lambda text: text.replace("\n", "\r\n"),
        lambda text: "".join(text.split("\n")),
        lambda text: f"Subject: alice\n{text}",
    ],
)
def test_pem_has_lines_of_the_usual_length(change: Callable[[str], str]) -> None:
    text = ALICE.certificate_pem + ALICE.key_pem
    wrapped = wrap_pem(change(text))
    assert [line for line in wrapped.split("\n") if line and "Subject" not in line] == [
        line for line in text.split("\n") if line
    ]


def test_an_older_encrypted_key_stays_as_it_is() -> None:
    kind = "RSA PRIVATE KEY-----"
    text = f"-----BEGIN {kind}\nProc-Type: 4,ENCRYPTED\n\nAAAA\n-----END {kind}\n"
    assert wrap_pem(text) == text
