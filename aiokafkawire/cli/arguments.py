"""Parsers of command-line values: offsets, delimiters, headers, client options.

They raise `InvalidOption` with a text that says which values are valid.
"""

from __future__ import annotations

import dataclasses
import logging
import os
import re
import types
import typing
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from enum import Enum
from pathlib import Path
from typing import Any

from aiokafkawire.cli.config_file import FileOption, read_file_options
from aiokafkawire.config import (
    ClientConfig,
    ConsumerConfig,
    ProducerConfig,
    Secret,
    check_field,
    make_config,
    option_hint,
    parse_bootstrap_servers,
    unknown_option_text,
)
from aiokafkawire.config.java_properties import (
    SAME_VALUES,
    SECRET_PROPERTIES,
    OAuthSettings,
    convert_security_properties,
    is_security_property,
)
from aiokafkawire.errors import InvalidOption

__all__ = (
    "CONFIG_VARIABLE",
    "SERVERS_VARIABLE",
    "OffsetArgument",
    "OffsetKind",
    "client_options",
    "environment_variable",
    "parse_assignments",
    "parse_delimiter",
    "parse_header",
    "parse_offset",
    "require_one_topic",
    "require_utf8",
    "unescape",
)

logger = logging.getLogger("aiokafkawire.cli")

ESCAPES = {
    "n": b"\n",
    "r": b"\r",
    "t": b"\t",
    "0": b"\0",
    "a": b"\a",
    "b": b"\b",
    "f": b"\f",
    "v": b"\v",
    "\\": b"\\",
}
TRUE = frozenset({"true", "yes", "on", "1"})
FALSE = frozenset({"false", "no", "off", "0"})
NULL_VALUES = frozenset({"none", "null", ""})
VARIABLE_PREFIX = "AIOKAFKAWIRE_"
"""Beginning of the environment variables of all options."""

SERVERS_VARIABLE = f"{VARIABLE_PREFIX}BOOTSTRAP_SERVERS"
CONFIG_VARIABLE = f"{VARIABLE_PREFIX}CONFIG"
REFUSED_TIMEOUT_MS = 5_000
"""Default of bootstrap_refused_timeout_ms: the address is probably wrong."""
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
MAX_INT64 = 2**63 - 1


class OffsetKind(Enum):
    """Kind of an offset on the command line."""

    BEGINNING = "beginning"
    END = "end"
    STORED = "stored"
    OFFSET = "an offset"
    FROM_TIME = "a time to start at"
    UNTIL_TIME = "a time to stop at"


@dataclass(frozen=True, slots=True)
class OffsetArgument:
    """Start or stop position in a partition.

    `number` is an offset, a count of records (back from END), or milliseconds since the epoch.
    """

    kind: OffsetKind
    number: int = 0


def parse_offset(text: str) -> OffsetArgument:
    """Parse the value of `-o`: beginning, end, stored, N, -N, s@TIME or e@TIME."""
    if text in {"beginning", "end", "stored"}:
        return OffsetArgument(OffsetKind(text))
    prefix, at, rest = text.partition("@")
    if at:
        kind = {"s": OffsetKind.FROM_TIME, "e": OffsetKind.UNTIL_TIME}.get(prefix)
        number = _parse_time_ms(rest)
    else:
        kind = OffsetKind.END if text.startswith("-") else OffsetKind.OFFSET
        number = _parse_digits(text.removeprefix("-"))
    if kind is not None and number is not None and 0 <= number <= MAX_INT64:
        return OffsetArgument(kind, number)
    raise InvalidOption(
        f"-o {text!r} is not an offset: give beginning, end, stored, N, -N (the last N), s@TIME"
        " (from a time, as 2026-11-24T10:00:00Z or in milliseconds since 1970) or e@TIME (until a"
        " time)"
    )


def _parse_digits(text: str) -> int | None:
    # A 64-bit number has at most 19 digits; int() is slow for very long ones.
    return int(text) if text.isascii() and text.isdigit() and len(text) <= 19 else None


def _parse_time_ms(text: str) -> int | None:
    """Parse milliseconds since the epoch or an ISO 8601 time, in UTC by default."""
    if (number := _parse_digits(text)) is not None:
        return number
    try:
        time = datetime.fromisoformat(text)
    except ValueError:
        return None
    if time.tzinfo is None:
        time = time.replace(tzinfo=UTC)
    # Round up: the search is for the first record at or after the time.
    return -((EPOCH - time) // timedelta(milliseconds=1))


def require_one_topic(option: str | None, arguments: Sequence[str], rule: str, usage: str) -> str:
    """Return the one topic that `-t` or the arguments name. Raises `InvalidOption`."""
    names = [*([] if option is None else [option]), *arguments]
    if not names:
        raise InvalidOption(f"the topic is missing: {usage}")
    if len(names) > 1:
        raise InvalidOption(f"{' and '.join(map(repr, names))} are given: {rule}")
    if not names[0]:
        raise InvalidOption("the topic must not be empty")
    require_utf8(names[0])
    return names[0]


def require_utf8(value: Any) -> None:
    """Raise `InvalidOption` unless the string, or each string of a tuple, is valid UTF-8."""
    if isinstance(value, str) and not value.isascii():
        try:
            value.encode()
        except UnicodeEncodeError:
            raise InvalidOption(f"{value!r:.80} is not UTF-8") from None
    elif isinstance(value, tuple):
        for each in value:
            require_utf8(each)


def unescape(text: str) -> bytes:
    r"""Replace \n, \t, \xNN and similar escapes; encode other text as UTF-8."""
    out = bytearray()
    rest = text
    while rest:
        before, backslash, rest = rest.partition("\\")
        out += before.encode("utf-8", "surrogateescape")
        if not backslash:
            break
        if rest[:1] == "x":
            digits, rest = rest[1:3], rest[3:]
            try:
                out += bytes.fromhex(digits)
            except ValueError:
                digits = ""
            if len(digits) != 2:
                raise InvalidOption(f"{text!r}: \\x must be followed by two hexadecimal digits")
        elif rest[:1] in ESCAPES and rest:
            out += ESCAPES[rest[0]]
            rest = rest[1:]
        else:
            raise InvalidOption(
                f"{text!r}: a backslash starts \\n, \\r, \\t, \\0 or \\xNN; write \\\\ for one"
            )
    return bytes(out)


def parse_delimiter(option: str, text: str) -> bytes:
    """Parse the value of `-D` or `-K`. Raises `InvalidOption` if it is empty."""
    delimiter = unescape(text)
    if not delimiter:
        raise InvalidOption(f"{option} must not be empty")
    return delimiter


def parse_header(text: str) -> tuple[str, bytes | None]:
    """Parse the value of `-H`: name=value, or a name alone for a null value."""
    name, equals, value = text.partition("=")
    if not name:
        raise InvalidOption(f"-H {text!r} has no name: give name=value")
    return name, value.encode("utf-8", "surrogateescape") if equals else None


def client_options(
    config_class: type[ClientConfig],
    assignments: Sequence[str],
    flags: dict[str, Any],
    defaults: dict[str, Any] | None = None,
    *,
    command_values: dict[str, Any] | None = None,
    config: Path | None = None,
) -> dict[str, Any]:
    """Merge all sources of options into the keyword arguments of a client.

    Option names are those of the config class; dots may replace underscores.

    Args:
        config_class: Config class of the client.
        assignments: Values of `-X`.
        flags: Values of other flags; they override `-X`. None means unset.
        defaults: Values with the lowest priority. If `default_api_timeout_ms` is the default,
            `bootstrap_refused_timeout_ms` has one too.
        command_values: Values set by the command; they override the environment and the file,
            and `-X` overrides them.
        config: Path of the `--config` file.

    Raises:
        InvalidOption: An option is unknown, a value is invalid, or no brokers are given.
    """
    _warn_of_unknown_variables()
    given = parse_assignments(config_class, assignments)
    _warn_of_secrets(config_class, assignments, given)
    explicit = {
        **({} if config is None else _read_config_file(config_class, config)),
        **_environment_values(config_class),
        **(command_values or {}),
        **given,
        **{name: value for name, value in flags.items() if value is not None},
    }
    options = {**(defaults or {}), **explicit}
    if "default_api_timeout_ms" in (defaults or {}).keys() - explicit.keys():
        # A user who sets it may wait for a broker that starts.
        options.setdefault("bootstrap_refused_timeout_ms", REFUSED_TIMEOUT_MS)
    if "bootstrap_servers" not in options:
        raise InvalidOption(
            f"brokers are missing: give -b HOST:PORT, {SERVERS_VARIABLE} in the environment, or"
            " bootstrap_servers in the file of --config"
        )
    make_config(config_class, options)
    return options


def parse_assignments(config_class: type[Any], assignments: Iterable[str]) -> dict[str, Any]:
    """Parse the values of `-X` into options; those of a client can have the names of Java or
    librdkafka for TLS and SASL. Raises `InvalidOption`."""
    hints = typing.get_type_hints(config_class)
    options: dict[str, Any] = {}
    properties: dict[str, str] = {}
    for assignment in assignments:
        given_name, text = _parse_assignment(assignment, error_prefix="-X ")
        if issubclass(config_class, ClientConfig) and is_security_property(given_name.lower()):
            properties[given_name.lower()] = text
            continue
        name = given_name.replace(".", "_")
        if name not in hints:
            others = f"; there are {', '.join(hints)}"
            raise InvalidOption(unknown_option_text(name, config_class, others))
        options[name] = _convert(name, text, hints[name])
    return options | convert_security_properties(properties, _make_token_provider)


def _make_token_provider(settings: OAuthSettings) -> Any:
    from aiokafkawire.oauth.properties import make_token_provider  # noqa: PLC0415 - it is rare

    return make_token_provider(settings)


def _warn_of_secrets(
    config_class: type[ClientConfig], assignments: Iterable[str], options: Mapping[str, Any]
) -> None:
    """Warn of the secrets among the values of `-X`, which are those options."""
    for field in dataclasses.fields(config_class):
        if "secret" in field.metadata and options.get(field.name) is not None:
            logger.warning(
                "%s of -X is visible to other users of this machine, in the list of processes:"
                " set %s in the environment, or write it to the file of --config",
                field.name,
                environment_variable(field.name),
            )
    if options.get("sasl_oauth_token_provider") is not None:
        given = {assignment.partition("=")[0].strip().lower() for assignment in assignments}
        for name in sorted(SECRET_PROPERTIES & given):
            logger.warning(
                "%s of -X is visible to other users of this machine, in the list of processes:"
                " write it to the file of --config",
                name,
            )


def _environment_values(config_class: type[ClientConfig]) -> dict[str, Any]:
    """Return the options of the client that are in the environment; an empty one is unset."""
    hints = typing.get_type_hints(config_class)
    options: dict[str, Any] = {}
    for field in dataclasses.fields(config_class):
        variable = environment_variable(field.name)
        text = os.environ.get(variable)
        if not text:
            continue
        try:
            options[field.name] = _convert(field.name, text, hints[field.name])
            check_field(field, options[field.name])
        except InvalidOption as error:
            raise InvalidOption(f"{variable} in the environment: {error}") from None
    return options


def _warn_of_unknown_variables() -> None:
    """Warn of variables that look like misspelt options; others are not for the command."""
    known = {"config"}
    for config_class in (ProducerConfig, ConsumerConfig):
        known |= {field.name for field in dataclasses.fields(config_class)}
    given = [name for name, text in os.environ.items() if name.startswith(VARIABLE_PREFIX) and text]
    for variable in sorted(given):
        name = variable.removeprefix(VARIABLE_PREFIX).lower()
        if name not in known and (hint := option_hint(name, sorted(known))):
            logger.warning("%s in the environment sets no option%s", variable, hint)


def environment_variable(name: str) -> str:
    """Return the environment variable of an option."""
    return f"{VARIABLE_PREFIX}{name.upper()}"


def _read_config_file(config_class: type[ClientConfig], path: Path) -> dict[str, Any]:
    """Read a file of options; skip options of other clients.

    Raises `InvalidOption` with the place in the file.
    """
    options: dict[str, Any] = {}
    properties: dict[str, FileOption] = {}
    for option in read_file_options(path):
        if is_security_property(option.name.lower()):
            properties[option.name.lower()] = option
            continue
        try:
            name, value = _convert_file_option(option.name, option.value)
        except InvalidOption as error:
            raise InvalidOption(f"{path}, {option.place}: {error}") from None
        options[name] = value
    options |= _convert_properties(path, properties)
    known = {field.name for field in dataclasses.fields(config_class)}
    return {name: value for name, value in options.items() if name in known}


def _convert_properties(path: Path, properties: Mapping[str, FileOption]) -> dict[str, Any]:
    """Convert security properties of a file. Raises `InvalidOption` with their place."""
    places = {name: option.place for name, option in properties.items()}
    try:
        options = convert_security_properties(
            {name: option.value for name, option in properties.items()}, _make_token_provider
        )
    except InvalidOption as error:
        where = f"{path}, {places[error.option]}" if error.option in places else f"{path}"
        raise InvalidOption(f"{where}: {error}") from None
    fields = {field.name: field for field in dataclasses.fields(ClientConfig)}
    for name, value in options.items():
        try:
            check_field(fields[name], value)
        except InvalidOption as error:
            of_name = (places[each] for each in places if SAME_VALUES.get(each) == name)
            place = next(of_name, places.get("sasl.jaas.config", ""))
            where = f"{path}, {place}" if place else f"{path}"
            raise InvalidOption(f"{where}: {error}") from None
    return options


def _convert_file_option(given_name: str, text: str) -> tuple[str, Any]:
    """Convert an option of any client. Raises `InvalidOption`."""
    name, text = given_name.replace(".", "_"), text.strip()
    known_names: list[str] = []
    for config_class in (ProducerConfig, ConsumerConfig):
        for field in dataclasses.fields(config_class):
            known_names.append(field.name)
            if field.name == name:
                value = _convert(name, text, typing.get_type_hints(config_class)[name])
                check_field(field, value)
                if name == "bootstrap_servers":
                    parse_bootstrap_servers(value)
                return name, value
    raise InvalidOption(
        f"unknown option {given_name!r}{option_hint(given_name, [*dict.fromkeys(known_names)])}"
    )


def _parse_assignment(text: str, *, error_prefix: str = "") -> tuple[str, str]:
    """Split option=value."""
    name, equals, value = text.partition("=")
    name = name.strip()
    if not equals or not name:
        # The rest can be a secret.
        shown = re.split(r"[\s:]", text, maxsplit=1)[0]
        raise InvalidOption(f"{error_prefix}{shown!r:.80} is not of the form option=value")
    return name, value.strip()


def _convert(name: str, text: str, hint: Any) -> Any:
    """Convert a text to the declared type of an option."""
    union = isinstance(hint, types.UnionType) or typing.get_origin(hint) is typing.Union
    kinds = typing.get_args(hint) if union else (hint,)
    lowered = text.lower()
    if Secret in kinds:
        return text
    if type(None) in kinds and lowered in NULL_VALUES:
        return None
    if bool in kinds:
        if lowered not in TRUE | FALSE:
            raise InvalidOption(f"{name} must be true or false, not {text!r:.80}")
        return lowered in TRUE
    choices = [value for kind in kinds for value in _literals(kind)]
    for choice in choices:
        if str(choice) == text:
            return choice
    if int in kinds:
        try:
            return int(text)
        except ValueError:
            *first, last = map(repr, choices) if choices else ["a whole number"]
            valid = f"{', '.join(first)} or {last}" if first else last
            raise InvalidOption(f"{name} must be {valid}, not {text!r:.80}") from None
    if str in kinds or choices:
        return text
    if any(typing.get_origin(kind) is Sequence for kind in kinds):
        return tuple(part.strip() for part in text.split(",") if part.strip())
    raise InvalidOption(f"{name} takes a Python object: it cannot be set here")


def _literals(kind: Any) -> tuple[Any, ...]:
    return typing.get_args(kind) if typing.get_origin(kind) is typing.Literal else ()
