"""Conversion of security properties of Java and librdkafka."""

from __future__ import annotations

import traceback
from typing import Any

import pytest

from aiokafkawire.config import ClientConfig, Secret, make_config
from aiokafkawire.config.java_properties import (
    OAuthSettings,
    convert_security_properties,
    is_security_property,
)
from aiokafkawire.errors import InvalidOption

SECRET = "only-the-tests-know-this-secret"

PLAIN = (
    "org.apache.kafka.common.security.plain.PlainLoginModule required"
    f' username="alice" password="{SECRET}";'
)
SCRAM = PLAIN.replace("plain.Plain", "scram.Scram")


@pytest.mark.parametrize(
    ("properties", "options"),
    [
        ({"security.protocol": "plaintext"}, {"security_protocol": "PLAINTEXT"}),
        (
            {
                "security.protocol": "SSL",
                "ssl.truststore.type": "PEM",
                "ssl.truststore.location": "pki/ca.crt",
                "ssl.keystore.type": "pem",
                "ssl.keystore.location": "pki/alice",
                "ssl.key.password": SECRET,
            },
            {
                "security_protocol": "SSL",
                "ssl_cafile": "pki/ca.crt",
                "ssl_certfile": "pki/alice",
                "ssl_password": SECRET,
            },
        ),
        (
            {
                "security.protocol": "SASL_SSL",
                "sasl.mechanism": "PLAIN",
                "sasl.jaas.config": PLAIN,
                "ssl.truststore.location": "ca.pem",
            },
            {
                "security_protocol": "SASL_SSL",
                "sasl_mechanism": "PLAIN",
                "sasl_username": "alice",
                "sasl_password": SECRET,
                "ssl_cafile": "ca.pem",
            },
        ),
        (
            {
                "security.protocol": "SASL_PLAINTEXT",
                "sasl.mechanism": "SCRAM-SHA-256",
                "sasl.jaas.config": SCRAM.replace(";", ' tokenauth="true";'),
                "sasl.login.refresh.window.factor": "0.8",
                "sasl.kerberos.service.name": "kafka",
                "sasl.kerberos.ticket.renew.jitter": "0.05",
            },
            {
                "security_protocol": "SASL_PLAINTEXT",
                "sasl_mechanism": "SCRAM-SHA-256",
                "sasl_username": "alice",
                "sasl_password": SECRET,
                "sasl_token_auth": True,
                "sasl_kerberos_service_name": "kafka",
            },
        ),
        (
            {
                "security.protocol": "SASL_PLAINTEXT",
                "sasl.mechanism": "GSSAPI",
                "sasl.kerberos.service.name": "kafka",
                "sasl.kerberos.domain.name": "kafka.example.com",
                "sasl.kerberos.kinit.cmd": "/usr/bin/kinit",
            },
            {
                "security_protocol": "SASL_PLAINTEXT",
                "sasl_mechanism": "GSSAPI",
                "sasl_kerberos_service_name": "kafka",
                "sasl_kerberos_domain_name": "kafka.example.com",
            },
        ),
        # A repackaged class, as on Databricks.
        (
            {
                "security.protocol": "SASL_SSL",
                "sasl.mechanism": "PLAIN",
                "sasl.jaas.config": f"kafkashaded.{PLAIN}",
                "ssl.endpoint.identification.algorithm": "https",
            },
            {
                "security_protocol": "SASL_SSL",
                "sasl_mechanism": "PLAIN",
                "sasl_username": "alice",
                "sasl_password": SECRET,
            },
        ),
        # librdkafka
        (
            {
                "security.protocol": "sasl_ssl",
                "sasl.mechanisms": "SCRAM-SHA-512",
                "sasl.username": "alice",
                "sasl.password": SECRET,
                "ssl.ca.location": "ca",
                "ssl.certificate.location": "cert",
                "ssl.key.location": "key",
                "ssl.endpoint.identification.algorithm": "none",
                "enable.ssl.certificate.verification": "true",
            },
            {
                "security_protocol": "SASL_SSL",
                "sasl_mechanism": "SCRAM-SHA-512",
                "sasl_username": "alice",
                "sasl_password": SECRET,
                "ssl_cafile": "ca",
                "ssl_certfile": "cert",
                "ssl_keyfile": "key",
                "ssl_check_hostname": False,
            },
        ),
        (
            {
                "security.protocol": "SSL",
                "ssl.endpoint.identification.algorithm": "",
                "ssl.truststore.certificates": "-----BEGIN CERTIFICATE-----",
                "ssl.enabled.protocols": "TLSv1.2,TLSv1.3",
                "ssl.protocol": "TLSv1.3",
                "ssl.truststore.type": "PEM",
                "ssl.keystore.type": "PEM",
                "ssl.keystore.certificate.chain": "-----BEGIN CERTIFICATE-----",
                "ssl.keystore.key": "-----BEGIN PRIVATE KEY-----",
            },
            {
                "security_protocol": "SSL",
                "ssl_certdata": "-----BEGIN CERTIFICATE-----",
                "ssl_keydata": "-----BEGIN PRIVATE KEY-----",
                "ssl_cadata": "-----BEGIN CERTIFICATE-----",
                "ssl_check_hostname": False,
            },
        ),
        (
            {
                "security.protocol": "SSL",
                "ssl.keystore.location": "client.p12",
                "ssl.keystore.password": SECRET,
                "ssl.key.password": SECRET,
            },
            {
                "security_protocol": "SSL",
                "ssl_keystore_location": "client.p12",
                "ssl_keystore_password": SECRET,
                "ssl_password": None,
            },
        ),
    ],
)
def test_properties_are_converted(properties: dict[str, str], options: dict[str, Any]) -> None:
    assert all(map(is_security_property, properties))
    assert convert_security_properties(properties, pytest.fail) == options
    make_config(ClientConfig, {"bootstrap_servers": "h:1", **options})


URL = "https://idp.example.com/token"
OAUTH = {"security.protocol": "SASL_SSL", "sasl.mechanism": "OAUTHBEARER"}
MODULE = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule"


@pytest.mark.parametrize(
    ("properties", "settings"),
    [
        # Java to 4.0
        (
            {
                "sasl.oauthbearer.token.endpoint.url": URL,
                "sasl.login.callback.handler.class": "org.apache.kafka.common.security.oauthbearer"
                ".secured.OAuthBearerLoginCallbackHandler",
                "sasl.jaas.config": f'{MODULE} required clientId="c" clientSecret="{SECRET}"'
                ' scope="a b" extension_logicalCluster="lkc-1";',
            },
            OAuthSettings(URL, "c", Secret(SECRET), "a b", (("logicalCluster", "lkc-1"),)),
        ),
        # Java from 4.1
        (
            {
                "sasl.oauthbearer.token.endpoint.url": URL,
                "sasl.oauthbearer.client.credentials.client.id": "c",
                "sasl.oauthbearer.client.credentials.client.secret": SECRET,
                "sasl.oauthbearer.scope": "a",
                "sasl.oauthbearer.header.urlencode": "true",
                "sasl.jaas.config": f"{MODULE} required;",
            },
            OAuthSettings(URL, "c", Secret(SECRET), "a", (), True),
        ),
        # librdkafka
        (
            {
                "sasl.oauthbearer.method": "oidc",
                "sasl.oauthbearer.token.endpoint.url": URL,
                "sasl.oauthbearer.client.id": "c",
                "sasl.oauthbearer.client.secret": SECRET,
                "sasl.oauthbearer.extensions": "b=2,a=1",
            },
            OAuthSettings(URL, "c", Secret(SECRET), None, (("a", "1"), ("b", "2"))),
        ),
        (
            {"sasl.oauthbearer.token.endpoint.url": "file:///var/run/token"},
            OAuthSettings("file:///var/run/token"),
        ),
    ],
)
def test_properties_of_oauthbearer_are_converted(
    properties: dict[str, str], settings: OAuthSettings
) -> None:
    given = OAUTH | properties
    assert all(map(is_security_property, given))
    converted = convert_security_properties(given, lambda found: found)
    assert converted == {
        "security_protocol": "SASL_SSL",
        "sasl_mechanism": "OAUTHBEARER",
        "sasl_oauth_token_provider": settings,
    }
    assert SECRET not in repr(converted)


REFUSED: list[tuple[dict[str, str], str]] = [
    (
        {"ssl.truststore.location": "/etc/kafka/trust.jks", "ssl.truststore.password": SECRET},
        "ssl.truststore.location is a JKS file, which cannot be read here. Convert it to PEM:"
        " keytool -importkeystore -srckeystore /etc/kafka/trust.jks -destkeystore"
        " /etc/kafka/trust.p12 -deststoretype PKCS12 && openssl pkcs12 -in /etc/kafka/trust.p12"
        " -nokeys -out /etc/kafka/trust.pem; then set ssl.truststore.type=PEM and"
        " ssl.truststore.location=/etc/kafka/trust.pem",
    ),
    (
        {"ssl.keystore.location": "a b", "ssl.keystore.type": "JKS"},
        "ssl.keystore.location is a JKS file, which cannot be read here. Convert it to PEM:"
        " keytool -importkeystore -srckeystore 'a b' -destkeystore 'a b.p12' -deststoretype PKCS12"
        " && openssl pkcs12 -in 'a b.p12' -out 'a b.pem'; then set ssl.keystore.type=PEM and"
        " ssl.keystore.location=a b.pem",
    ),
    (
        {"ssl.truststore.location": "trust.p12"},
        "ssl.truststore.location is a PKCS12 file, which cannot be read here. Convert it to PEM:"
        " openssl pkcs12 -in trust.p12 -nokeys -out trust.pem; then set ssl.truststore.type=PEM and"
        " ssl.truststore.location=trust.pem",
    ),
    (
        {"ssl.keystore.location": "k.pfx", "ssl.key.password": SECRET},
        "ssl.key.password must equal ssl.keystore.password for a PKCS12 file",
    ),
    (
        {"ssl.truststore.location": "trusted"},
        "ssl.truststore.type must be PEM, or the name of a PEM file must end with .pem",
    ),
    (
        {"ssl.truststore.location": "trust.jks", "ssl.truststore.type": "BKS"},
        "ssl.truststore.type must be PEM, or the name of a PEM file must end with .pem",
    ),
    (
        {"ssl.keystore.location": "a.pem", "ssl.keystore.password": SECRET},
        "ssl.keystore.password is not for a PEM file: omit it; the password of the key is"
        " ssl.key.password",
    ),
    (
        {"ssl.truststore.location": "a.pem", "ssl.truststore.password": SECRET},
        "ssl.truststore.password is not for a PEM file: omit it",
    ),
    (
        {"ssl.enabled.protocols": "TLSv1.3"},
        "ssl.enabled.protocols must include TLSv1.2, which is always offered here",
    ),
    ({"ssl.protocol": "SSLv3"}, "ssl.protocol must be TLSv1.3 or TLSv1.2, not 'SSLv3'"),
    (
        {"enable.ssl.certificate.verification": "false"},
        "enable.ssl.certificate.verification must be true: certificates are always verified",
    ),
    (
        {"ssl.endpoint.identification.algorithm": "ldaps"},
        "ssl.endpoint.identification.algorithm must be https, or empty to accept certificates for"
        " any host",
    ),
    (
        {"sasl.jaas.config": f'x.y.PlainLoginModule required password="{SECRET}";'},
        'sasl.jaas.config: PlainLoginModule needs username="…"',
    ),
    (
        {"sasl.jaas.config": SCRAM.replace("password", "passwort")},
        'sasl.jaas.config: ScramLoginModule needs password="…"',
    ),
    (
        {"sasl.jaas.config": f'com.sun.Krb5LoginModule required a="{SECRET}";'},
        "sasl.jaas.config has the class 'Krb5LoginModule': omit it: GSSAPI uses the tickets of"
        " kinit, or the keytab in KRB5_CLIENT_KTNAME",
    ),
    (
        {"sasl.kerberos.keytab": "/etc/alice.keytab"},
        "sasl.kerberos.keytab has no counterpart: omit it: GSSAPI uses the tickets of kinit, or the"
        " keytab in KRB5_CLIENT_KTNAME",
    ),
    (
        {"sasl.kerberos.principal": "alice"},
        "sasl.kerberos.principal has no counterpart: omit it: GSSAPI uses the tickets of kinit, or"
        " the keytab in KRB5_CLIENT_KTNAME",
    ),
    (
        {"sasl.jaas.config": SCRAM.replace(";", ' tokenauth="yes";')},
        "sasl.jaas.config: tokenauth must be true or false, not 'yes'",
    ),
    (
        {"sasl.jaas.config": "software.amazon.msk.auth.iam.IAMLoginModule required;"},
        "sasl.jaas.config has the class 'IAMLoginModule': AWS_MSK_IAM is Java code here: use the"
        " mechanism OAUTHBEARER, which MSK has on the same port; see docs/security.md",
    ),
    (
        {"sasl.jaas.config": f'com.example.OurLoginModule required secret="{SECRET}";'},
        "sasl.jaas.config has the class 'OurLoginModule': Java code cannot run here",
    ),
    (
        {"sasl.client.callback.handler.class": "com.example.Handler"},
        "sasl.client.callback.handler.class has the class 'Handler': Java code cannot run here",
    ),
    (
        OAUTH,
        "sasl.oauthbearer.token.endpoint.url is missing: sasl.mechanism OAUTHBEARER needs it",
    ),
    (
        OAUTH
        | {
            "sasl.oauthbearer.token.endpoint.url": URL,
            "sasl.jaas.config": f'{MODULE} required clientSecret="{SECRET}";',
        },
        "sasl.oauthbearer.client.credentials.client.id is missing:"
        " sasl.oauthbearer.token.endpoint.url needs it",
    ),
    (
        OAUTH
        | {
            "sasl.oauthbearer.token.endpoint.url": URL,
            "sasl.oauthbearer.client.id": "c",
            "sasl.oauthbearer.client.secret": SECRET,
            "sasl.oauthbearer.header.urlencode": "yes",
        },
        "sasl.oauthbearer.header.urlencode must be true or false, not 'yes'",
    ),
    (OAUTH | {"sasl.oauthbearer.method": "default"}, "sasl.oauthbearer.method must be oidc"),
    (
        {"sasl.jaas.config": SECRET},
        'sasl.jaas.config is not of the form LoginModule required name="value" … ;',
    ),
]


@pytest.mark.parametrize("name", ["sasl.kerberos.service.names", "sasl.kerberos."])
def test_an_unknown_property_of_kerberos_is_not_ignored(name: str) -> None:
    assert not is_security_property(name)


@pytest.mark.parametrize(("properties", "text"), REFUSED)
def test_a_property_that_cannot_be_converted_is_named(
    properties: dict[str, str], text: str
) -> None:
    with pytest.raises(InvalidOption) as refused:
        convert_security_properties(properties, pytest.fail)
    assert str(refused.value) == text
    assert refused.value.option == text.partition(" ")[0].rstrip(":")
    assert SECRET not in "".join(traceback.format_exception(refused.value))
