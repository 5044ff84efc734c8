"""TLS settings of a client, and what an error of OpenSSL means."""

from __future__ import annotations

import logging
import os
import ssl
from pathlib import Path

from aiokafkawire.config import ClientConfig, FilePath, Secret
from aiokafkawire.errors import InvalidOption, TlsError
from aiokafkawire.security.pem import (
    ENCRYPTED,
    is_encrypted,
    keystore_type,
    load_pem_chain,
    load_pkcs12_chain,
    wrap_pem,
)

__all__ = ("ClientTls", "tls_error")

logger = logging.getLogger("aiokafkawire.security")

UNKNOWN_AUTHORITY = (18, 19, 20, 21)
"""Verification codes of OpenSSL: self-signed, or an issuer is not known."""

NOT_YET_VALID, EXPIRED, WRONG_HOST, WRONG_ADDRESS = 9, 10, 62, 64

CLIENT_CERTIFICATE_ALERTS = {
    "SSLV3_ALERT_BAD_CERTIFICATE",
    "SSLV3_ALERT_CERTIFICATE_EXPIRED",
    "SSLV3_ALERT_CERTIFICATE_REVOKED",
    "SSLV3_ALERT_CERTIFICATE_UNKNOWN",
    "SSLV3_ALERT_UNSUPPORTED_CERTIFICATE",
    "TLSV13_ALERT_CERTIFICATE_REQUIRED",
    "TLSV1_ALERT_UNKNOWN_CA",
}

VERSION_REASONS = {
    "NO_PROTOCOLS_AVAILABLE",
    "TLSV1_ALERT_PROTOCOL_VERSION",
    "UNSUPPORTED_PROTOCOL",
    "WRONG_SSL_VERSION",
}

NO_TLS_REASONS = {"HTTP_REQUEST", "PACKET_LENGTH_TOO_LONG", "WRONG_VERSION_NUMBER"}


class ClientTls:
    """Builds the `ssl.SSLContext` of a client, again whenever one of its files has changed."""

    def __init__(self, config: ClientConfig) -> None:
        self._config = config
        files = (
            config.ssl_cafile,
            config.ssl_certfile,
            config.ssl_keyfile,
            config.ssl_keystore_location,
        )
        self._files = [Path(name) for name in files if name is not None]
        self._loaded_from: object = None
        self._context = config.ssl_context

    @property
    def context(self) -> ssl.SSLContext | None:
        """The current settings; None if they must be loaded, because the files have changed."""
        if self._config.ssl_context is None and self._file_states() != self._loaded_from:
            return None
        return self._context

    def load(self) -> ssl.SSLContext:
        """Return the settings from the files as they are now. Reads files.

        If changed files cannot be used, as when a certificate was replaced and its key will be in a
        moment, the earlier settings stay.

        Raises:
            InvalidOption: A file is missing or has other content than it should.
        """
        if self._config.ssl_context is not None:
            return self._config.ssl_context
        states = self._file_states()
        try:
            context = self._load()
        except InvalidOption as error:
            if self._context is None:
                raise
            logger.warning(
                "TLS files have changed, but cannot be used: %s; keeping those read before",
                error.reason,
            )
            context = self._context
        self._context, self._loaded_from = context, states
        return context

    def _load(self) -> ssl.SSLContext:
        config = self._config
        try:
            authorities = None if config.ssl_cadata is None else wrap_pem(config.ssl_cadata)
            context = ssl.create_default_context(cafile=config.ssl_cafile, cadata=authorities)
        except (OSError, ValueError) as error:
            option = "ssl_cadata" if config.ssl_cafile is None else "ssl_cafile"
            raise _unusable(option, _path(config.ssl_cafile), error, "certificates") from error
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        context.check_hostname = config.ssl_check_hostname
        if config.ssl_certfile is not None:
            self._load_certificate_files(context, os.fspath(config.ssl_certfile))
        elif config.ssl_certdata is not None:
            self._load_certificate_text(context, config.ssl_certdata)
        elif config.ssl_keystore_location is not None:
            password = _secret(config.ssl_keystore_password)
            load_pkcs12_chain(context, os.fspath(config.ssl_keystore_location), password)
        return context

    def _load_certificate_files(self, context: ssl.SSLContext, certfile: str) -> None:
        keyfile = _path(self._config.ssl_keyfile)
        try:
            context.load_cert_chain(certfile, keyfile, self._reveal_password)
        except (OSError, ValueError) as error:
            name = keyfile or certfile
            for path in self._files:
                if not path.is_file():
                    name = str(path)
            option = "ssl_keyfile" if name == keyfile else "ssl_certfile"
            if isinstance(error, ssl.SSLError) and is_encrypted(name):
                raise self._wrong_password(f"{option} {name!r}", error) from None
            raise _unusable(option, name, error, "a certificate and its key") from None

    def _load_certificate_text(self, context: ssl.SSLContext, certificate: str | Secret) -> None:
        texts = [_secret(certificate), _secret(self._config.ssl_keydata)]
        pem = "".join(wrap_pem(text.reveal()) for text in texts if text is not None)
        try:
            load_pem_chain(context, Secret(pem), _secret(self._config.ssl_password))
        except ssl.SSLError as error:
            option = "ssl_certdata" if self._config.ssl_keydata is None else "ssl_keydata"
            if ENCRYPTED in pem:
                raise self._wrong_password(option, error) from None
            raise _unusable(option, None, error, "a certificate and its key") from None

    def _wrong_password(self, what: str, error: ssl.SSLError) -> InvalidOption:
        """Return the error of an encrypted key; OpenSSL gives no reason for many of them."""
        reason = "the key is encrypted, and ssl_password is not its password"
        if self._config.ssl_password is None:
            reason = "the key is encrypted: ssl_password is missing"
        elif error.reason == "KEY_VALUES_MISMATCH":
            reason = "the key belongs to another certificate"
        return InvalidOption(f"{what} cannot be used: {reason}")

    def _reveal_password(self) -> str:
        """Return the password of the key. Without this, OpenSSL would ask on the terminal."""
        password = _secret(self._config.ssl_password)
        return "" if password is None else password.reveal()

    def _file_states(self) -> object:
        states = []
        for path in self._files:
            try:
                state = path.stat()
            except OSError:
                states.append((0, 0, 0))
            else:
                states.append((state.st_mtime_ns, state.st_size, state.st_ino))
        return states


def _secret(value: str | Secret | None) -> Secret | None:
    return Secret(value) if isinstance(value, str) else value


def _path(path: FilePath | None) -> str | None:
    return None if path is None else os.fspath(path)


def _unusable(option: str, value: str | None, error: Exception, content: str) -> InvalidOption:
    shown, form = ("", "text") if value is None else (f" {value!r}", "file")
    keystore = None if value is None else keystore_type(value)
    if keystore is not None:
        reason = f"it is a {keystore} file, not PEM; docs/security.md says how to convert it"
    elif isinstance(error, ssl.SSLError):
        reason = {
            "KEY_VALUES_MISMATCH": "the key belongs to another certificate",
        }.get(error.reason or "", f"no PEM {form} with {content} ({error.reason or error})")
    else:
        reason = getattr(error, "strerror", None) or str(error)
    return InvalidOption(f"{option}{shown} cannot be used: {reason}")


def tls_error(error: ssl.SSLError, host: str) -> TlsError:
    """Return the error of a handshake that OpenSSL or the broker has ended.

    Args:
        error: Error of OpenSSL, which has the broker's alert.
        host: Name of the broker that its certificate must have.
    """
    if isinstance(error, ssl.SSLCertVerificationError):
        return TlsError(_verification_text(error, host))
    reason = error.reason or str(error)
    if reason in CLIENT_CERTIFICATE_ALERTS:
        return TlsError(
            "the broker refused the client's certificate, or requires one"
            f" ({reason}): set ssl_certfile to one that the broker trusts"
        )
    if reason == "SSLV3_ALERT_HANDSHAKE_FAILURE":
        return TlsError(
            f"the broker ended the TLS handshake ({reason}): it requires a client certificate"
            " (ssl_certfile), or supports none of the client's ciphers"
        )
    if reason in VERSION_REASONS:
        return TlsError(
            f"client and broker have no version of TLS in common ({reason}); the client offers"
            " TLS 1.2 and later"
        )
    if reason in NO_TLS_REASONS:
        return TlsError(
            f"the listener does not speak TLS ({reason}): check security_protocol and the port"
        )
    return TlsError(f"the TLS handshake failed: {reason}")


def _verification_text(error: ssl.SSLCertVerificationError, host: str) -> str:
    code, text = error.verify_code, error.verify_message
    if code in {WRONG_HOST, WRONG_ADDRESS}:
        return (
            f"the broker's certificate is not for {host!r}: connect by a name in the certificate"
            " (bootstrap_servers, the broker's advertised.listeners)"
        )
    if code == EXPIRED:
        return "the broker's certificate has expired: renew it, or check this machine's clock"
    if code == NOT_YET_VALID:
        return "the broker's certificate is not valid yet: check this machine's clock"
    if code in UNKNOWN_AUTHORITY:
        return (
            f"the broker's certificate is not signed by a trusted authority ({text}): set"
            " ssl_cafile to that of the cluster"
        )
    return f"the broker's certificate was rejected: {text}"
