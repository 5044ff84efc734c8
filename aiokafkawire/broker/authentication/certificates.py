"""Certificates that a broker makes for itself and for its clients, for tests."""

from __future__ import annotations

import datetime
import ssl
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from aiokafkawire.errors import InvalidOption

if TYPE_CHECKING:
    import trustme

__all__ = ("Certificate", "CertificateAuthority")

EXPIRED_AFTER = datetime.datetime(2001, 1, 1, tzinfo=datetime.UTC)
NO_HOST = ("client.invalid",)
"""Host name in the certificate of a client. Java cannot read a certificate with an empty list."""

ISSUED_BEFORE_EXPIRY = datetime.timedelta(days=365)


@dataclass(frozen=True, slots=True, repr=False)
class Certificate:
    """A certificate and its private key in PEM format. The key is PKCS#8, as Java needs it."""

    certificate_pem: str
    key_pem: str

    def write(self, directory: str | Path, name: str = "client") -> tuple[Path, Path]:
        """Write `NAME.crt` and `NAME.key`.

        Args:
            directory: Existing directory.
            name: Name of the files without suffix.

        Returns:
            The paths of the certificate and of the key.
        """
        paths = Path(directory, f"{name}.crt"), Path(directory, f"{name}.key")
        for path, text in zip(paths, (self.certificate_pem, self.key_pem), strict=True):
            path.write_text(text)
        return paths

    def __repr__(self) -> str:
        return "Certificate(***)"


class CertificateAuthority:
    """A certificate authority for tests. Its keys exist in memory only.

    Needs the `trustme` library: `pip install 'aiokafkawire[testing]'`.

    Raises:
        InvalidOption: `trustme` is not installed.
    """

    def __init__(self) -> None:
        try:
            import trustme  # noqa: PLC0415
        except ImportError:
            raise InvalidOption(
                "certificates for tests need trustme: pip install 'aiokafkawire[testing]'"
            ) from None
        self._authority = trustme.CA(key_type=trustme.KeyType.ECDSA)

    @property
    def pem(self) -> str:
        """The certificate that clients and brokers must trust."""
        return self._authority.cert_pem.bytes().decode()

    def write(self, path: str | Path) -> None:
        """Write the certificate to a file."""
        Path(path).write_text(self.pem)

    def issue(
        self,
        common_name: str,
        *,
        hosts: Sequence[str] = NO_HOST,
        organization: str | None = None,
        organizational_unit: str | None = None,
        expired: bool = False,
    ) -> Certificate:
        """Issue a certificate.

        Args:
            common_name: Name of the client, the CN of its principal.
            hosts: Host names and addresses of a server.
            organization: The O of its principal.
            organizational_unit: The OU of its principal.
            expired: Whether the certificate has expired.
        """
        issued = self._issue(
            hosts, expired, common_name, organization=organization, unit=organizational_unit
        )
        chain = b"".join(part.bytes() for part in issued.cert_chain_pems)
        return Certificate(chain.decode(), _as_pkcs8(issued.private_key_pem.bytes()).decode())

    def configure_server(
        self, context: ssl.SSLContext, hosts: Sequence[str], *, expired: bool = False
    ) -> None:
        """Give a server's context a certificate for some host names and addresses."""
        self._issue(hosts, expired).configure_cert(context)

    def configure_trust(self, context: ssl.SSLContext) -> None:
        """Make a context trust certificates of this authority."""
        self._authority.configure_trust(context)

    def _issue(
        self,
        hosts: Sequence[str],
        expired: bool,
        common_name: str | None = None,
        *,
        organization: str | None = None,
        unit: str | None = None,
    ) -> trustme.LeafCert:
        validity: dict[str, Any] = {}
        if expired:
            validity = {
                "not_before": EXPIRED_AFTER - ISSUED_BEFORE_EXPIRY,
                "not_after": EXPIRED_AFTER,
            }
        return self._authority.issue_cert(
            *hosts,
            common_name=common_name,
            organization_name=organization,
            organization_unit_name=unit,
            **validity,
        )


def _as_pkcs8(key_pem: bytes) -> bytes:
    """Return a private key in the format PKCS#8; trustme's has the one of OpenSSL."""
    from cryptography.hazmat.primitives import serialization  # noqa: PLC0415

    key = serialization.load_pem_private_key(key_pem, None)
    return key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )
