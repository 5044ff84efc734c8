"""Certificates of the test servers and clients, made new for each run."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

import trustme
from cryptography import x509
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.serialization import pkcs12

STORE_PASSWORD = "changeit"
KEY_PASSWORD = "key-password"
HOSTS = ("localhost", "127.0.0.1")
OTHER_HOST = "kafka.example"


@dataclass(frozen=True, slots=True)
class Certificate:
    """Files of one certificate: PEM, and PKCS12 for brokers before 2.7."""

    chain: Path
    key: Path
    encrypted_key: Path
    """The key, encrypted with KEY_PASSWORD."""
    pem_store: Path
    """Key, certificate and authority in one file, as a PEM store of Kafka (KIP-651)."""
    pkcs12_store: Path


class Pki:
    """A certificate authority, what it issued, and another authority that nobody trusts.

    Args:
        folder: Existing folder for the files.
    """

    def __init__(self, folder: Path) -> None:
        now = datetime.now(UTC)
        over = {"not_before": now - timedelta(days=30), "not_after": now - timedelta(days=1)}
        alice = {"common_name": "alice", "organization_unit_name": "Dev"}
        alice |= {"organization_name": "Lab"}
        self._folder = folder
        self._authority = trustme.CA(organization_name="Lab")
        stranger = trustme.CA(organization_name="Another Lab")
        self.authority = folder / "authority.pem"
        self._authority.cert_pem.write_to_path(self.authority)
        self.other_authority = folder / "other-authority.pem"
        stranger.cert_pem.write_to_path(self.other_authority)
        self.trust_store = folder / "authority.p12"
        self.trust_store.write_bytes(
            pkcs12.serialize_java_truststore(
                [
                    pkcs12.PKCS12Certificate(
                        _certificates(self._authority.cert_pem)[0], b"authority"
                    )
                ],
                serialization.BestAvailableEncryption(STORE_PASSWORD.encode()),
            )
        )
        # Java takes no certificate with an empty list of names.
        email = "alice@lab.example"
        issue = self._authority.issue_cert
        self.server = self._write("server", issue(*HOSTS))
        self.wrong_host = self._write("wrong-host", issue(OTHER_HOST))
        self.expired = self._write("expired", issue(*HOSTS, **over))
        self.alice = self._write("alice", issue(email, **alice))
        self.expired_alice = self._write("expired-alice", issue(email, **alice, **over))
        self.mallory = self._write("mallory", stranger.issue_cert(email, common_name="mallory"))

    def _write(self, name: str, issued: trustme.LeafCert) -> Certificate:
        folder = self._folder
        made = Certificate(
            chain=folder / f"{name}.pem",
            key=folder / f"{name}.key",
            encrypted_key=folder / f"{name}.encrypted.key",
            pem_store=folder / f"{name}.store.pem",
            pkcs12_store=folder / f"{name}.p12",
        )
        key = serialization.load_pem_private_key(issued.private_key_pem.bytes(), None)
        form = serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8
        plain = key.private_bytes(*form, serialization.NoEncryption())
        chain = b"".join(blob.bytes() for blob in issued.cert_chain_pems)
        made.chain.write_bytes(chain)
        made.key.write_bytes(plain)
        made.encrypted_key.write_bytes(
            key.private_bytes(*form, serialization.BestAvailableEncryption(KEY_PASSWORD.encode()))
        )
        made.pem_store.write_bytes(plain + chain + self._authority.cert_pem.bytes())
        own, *rest = (each for blob in issued.cert_chain_pems for each in _certificates(blob))
        made.pkcs12_store.write_bytes(
            pkcs12.serialize_key_and_certificates(
                name.encode(),
                key,
                own,
                rest or None,
                serialization.BestAvailableEncryption(STORE_PASSWORD.encode()),
            )
        )
        return made


def _certificates(blob: trustme.Blob) -> list[x509.Certificate]:
    return x509.load_pem_x509_certificates(blob.bytes())
