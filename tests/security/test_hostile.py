"""Tokens of a hostile peer end in a typed error, and in bounded time."""

from __future__ import annotations

import base64
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aiokafkawire import security
from aiokafkawire.errors import AuthenticationFailed
from aiokafkawire.security.mechanism import MAX_TOKEN_BYTES
from aiokafkawire.security.scram import INLINE_ITERATIONS, MAX_ITERATIONS, MIN_ITERATIONS

SECRET = "hunter2"
SALTED = security.SaltedPasswords()
CREDENTIAL = security.ScramCredential.from_password(
    "SCRAM-SHA-256", security.Secret(SECRET), b"salt"
)
SALT = base64.b64encode(b"salt").decode()


def scram(nonce: str = "abc") -> security.ScramClient:
    return security.ScramClient("SCRAM-SHA-256", "bob", security.Secret(SECRET), nonce, SALTED)


CLIENTS: dict[str, Callable[[], security.ClientMechanism]] = {
    "PLAIN": lambda: security.PlainClient("bob", security.Secret(SECRET)),
    "SCRAM": scram,
    "OAUTHBEARER": lambda: security.OAuthBearerClient(
        security.OAuthBearerToken(security.Secret(SECRET))
    ),
}
SERVERS: dict[str, Callable[[], security.ServerMechanism]] = {
    "PLAIN": lambda: security.PlainServer(lambda _: security.Secret(SECRET)),
    "SCRAM": lambda: security.ScramServer(
        "SCRAM-SHA-256", lambda name, _: (name, CREDENTIAL), "server"
    ),
    "OAUTHBEARER": lambda: security.OAuthBearerServer(lambda token, _: token.reveal()),
}

# Bytes that look like messages reach deeper than random ones.
PIECES = (
    *(b"n,,", b"n=bob", b"r=abc", b"r=abcserver", b",", b"s=" + SALT.encode(), b"i=4096", b"i=-1"),
    *(b"c=biws", b"p=", b"v=", b"=", b"\x01", b"auth=Bearer x", b"\0", b"bob", b"a=", b"\xff"),
)
pieces = st.sampled_from(PIECES)
tokens = st.one_of(st.binary(max_size=80), st.lists(pieces, max_size=12).map(b",".join))
tokens |= st.lists(pieces, max_size=12).map(b"".join)


def refused_by(
    step: Callable[[bytes], bytes | None], token: bytes, expected: type[Exception]
) -> Exception | None:
    """Return the error of a step; any other error is raised."""
    try:
        step(token)
    except expected as error:
        return error
    return None


@pytest.mark.parametrize("name", CLIENTS)
@given(sent=st.lists(tokens, max_size=3))
def test_a_client_raises_only_authentication_failed(name: str, sent: list[bytes]) -> None:
    client = CLIENTS[name]()
    client.first()
    for token in sent:
        client.blocks(token)
        if error := refused_by(client.next, token, AuthenticationFailed):
            assert SECRET not in str(error)
            break


@pytest.mark.parametrize("name", SERVERS)
@given(sent=st.lists(tokens, max_size=3))
def test_a_server_raises_only_credentials_refused(name: str, sent: list[bytes]) -> None:
    server = SERVERS[name]()
    for token in sent:
        if error := refused_by(server.next, token, security.CredentialsRefused):
            assert SECRET not in str(error)
            assert not server.is_complete
            break


@pytest.mark.parametrize("name", CLIENTS)
def test_a_token_has_a_longest_length(name: str) -> None:
    client = CLIENTS[name]()
    client.first()
    with pytest.raises(AuthenticationFailed, match=f"more than {MAX_TOKEN_BYTES}"):
        client.next(bytes(MAX_TOKEN_BYTES + 1))


@pytest.mark.parametrize("name", SERVERS)
def test_a_server_bounds_the_length_of_a_token(name: str) -> None:
    server = SERVERS[name]()
    with pytest.raises(security.CredentialsRefused):
        server.next(bytes(MAX_TOKEN_BYTES + 1))


def test_many_attributes_are_not_split() -> None:
    client = scram()
    client.first()
    assert not client.blocks(b"," * (MAX_TOKEN_BYTES + 1))
    with pytest.raises(AuthenticationFailed, match="has no r, s, i"):
        client.next(b"," * MAX_TOKEN_BYTES)


@pytest.mark.parametrize("name", CLIENTS)
def test_a_client_does_not_go_on_after_the_end(name: str) -> None:
    early = CLIENTS[name]()
    with pytest.raises(AuthenticationFailed, match="after the exchange had ended"):
        early.next(b"")
    client = CLIENTS[name]()
    client.first()
    for token in (b"x" * (MAX_TOKEN_BYTES + 1), b""):
        with pytest.raises(AuthenticationFailed):
            client.next(token)


def test_a_server_does_not_go_on_after_the_end() -> None:
    server = security.PlainServer(lambda _: security.Secret(SECRET))
    server.next(f"\0bob\0{SECRET}".encode())
    assert (server.is_complete, server.principal) == (True, "bob")
    with pytest.raises(security.CredentialsRefused):
        server.next(f"\0eve\0{SECRET}".encode())
    assert (server.is_complete, server.principal) == (False, None)
    refusing = security.PlainServer(lambda _: security.Secret(SECRET))
    for password in ("wrong", SECRET):
        with pytest.raises(security.CredentialsRefused):
            refusing.next(f"\0bob\0{password}".encode())


@pytest.mark.parametrize(
    "message",
    [
        "n,,n=alice,r=x,n=bob,r=y",
        "n,,n=bob,r=",
        "n,,n=bob,r=a b",
        "n,,n=b\0b,r=x",
        "n,,n=bob,r=x,1=y",
        "n,,n=bob,r=x,y=",
        "n,,n=a=2Db,r=x",
        "y,,n=bob,r=x",
    ],
)
def test_a_first_message_that_kafka_refuses_is_refused(message: str) -> None:
    if message.startswith("n,,n=alice,r=x"):
        # Kafka takes the first name; what follows are extensions.
        answer = SERVERS["SCRAM"]().next(message.encode())
        assert answer.startswith(b"r=xserver,")
        return
    with pytest.raises(security.CredentialsRefused):
        SERVERS["SCRAM"]().next(message.encode())


@pytest.mark.parametrize(
    "make",
    [
        lambda: security.PlainClient("eve\0alice", security.Secret(SECRET)),
        lambda: security.PlainClient("eve\udce9", security.Secret(SECRET)),
        lambda: security.PlainClient("eve", security.Secret("a\0b")),
        lambda: security.PlainClient("", security.Secret(SECRET)),
        lambda: scram(""),
        lambda: scram("a,tokenauth=true"),
        lambda: security.ScramClient(
            "SCRAM-SHA-256", "\udce9", security.Secret(SECRET), "abc", SALTED
        ),
        lambda: security.ScramClient("SCRAM-SHA-256", "", security.Secret(SECRET), "abc", SALTED),
        lambda: security.OAuthBearerToken(security.Secret("token\x01x=y")),
        lambda: security.OAuthBearerToken(security.Secret("token\n")),
        lambda: security.OAuthBearerToken(security.Secret("token"), extensions={"a": "b\x01c"}),
    ],
)
def test_what_a_mechanism_cannot_carry_is_refused_at_once(make: Callable[[], object]) -> None:
    with pytest.raises(ValueError, match=r"cannot send|needs a user name") as refused:
        make()
    assert SECRET not in str(refused.value)


def test_extensions_are_copied() -> None:
    extensions = {"trace": "1"}
    token = security.OAuthBearerToken(security.Secret(SECRET), extensions=extensions)
    extensions["auth"] = "Bearer other"
    assert b"other" not in security.OAuthBearerClient(token).first()


def test_the_reason_of_a_broker_is_escaped() -> None:
    client = CLIENTS["OAUTHBEARER"]()
    client.first()
    client.next("x\r\nINFO forged \x1b[2J\u202e".encode())
    with pytest.raises(AuthenticationFailed) as refused:
        client.next(b"")
    assert str(refused.value).isprintable()
    assert str(refused.value).isascii()


@pytest.mark.parametrize(
    ("message", "reason"),
    [
        (f"r=abcx,s={SALT},i=1", "asks for 1 iterations"),
        (f"r=abcx,s={SALT},i={MIN_ITERATIONS - 1}", "asks for 4095 iterations"),
        (f"r=abcx,s={SALT},i={MAX_ITERATIONS + 1}", "asks for 1048577 iterations"),
        (f"r=abcx,s={SALT},i={1 << 31}", "iteration count is '2147483648'"),
        (f"r=abcx,s={SALT},i=-1", "iteration count is '-1'"),
        (f"r=abcx,s={SALT},i=\N{SUPERSCRIPT TWO}", "iteration count is '²'"),
        (f"r=abcx,s={SALT},i=", "iteration count is ''"),
        (f"r=abc,s={SALT},i=4096", "nonce does not extend"),
        (f"r=xabc,s={SALT},i=4096", "nonce does not extend"),
        ("r=abcx,s=,i=4096", "salt has 0 bytes"),
        ("r=abcx,s=%%%%,i=4096", "s= is not base64"),
        (f"m=x,r=abcx,s={SALT},i=4096", "has no r, s, i"),
        (f"s={SALT},r=abcx,i=4096", "has no r, s, i"),
        ("", "has no r, s, i"),
    ],
)
def test_a_broker_that_lies_in_scram_is_refused(message: str, reason: str) -> None:
    client = scram()
    client.first()
    with pytest.raises(AuthenticationFailed, match=f"^SCRAM-SHA-256: .*{reason}"):
        client.next(message.encode())


def test_many_iterations_block_until_they_are_known() -> None:
    salted = security.SaltedPasswords()

    def client() -> security.ScramClient:
        made = security.ScramClient("SCRAM-SHA-256", "bob", security.Secret(SECRET), "abc", salted)
        made.first()
        return made

    few, many = (
        f"r=abcx,s={SALT},i={count}".encode() for count in (MIN_ITERATIONS, INLINE_ITERATIONS + 1)
    )
    assert not client().blocks(few)
    first = client()
    assert first.blocks(many)
    first.next(many)
    assert not client().blocks(many)


def test_a_final_message_needs_the_signature() -> None:
    client = scram()
    client.first()
    client.next(f"r=abcx,s={SALT},i=4096".encode())
    for token in (b"", b"v=", b"v=AAAA", b"e=other-error"):
        with pytest.raises(AuthenticationFailed):
            client.next(token)


def test_salted_passwords_are_bounded() -> None:
    salted = security.SaltedPasswords()
    for number in range(200):
        salted.get("sha256", security.Secret(SECRET), number.to_bytes(2, "big"), 1)
    assert int(repr(salted).split("(")[1].split()[0]) <= 64
