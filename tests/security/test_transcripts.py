"""Both sides of each mechanism produce the bytes of exchanges recorded on real brokers."""

from __future__ import annotations

import base64

import pytest

from aiokafkawire import security
from aiokafkawire.errors import AuthenticationFailed
from aiokafkawire.wire import ErrorCode

from .transcripts import Exchange, exchanges

PLAIN_USERS = {
    "alice": "alice-pw",
    "dave": "dave-pw",
    "josé": "pässwörd",
    "a,b=c": "comma=pw",
}
SCRAM_USERS = {
    "bob": "bob-pw",
    "alice": "alice-pw",
    "a,b=c": "comma=pw",
    "prep": "\N{ROMAN NUMERAL NINE}",
    "prep2": "I\N{SOFT HYPHEN}X",
    "prep3": "a\N{NO-BREAK SPACE}b",
}

PLAIN = exchanges("PLAIN")
SCRAM = exchanges("SCRAM-SHA-256", "SCRAM-SHA-512")
OAUTHBEARER = exchanges("OAUTHBEARER")


def answered(found: list[Exchange]) -> list[Exchange]:
    """Leave out exchanges that broke the order of requests: the brokers' refusal is not ours."""
    codes = {ErrorCode.NONE, ErrorCode.SASL_AUTHENTICATION_FAILED}
    return [one for one in found if one.error_code in codes]


def play(server: security.ServerMechanism, exchange: Exchange) -> None:
    """Have a server machine answer the recorded client, and compare each answer."""
    for number, token in enumerate(exchange.client):
        is_last = number == len(exchange.server) - 1
        if is_last and exchange.error_code:
            with pytest.raises(security.CredentialsRefused) as refused:
                server.next(token)
            assert str(refused.value) == exchange.error_message
            assert not server.is_complete
            return
        assert server.next(token) == exchange.server[number]
    # One client stopped after the first of two tokens; a refused OAUTHBEARER token has a second.
    steps = 2 if server.name.startswith("SCRAM") else 1
    assert server.is_complete == (len(exchange.client) == steps)


def test_the_recordings_are_there() -> None:
    assert (len(PLAIN), len(SCRAM), len(OAUTHBEARER)) == (55, 32, 19)


# --- PLAIN ---


@pytest.mark.parametrize("exchange", [one for one in PLAIN if len(one.client[0].split(b"\0")) == 3])
def test_the_plain_client_writes_what_was_sent(exchange: Exchange) -> None:
    authorization_id, username, password = exchange.client[0].decode().split("\0")
    if not username or not password:
        with pytest.raises(ValueError, match="needs a user name and a password"):
            security.PlainClient(username, security.Secret(password), authorization_id)
        return
    client = security.PlainClient(username, security.Secret(password), authorization_id)
    assert client.first() == exchange.client[0]
    if exchange.error_code == ErrorCode.NONE:
        assert client.next(exchange.server[0]) is None


@pytest.mark.parametrize(
    "exchange",
    # Only the broker knows the principal of the authentication before a re-authentication.
    [one for one in answered(PLAIN) if "principals" not in one.error_message],
    ids=str,
)
def test_the_plain_server_answers_as_real_brokers(exchange: Exchange) -> None:
    def password_of(username: str) -> security.Secret | None:
        password = PLAIN_USERS.get(username)
        return None if password is None else security.Secret(password)

    server = security.PlainServer(password_of)
    play(server, exchange)


# --- SCRAM ---


def scram_client(exchange: Exchange) -> security.ScramClient:
    attributes = attributes_of(exchange)
    username = attributes["n"].replace("=2C", ",").replace("=3D", "=")
    is_token = "tokenauth" in attributes
    password = exchange.hmac if is_token else SCRAM_USERS.get(username)
    return security.ScramClient(
        exchange.mechanism,
        username,
        security.Secret(password or "unknown"),
        attributes["r"],
        security.SaltedPasswords(),
        token_auth=is_token,
    )


def attributes_of(exchange: Exchange) -> dict[str, str]:
    bare = exchange.client[0].decode().split(",", 2)[2]
    return dict(part.partition("=")[::2] for part in bare.split(","))


SUCCEEDED = [one for one in SCRAM if one.error_code == ErrorCode.NONE and len(one.client) > 1]


def test_many_scram_exchanges_succeeded() -> None:
    assert len(SUCCEEDED) >= 12
    assert {one.mechanism for one in SUCCEEDED} == {"SCRAM-SHA-256", "SCRAM-SHA-512"}
    assert any(one.hmac for one in SUCCEEDED)


@pytest.mark.parametrize("exchange", SUCCEEDED, ids=str)
def test_the_scram_client_writes_what_was_sent(exchange: Exchange) -> None:
    client = scram_client(exchange)
    assert client.first() == exchange.client[0]
    assert client.next(exchange.server[0]) == exchange.client[1]
    assert client.next(exchange.server[1]) is None


@pytest.mark.parametrize("exchange", SUCCEEDED, ids=str)
def test_the_scram_client_refuses_a_broker_without_the_password(exchange: Exchange) -> None:
    client = scram_client(exchange)
    client.first()
    client.next(exchange.server[0])
    with pytest.raises(AuthenticationFailed, match=r"does not know the password"):
        client.next(b"v=" + base64.b64encode(bytes(len(exchange.server[1]) // 2)))


@pytest.mark.parametrize(
    "exchange",
    [
        one
        for one in answered(SCRAM)
        # The broker's state decides here: tokens expire, and spread with the metadata.
        if one.scenario not in {"token_expired", "token_used_at_once"}
    ],
    ids=str,
)
def test_the_scram_server_answers_as_real_brokers(exchange: Exchange) -> None:
    salt, iterations, nonce = b"unused", 4096, ""
    if exchange.server and exchange.server[0]:
        first = dict(part.partition("=")[::2] for part in exchange.server[0].decode().split(","))
        salt, iterations = base64.b64decode(first["s"]), int(first["i"])
        nonce = first["r"].removeprefix(attributes_of(exchange)["r"])

    def credential_of(username: str, is_token: bool) -> tuple[str, security.ScramCredential] | None:
        password = exchange.hmac if is_token else SCRAM_USERS.get(username)
        if password is None:
            return None
        stored = security.ScramCredential.from_password(
            exchange.mechanism, security.Secret(password), salt, iterations
        )
        return "alice" if is_token else username, stored

    server = security.ScramServer(exchange.mechanism, credential_of, nonce)
    play(server, exchange)
    if server.is_complete and exchange.hmac:
        assert server.principal == "alice", "the owner of the delegation token"


# --- OAUTHBEARER ---


@pytest.mark.parametrize(
    "exchange", [one for one in OAUTHBEARER if one.client[0].startswith(b"n,,\x01")], ids=str
)
def test_the_oauthbearer_client_writes_what_was_sent(exchange: Exchange) -> None:
    pairs = [pair.partition("=") for pair in exchange.client[0].decode().split("\x01")[1:-2]]
    token = security.Secret(pairs[0][2].removeprefix("Bearer "))
    extensions = {name: value for name, _, value in pairs[1:]}
    if "auth" in extensions:
        with pytest.raises(ValueError, match="cannot send the extension 'auth'"):
            security.OAuthBearerClient(security.OAuthBearerToken(token, extensions=extensions))
        return
    client = security.OAuthBearerClient(security.OAuthBearerToken(token, extensions=extensions))
    assert client.first() == exchange.client[0]
    answer = client.next(exchange.server[0])
    if exchange.server[0]:
        assert [answer] == exchange.client[1:]
        assert client.refusal == exchange.error_message
        with pytest.raises(AuthenticationFailed, match=r"broker refused: '\{"):
            client.next(b"")
    else:
        assert answer is None


@pytest.mark.parametrize("exchange", answered(OAUTHBEARER), ids=str)
def test_the_oauthbearer_server_answers_as_real_brokers(exchange: Exchange) -> None:
    def validate(token: security.Secret, extensions: object) -> str:
        del token, extensions
        if exchange.server[0]:
            raise security.TokenRefused(exchange.server[0].decode())
        return "kafka"

    play(security.OAuthBearerServer(validate), exchange)
