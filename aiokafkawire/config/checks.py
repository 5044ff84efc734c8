"""Checks and conversions of option values."""

from __future__ import annotations

import dataclasses
import inspect
import ipaddress
import os
import re
from collections.abc import Collection, Iterable, Mapping
from typing import Any

from aiokafkawire.config.secret import Secret, is_encodable
from aiokafkawire.errors import InvalidOption
from aiokafkawire.hooks.functions import invalid_hooks_text
from aiokafkawire.serialization import make_deserializer, make_serializer

__all__ = (
    "COMPRESSION_LEVELS",
    "MAX_TEXT_BYTES",
    "address_scheme",
    "check_acks",
    "check_field",
    "check_level",
    "check_number",
    "check_order",
    "check_text",
    "is_ip_address",
    "parse_address",
    "parse_bootstrap_servers",
    "reset_duration_ms",
)

DEFAULT_PORT = 9092
PLAINTEXT = "PLAINTEXT"
SECURITY_PROTOCOLS = (PLAINTEXT, "SSL", "SASL_PLAINTEXT", "SASL_SSL")
PEM_MARK = "-----BEGIN "
TOKEN_PROVIDER = "sasl_oauth_token_provider"
MAX_TEXT_BYTES = 32_767
"""Maximum size of a string in Kafka's protocol."""

CHOICE_HINTS: Mapping[str, str] = {
    "AWS-MSK-IAM": "use 'OAUTHBEARER', which MSK has on the same port; see docs/security.md",
    "TLS": "did you mean 'SSL'?",
}
"""What to use instead of values that other clients have."""

COMPRESSION_LEVELS = {"gzip": (1, 9), "lz4": (1, 17), "zstd": (-131_072, 22)}
"""Lowest and highest level of each codec, as in Kafka; the other codecs have no levels."""

MAX_HOST = 253
"""Characters of a host name (RFC 1035)."""

MAX_ACKS = 2**15 - 1
"""Highest `acks` in a Produce request, an int16."""

MAX_DURATION_MS = 2**53
"""Upper limit of a duration; it keeps timestamp arithmetic within 64 bits."""

_BY_DURATION = re.compile(
    r"by_duration:P(?=.)(?:([0-9]{1,18})D)?"
    r"(?:T(?=.)(?:([0-9]{1,18})H)?(?:([0-9]{1,18})M)?(?:([0-9]{1,18})(?:\.([0-9]{1,9}))?S)?)?",
    re.IGNORECASE,
)


def parse_bootstrap_servers(servers: str | Iterable[str]) -> tuple[str, ...]:
    """Split and check bootstrap servers: "host:port,host:port" or a list of addresses."""
    given: Any = servers.split(",") if isinstance(servers, str) else servers
    parts = list(given) if isinstance(given, Iterable) else [given]
    if isinstance(given, Mapping | bytes) or not all(isinstance(part, str) for part in parts):
        raise InvalidOption(
            f"bootstrap_servers must be 'host:port' or a list of them, not {servers!r:.80}"
        )
    cleaned = tuple(part.strip() for part in parts if part.strip())
    for server in cleaned:
        parse_address(server, SECURITY_PROTOCOLS)
    if not cleaned:
        raise InvalidOption("bootstrap_servers is empty: pass 'host:port' or a list of them")
    return cleaned


def address_scheme(server: str) -> str:
    """Return the protocol of an address such as "SASL_SSL://host:port", or an empty string."""
    return server.rpartition("://")[0].upper()


def parse_address(server: str, protocols: Collection[str] = (PLAINTEXT,)) -> tuple[str, int]:
    """Split "host", "host:port" or "[ipv6]:port"; the port defaults to 9092.

    One of the protocols may be in front, as in "SSL://host:port" of Kafka's listener settings.
    """
    scheme, sep, bare = server.rpartition("://")
    if sep and scheme.upper() not in protocols:
        raise InvalidOption(
            f"bootstrap server {server!r:.80} must be 'host:port', without {scheme + sep!r:.40}"
        )
    if bare.startswith("["):
        host, closed, port_text = bare[1:].partition("]")
        if not closed or port_text[:1] not in ("", ":"):
            raise InvalidOption(f"bootstrap server {server!r:.80} must be '[IPv6 address]:port'")
        port_text = port_text.removeprefix(":")
    elif bare.count(":") > 1:
        host, port_text = bare, ""
        if not is_ip_address(host):
            raise InvalidOption(
                f"bootstrap server {server!r:.80} must be 'host:port'; several of them are"
                " separated by commas"
            )
    else:
        host, _, port_text = bare.partition(":")
    if not 1 <= len(host) <= MAX_HOST or any(not _in_host(character) for character in host):
        raise InvalidOption(f"bootstrap server {server!r:.80} has no valid host")
    port_text = port_text or f"{DEFAULT_PORT}"
    if not re.fullmatch("0{0,5}[1-9][0-9]{0,4}", port_text) or int(port_text) > 65_535:
        raise InvalidOption(f"bootstrap server {server!r:.80} has no valid port (1 to 65535)")
    return host, int(port_text)


def _in_host(character: str) -> bool:
    """Return True if a host name can contain the character; international names are allowed."""
    return character.isprintable() and not character.isspace() and character != "/"


def is_ip_address(host: str) -> bool:
    """Return True if the host is an IP address."""
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True


def reset_duration_ms(policy: Any) -> int | None:
    """Return the duration of an `auto_offset_reset` policy in ms; None for others (KIP-1106).

    A duration is written as in ISO 8601, with a day of 24 hours: "by_duration:P1DT12H".
    """
    match = _BY_DURATION.fullmatch(policy) if isinstance(policy, str) else None
    if match is None:
        return None
    days, hours, minutes, seconds, fraction = (part or "0" for part in match.groups())
    whole_s = ((int(days) * 24 + int(hours)) * 60 + int(minutes)) * 60 + int(seconds)
    duration_ms = whole_s * 1_000 + int(fraction.ljust(3, "0")[:3])
    return duration_ms if duration_ms <= MAX_DURATION_MS else None


def check_field(field: dataclasses.Field[Any], value: Any) -> None:
    """Check a value against the declaration of its option.

    None is valid only if it is the default. Types are strict: a bool is not a number, and a number
    is not a bool.

    Raises:
        InvalidOption: The value has the wrong type or is out of range.
    """
    name, declared = field.name, field.metadata
    if value is None and field.default is None:
        return
    if "range" in declared:
        check_number(name, value, *declared["range"])
    elif "choices" in declared:
        allowed = declared["choices"]
        if not isinstance(value, str) or value not in allowed:
            raise InvalidOption(
                f"{name} must be one of {', '.join(map(repr, allowed))}, not {value!r:.80}"
                f"{_choice_hint(value, allowed)}"
            )
    elif "text" in declared:
        check_text(name, value, may_be_empty=field.default is not None)
    elif "path" in declared:
        check_path(name, value)
    elif "switch" in declared:
        if not isinstance(value, bool):
            raise InvalidOption(f"{name} must be True or False, not {value!r:.80}")
    elif "secret" in declared:
        check_secret(name, value, may_be_callable=declared["may_be_callable"])
        if declared["pem"]:
            _check_pem(name, value.reveal() if isinstance(value, Secret) else value)
    elif "pem" in declared:
        _check_pem(name, value)
    elif "instance" in declared:
        if not isinstance(value, declared["instance"]):
            expected = declared["instance"].__name__
            raise InvalidOption(f"{name} must be an {expected}, not {value!r:.80}")
    elif "serializer" in declared:
        _check_serializer(name, value)
    elif "hooks" in declared:
        if (text := invalid_hooks_text(value)) is not None:
            raise InvalidOption(f"{name} {text}")
    elif "callable" in declared and not callable(value):
        if name == TOKEN_PROVIDER:
            # Perhaps the token itself, which must not be shown.
            raise InvalidOption(
                f"{name} must be an async function that returns an OAuthBearerToken,"
                f" not {type(value).__name__}"
            )
        raise InvalidOption(f"{name} must be a function, not {value!r:.80}")


def _check_serializer(name: str, value: Any) -> None:
    is_deserializer = name.endswith("deserializer")
    if is_deserializer and inspect.iscoroutinefunction(value):
        raise InvalidOption(
            f"{name} must be a plain function; a handler of a Worker may have an async one"
        )
    try:
        (make_deserializer if is_deserializer else make_serializer)(value)
    except TypeError as error:
        raise InvalidOption(f"{name}: {error}") from None


def _choice_hint(value: Any, allowed: Collection[str]) -> str:
    """Return the end of an error message about a value that no choice equals."""
    if not isinstance(value, str):
        return ""
    meant = value.strip().upper().replace("_", "-")
    same = [one for one in allowed if one.upper().replace("_", "-") == meant]
    if same:
        return f"; did you mean {same[0]!r}?"
    return f"; {CHOICE_HINTS[meant]}" if meant in CHOICE_HINTS else ""


def check_number(name: str, value: Any, low: int, high: int) -> None:
    """Raise `InvalidOption` unless `value` is an int from `low` to `high`."""
    if isinstance(value, bool) or not isinstance(value, int):
        raise InvalidOption(f"{name} must be a whole number, not {value!r:.80}")
    if not low <= value <= high:
        limits = f"at least {low}" if value < low else f"at most {high}"
        raise InvalidOption(f"{name} must be {limits}, not {value}")


def check_text(name: str, value: Any, *, may_be_empty: bool = False) -> None:
    """Raise `InvalidOption` unless `value` is a string that fits into a request."""
    if not isinstance(value, str):
        # The bytes of a private key must not be shown.
        shown = "bytes" if isinstance(value, bytes | bytearray) else f"{value!r:.80}"
        raise InvalidOption(f"{name} must be a string, not {shown}")
    if not value and not may_be_empty:
        raise InvalidOption(f"{name} must not be empty; omit it for none")
    if not _is_encodable(value):
        raise InvalidOption(f"{name} must be UTF-8 text of at most {MAX_TEXT_BYTES} bytes")


def check_path(name: str, value: Any) -> None:
    """Raise `InvalidOption`, without the value, unless it is a path: it may be a private key."""
    text = os.fspath(value) if isinstance(value, os.PathLike) else value
    if not isinstance(text, str):
        raise InvalidOption(f"{name} must be a path, not {type(value).__name__}")
    check_text(name, text)


def check_secret(name: str, value: Any, *, may_be_callable: bool) -> None:
    """Raise `InvalidOption`, without the value, unless it is a usable secret."""
    if may_be_callable and callable(value):
        return
    if not isinstance(value, str | Secret):
        or_function = " or an async function" if may_be_callable else ""
        raise InvalidOption(f"{name} must be a string{or_function}, not {type(value).__name__}")
    if not value:
        raise InvalidOption(f"{name} must not be empty; omit it for none")
    if isinstance(value, str) and not is_encodable(value):
        raise InvalidOption(f"{name} must be UTF-8 text: it has a lone surrogate")


def _check_pem(name: str, value: Any) -> None:
    """Raise `InvalidOption`, without the value, unless it is text in PEM format."""
    if not isinstance(value, str) or PEM_MARK not in value or not value.isascii():
        of_file = name.replace("data", "file")
        raise InvalidOption(f"{name} must be text in PEM format; a file is {of_file}")


def _is_encodable(text: str) -> bool:
    """Return True if a request can contain the text."""
    return len(text.encode(errors="replace")) <= MAX_TEXT_BYTES and is_encodable(text)


def check_acks(acks: Any, api_version: str | None) -> None:
    """Raise `InvalidOption` for acks that no broker accepts.

    Only Kafka 0.8 accepts a number of replicas above 1, which requires an `api_version` of 0.8.
    """
    hint = ""
    if isinstance(acks, int) and not isinstance(acks, bool):
        of_kafka08 = api_version is not None and api_version.split(".")[:2] == ["0", "8"]
        if -1 <= acks <= (MAX_ACKS if of_kafka08 else 1):
            return
        if acks > 1 and not of_kafka08:
            hint = "; only Kafka 0.8 accepts more: set its release as api_version"
    elif isinstance(acks, str) and acks == "all":
        return
    raise InvalidOption(f"acks must be 'all', -1, 0 or 1, not {acks!r:.80}{hint}")


def check_level(codec: str, level: Any) -> None:
    """Raise `InvalidOption` for a compression level that the codec lacks."""
    if codec not in COMPRESSION_LEVELS:
        raise InvalidOption(f"compression_level: compression_type {codec!r} has no levels")
    low, high = COMPRESSION_LEVELS[codec]
    if not low <= level <= high:
        raise InvalidOption(
            f"compression_level of {codec} must be a whole number from {low} to {high},"
            f" not {level!r}"
        )


def check_order(config: object, low: str, high: str) -> None:
    """Raise `InvalidOption` if option `low` is above option `high`."""
    if getattr(config, low) > getattr(config, high):
        raise InvalidOption(
            f"{low} ({getattr(config, low)}) must not be above {high} ({getattr(config, high)})"
        )
