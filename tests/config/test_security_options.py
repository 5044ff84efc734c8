"""Options of TLS and SASL: what is refused, with which text, and that no secret is shown."""

from __future__ import annotations

import copy
import dataclasses
import pickle
import re
import ssl
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from aiokafkawire import Consumer, Producer
from aiokafkawire.config import ClientConfig, ConsumerConfig, ProducerConfig, Secret, make_config
from aiokafkawire.errors import InvalidOption

SECRET = "only-the-tests-know-this-secret"

PEM = f"-----BEGIN CERTIFICATE-----\n{SECRET}\n-----END CERTIFICATE-----\n"
KEY = f"-----BEGIN PRIVATE KEY-----\n{SECRET}\n-----END PRIVATE KEY-----\n"

SSL: dict[str, Any] = {"security_protocol": "SSL"}
PLAIN: dict[str, Any] = {
    "security_protocol": "SASL_SSL",
    "sasl_mechanism": "PLAIN",
    "sasl_username": "alice",
    "sasl_password": SECRET,
}
SCRAM: dict[str, Any] = PLAIN | {"sasl_mechanism": "SCRAM-SHA-512"}


async def provide_token() -> Any:
    raise NotImplementedError


async def read_password() -> str:
    return SECRET


OAUTH: dict[str, Any] = {
    "security_protocol": "SASL_SSL",
    "sasl_mechanism": "OAUTHBEARER",
    "sasl_oauth_token_provider": provide_token,
}


def make(options: dict[str, Any], config_class: type[Any] = ClientConfig) -> Any:
    return make_config(config_class, {"bootstrap_servers": "h:1", **options})


def without(options: dict[str, Any], name: str) -> dict[str, Any]:
    return {key: value for key, value in options.items() if key != name}


ACCEPTED: list[dict[str, Any]] = [
    {"security_protocol": "PLAINTEXT"},
    {"bootstrap_servers": "PLAINTEXT://a:1,b:2"},
    SSL,
    SSL | {"ssl_cafile": "ca.pem", "ssl_cadata": PEM},
    SSL | {"ssl_certfile": "both.pem", "ssl_password": SECRET},
    SSL | {"ssl_certfile": "a.pem", "ssl_keyfile": "a.key", "ssl_password": Secret(SECRET)},
    SSL | {"ssl_certdata": PEM + KEY, "ssl_password": SECRET},
    SSL | {"ssl_certdata": PEM, "ssl_keydata": Secret(KEY)},
    SSL | {"ssl_keystore_location": "a.p12", "ssl_keystore_password": SECRET},
    SSL | {"ssl_check_hostname": False},
    SSL | {"ssl_context": ssl.create_default_context()},
    SSL | {"bootstrap_servers": ["SSL://a:1", "ssl://b:2", "c:3"]},
    PLAIN,
    PLAIN | {"security_protocol": "SASL_PLAINTEXT"},
    PLAIN | {"bootstrap_servers": "SASL_SSL://a:1"},
    PLAIN | {"sasl_password": read_password},
    PLAIN | {"sasl_username": "jos\xe9", "sasl_password": Secret("\u2168")},
    SCRAM | {"sasl_token_auth": True},
    SCRAM | {"sasl_mechanism": "SCRAM-SHA-256", "ssl_cafile": "ca.pem"},
    OAUTH,
    OAUTH | {"ssl_certfile": "both.pem"},
]


@pytest.mark.parametrize("config_class", [ClientConfig, ProducerConfig, ConsumerConfig])
def test_a_complete_set_of_options_is_accepted(config_class: type[Any]) -> None:
    for options in ACCEPTED:
        config = make(options, config_class)
        assert config.uses_tls is config.security_protocol.endswith("SSL")
        assert config.uses_sasl is config.security_protocol.startswith("SASL")


def test_the_protocol_of_an_address_is_not_part_of_its_host() -> None:
    config = make(SSL | {"bootstrap_servers": ["SSL://a:1", "[::1]:2", "ssl://c"]})
    assert config.bootstrap_addresses == (("a", 1), ("::1", 2), ("c", 9092))


REFUSED: list[tuple[dict[str, Any], str]] = [
    # The protocol
    (
        {"security_protocol": "TLS"},
        "security_protocol must be one of 'PLAINTEXT', 'SSL', 'SASL_PLAINTEXT', 'SASL_SSL',"
        " not 'TLS'; did you mean 'SSL'?",
    ),
    (
        {"security_protocol": "sasl_ssl"},
        "security_protocol must be one of 'PLAINTEXT', 'SSL', 'SASL_PLAINTEXT', 'SASL_SSL',"
        " not 'sasl_ssl'; did you mean 'SASL_SSL'?",
    ),
    (
        {"bootstrap_servers": "SSL://h:9093"},
        "bootstrap server 'SSL://h:9093' contradicts security_protocol, which is 'PLAINTEXT':"
        " set security_protocol='SSL', or omit 'SSL://'",
    ),
    (
        PLAIN | {"bootstrap_servers": ["a:1", "sasl_plaintext://h:9093"]},
        "bootstrap server 'sasl_plaintext://h:9093' contradicts security_protocol, which is"
        " 'SASL_SSL': set security_protocol='SASL_PLAINTEXT', or omit 'SASL_PLAINTEXT://'",
    ),
    # TLS
    (
        {"ssl_cafile": "ca.pem"},
        "ssl_cafile needs security_protocol 'SSL' or 'SASL_SSL'; it is 'PLAINTEXT'",
    ),
    (
        {"ssl_context": ssl.create_default_context()},
        "ssl_context needs security_protocol 'SSL' or 'SASL_SSL'; it is 'PLAINTEXT'",
    ),
    (
        PLAIN | {"security_protocol": "SASL_PLAINTEXT", "ssl_check_hostname": False},
        "ssl_check_hostname needs security_protocol 'SSL' or 'SASL_SSL'; it is 'SASL_PLAINTEXT'",
    ),
    (
        SSL | {"ssl_context": ssl.create_default_context(), "ssl_cafile": "ca.pem"},
        "ssl_cafile contradicts ssl_context, which has all settings of TLS: set it in the context",
    ),
    (
        SSL | {"ssl_context": ssl.create_default_context(), "ssl_check_hostname": False},
        "ssl_check_hostname contradicts ssl_context, which has all settings of TLS: set it in the"
        " context",
    ),
    (SSL | {"ssl_context": "tls"}, "ssl_context must be an SSLContext, not 'tls'"),
    (
        SSL | {"ssl_keyfile": "a.key"},
        "ssl_keyfile needs ssl_certfile",
    ),
    (
        SSL | {"ssl_password": SECRET},
        "ssl_password needs ssl_certfile or ssl_certdata",
    ),
    (
        SSL | {"ssl_cafile": PEM},
        "ssl_cafile must be the path of a file, not PEM text; ssl_cadata takes the text",
    ),
    (
        SSL | {"ssl_certfile": "a.pem", "ssl_keyfile": KEY},
        "ssl_keyfile must be the path of a file, not PEM text; ssl_keydata takes the text",
    ),
    (SSL | {"ssl_keyfile": KEY.encode()}, "ssl_keyfile must be a path, not bytes"),
    (SSL | {"ssl_cafile": ""}, "ssl_cafile must not be empty; omit it for none"),
    (
        SSL | {"ssl_cadata": "ca.pem"},
        "ssl_cadata must be text in PEM format; a file is ssl_cafile",
    ),
    (
        SSL | {"ssl_certfile": "a", "ssl_password": ""},
        "ssl_password must not be empty; omit it for none",
    ),
    (
        SSL | {"ssl_certfile": "a", "ssl_password": SECRET.encode()},
        "ssl_password must be a string, not bytes",
    ),
    (
        SSL | {"ssl_certfile": "a", "ssl_password": f"{SECRET}\udce9"},
        "ssl_password must be UTF-8 text: it has a lone surrogate",
    ),
    (
        SSL | {"ssl_certfile": "a.pem", "ssl_certdata": PEM},
        "ssl_certfile contradicts ssl_certdata: give one certificate",
    ),
    (
        SSL | {"ssl_keystore_location": "a.p12", "ssl_certdata": PEM},
        "ssl_certdata contradicts ssl_keystore_location: give one certificate",
    ),
    (SSL | {"ssl_certfile": "a.pem", "ssl_keydata": KEY}, "ssl_keydata needs ssl_certdata"),
    (
        SSL | {"ssl_certfile": "a.pem", "ssl_keystore_password": SECRET},
        "ssl_keystore_password needs ssl_keystore_location",
    ),
    (
        SSL | {"ssl_certdata": PEM, "ssl_keydata": SECRET},
        "ssl_keydata must be text in PEM format; a file is ssl_keyfile",
    ),
    (
        SSL | {"ssl_certdata": KEY.encode()},
        "ssl_certdata must be a string, not bytes",
    ),
    # SASL
    (
        without(PLAIN, "security_protocol"),
        "sasl_mechanism needs security_protocol 'SASL_SSL' or 'SASL_PLAINTEXT'; it is 'PLAINTEXT'",
    ),
    (
        SSL | {"sasl_password": SECRET},
        "sasl_password needs security_protocol 'SASL_SSL' or 'SASL_PLAINTEXT'; it is 'SSL'",
    ),
    (
        SSL | {"sasl_token_auth": True},
        "sasl_token_auth needs security_protocol 'SASL_SSL' or 'SASL_PLAINTEXT'; it is 'SSL'",
    ),
    (
        {"security_protocol": "SASL_SSL"},
        "security_protocol 'SASL_SSL' needs sasl_mechanism, one of 'PLAIN', 'SCRAM-SHA-256',"
        " 'SCRAM-SHA-512', 'OAUTHBEARER', 'GSSAPI'; the brokers must have it enabled",
    ),
    (
        PLAIN | {"sasl_mechanism": "scram-sha-256"},
        "sasl_mechanism must be one of 'PLAIN', 'SCRAM-SHA-256', 'SCRAM-SHA-512', 'OAUTHBEARER',"
        " 'GSSAPI', not 'scram-sha-256'; did you mean 'SCRAM-SHA-256'?",
    ),
    (
        PLAIN | {"sasl_mechanism": "AWS_MSK_IAM"},
        "sasl_mechanism must be one of 'PLAIN', 'SCRAM-SHA-256', 'SCRAM-SHA-512', 'OAUTHBEARER',"
        " 'GSSAPI', not 'AWS_MSK_IAM'; use 'OAUTHBEARER', which MSK has on the same port; see"
        " docs/security.md",
    ),
    (
        PLAIN | {"sasl_mechanism": "GSSAPI"},
        "sasl_username is not for sasl_mechanism 'GSSAPI', whose ticket names the user: run kinit,"
        " or set KRB5_CLIENT_KTNAME to a keytab",
    ),
    (
        PLAIN | {"sasl_kerberos_service_name": "other"},
        "sasl_kerberos_service_name needs sasl_mechanism 'GSSAPI', not 'PLAIN'",
    ),
    (
        PLAIN | {"sasl_kerberos_domain_name": "broker.example"},
        "sasl_kerberos_domain_name needs sasl_mechanism 'GSSAPI', not 'PLAIN'",
    ),
    (
        without(PLAIN, "sasl_username"),
        "sasl_mechanism 'PLAIN' needs sasl_username and sasl_password; sasl_username is missing",
    ),
    (
        without(SCRAM, "sasl_password"),
        "sasl_mechanism 'SCRAM-SHA-512' needs sasl_username and sasl_password; sasl_password is"
        " missing",
    ),
    (PLAIN | {"sasl_username": ""}, "sasl_username must not be empty; omit it for none"),
    (PLAIN | {"sasl_password": ""}, "sasl_password must not be empty; omit it for none"),
    (
        PLAIN | {"sasl_password": SECRET.encode()},
        "sasl_password must be a string or an async function, not bytes",
    ),
    (
        PLAIN | {"sasl_password": f"{SECRET}\udce9"},
        "sasl_password must be UTF-8 text: it has a lone surrogate",
    ),
    (PLAIN | {"sasl_username": "a\0b"}, "sasl_username must not contain a NUL character"),
    (
        PLAIN | {"sasl_password": f"{SECRET}\0"},
        "sasl_password must not contain a NUL character with sasl_mechanism 'PLAIN'",
    ),
    (
        PLAIN | {"sasl_oauth_token_provider": provide_token},
        "sasl_oauth_token_provider needs sasl_mechanism 'OAUTHBEARER', not 'PLAIN'",
    ),
    (
        PLAIN | {"sasl_token_auth": True},
        "sasl_token_auth needs sasl_mechanism 'SCRAM-SHA-256' or 'SCRAM-SHA-512', not 'PLAIN'",
    ),
    (
        OAUTH | {"sasl_token_auth": True},
        "sasl_token_auth needs sasl_mechanism 'SCRAM-SHA-256' or 'SCRAM-SHA-512', not"
        " 'OAUTHBEARER'",
    ),
    (
        without(OAUTH, "sasl_oauth_token_provider"),
        "sasl_mechanism 'OAUTHBEARER' needs sasl_oauth_token_provider, an async function that"
        " returns an OAuthBearerToken",
    ),
    (
        OAUTH | {"sasl_oauth_token_provider": SECRET},
        "sasl_oauth_token_provider must be an async function that returns an OAuthBearerToken,"
        " not str",
    ),
    (
        OAUTH | {"sasl_password": SECRET},
        "sasl_password is not for sasl_mechanism 'OAUTHBEARER', whose token names the user: omit"
        " it, or set sasl_mechanism to one of 'PLAIN', 'SCRAM-SHA-256', 'SCRAM-SHA-512'",
    ),
    (
        OAUTH | {"sasl_username": "alice"},
        "sasl_username is not for sasl_mechanism 'OAUTHBEARER', whose token names the user: omit"
        " it, or set sasl_mechanism to one of 'PLAIN', 'SCRAM-SHA-256', 'SCRAM-SHA-512'",
    ),
]


@pytest.mark.parametrize(("options", "text"), REFUSED)
def test_a_refused_combination_has_this_text(options: dict[str, Any], text: str) -> None:
    with pytest.raises(InvalidOption) as refused:
        make(options)
    assert str(refused.value) == text
    # Not in a cause or context either.
    assert SECRET not in "".join(traceback.format_exception(refused.value, chain=True))


def test_each_option_is_refused_for_a_protocol_that_ignores_it() -> None:
    """An ignored option would hide that a connection is not encrypted or not authenticated."""
    values = (
        ACCEPTED[-1]
        | SCRAM
        | dict.fromkeys(("ssl_cafile", "ssl_keyfile", "ssl_keystore_location"), "x")
    )
    values |= {
        "ssl_context": ssl.create_default_context(),
        "ssl_cadata": PEM,
        "ssl_certdata": PEM,
        "ssl_keydata": KEY,
        "ssl_password": SECRET,
        "ssl_keystore_password": SECRET,
        "ssl_check_hostname": False,
        "sasl_token_auth": True,
        "sasl_oauth_token_provider": provide_token,
        "sasl_kerberos_service_name": "other",
        "sasl_kerberos_domain_name": "broker.example",
    }
    for field in dataclasses.fields(ClientConfig):
        if field.name.startswith(("ssl_", "sasl_")):
            with pytest.raises(InvalidOption, match=f"^{field.name} needs security_protocol '"):
                make({field.name: values[field.name]})


@pytest.mark.parametrize("options", [options for options, _ in REFUSED])
def test_a_text_about_options_says_what_to_set(options: dict[str, Any]) -> None:
    with pytest.raises(InvalidOption) as refused:
        make(options)
    named = re.findall(r"\b(?:ssl|sasl|security)_[a-z_]+|bootstrap server", str(refused.value))
    assert named


WITH_SECRETS: list[dict[str, Any]] = [
    PLAIN,
    SCRAM | {"ssl_certfile": "a.pem", "ssl_password": SECRET},
    SCRAM | {"sasl_password": Secret(SECRET)},
    SCRAM | {"ssl_certdata": PEM, "ssl_keydata": KEY},
    SCRAM | {"ssl_keystore_location": "a.p12", "ssl_keystore_password": SECRET},
    PLAIN | {"sasl_password": read_password},
]


@pytest.mark.parametrize("options", WITH_SECRETS)
def test_a_config_shows_no_secret(options: dict[str, Any]) -> None:
    for config_class in (ClientConfig, ProducerConfig, ConsumerConfig):
        config = make(options, config_class)
        assert SECRET not in f"{config} {config!r}"
        assert SECRET not in repr([config, {"config": config}])
        for name, value in options.items():
            if "password" in name and not callable(value):
                assert getattr(config, name) == Secret(SECRET)


@pytest.mark.parametrize("client", [Producer, Consumer])
def test_a_client_shows_no_secret(client: Callable[..., Any]) -> None:
    for options in WITH_SECRETS:
        made = client(**{"bootstrap_servers": "h:1", **options})
        assert SECRET not in f"{made!r} {made} {made.config!r}"


@pytest.mark.parametrize("copied", [pickle.dumps, copy.deepcopy, dataclasses.asdict])
def test_a_config_with_a_secret_is_not_pickled_or_copied(copied: Callable[[Any], Any]) -> None:
    with pytest.raises(TypeError, match="a Secret cannot be pickled"):
        copied(make(PLAIN))


def test_a_changed_copy_keeps_the_secret() -> None:
    config = dataclasses.replace(make(PLAIN), client_id="other")
    assert config.sasl_password == Secret(SECRET)


def test_an_unknown_option_does_not_show_its_value() -> None:
    for name in ("sasl_plain_password", "sasl_passwort", "ssl.key.password"):
        with pytest.raises(InvalidOption) as refused:
            make(PLAIN | {name: SECRET})
        assert SECRET not in str(refused.value)


def test_a_file_is_named_by_a_path() -> None:
    config = make(SSL | {"ssl_cafile": Path("ca.pem"), "ssl_certfile": Path("alice.pem")})
    assert (config.ssl_cafile, config.ssl_certfile) == ("ca.pem", "alice.pem")
