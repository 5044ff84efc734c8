"""The broker answers recorded clients of SASL as the real brokers did, step by step."""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Iterator, Mapping
from typing import Any

import anyio
import pytest

from aiokafkawire.broker import Broker, BrokerSasl, ValidatedToken
from aiokafkawire.broker.authentication import authenticator
from aiokafkawire.runtime import Address, RealRuntime
from aiokafkawire.security import ScramCredential, Secret, TokenRefused
from aiokafkawire.wire import ApiKey
from aiokafkawire.wire.frame import FrameReader

from ...security.test_transcripts import PLAIN_USERS, SCRAM_USERS
from ...security.transcripts import conversations, decode_request, decode_response
from .shifted_clock import ShiftedRuntime

MAX_REAUTH_MS = 4_000
OAUTH_MAX_REAUTH_MS = 60_000
STEP_S = 20
OPEN_S = 0.1

MECHANISMS = {"", "PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER"}

LEFT_OUT = {
    # Delegation tokens, and GSSAPI in the first frame.
    *("token_ok", "token_ok_512", "token_without_extension", "token_wrong_hmac"),
    *("token_reauth_session", "token_create_anonymous", "token_expired", "token_used_at_once"),
}

Step = dict[str, Any]

RECORDED = [
    (scenario, release, steps)
    for scenario, release, steps in conversations()
    if steps[0]["mechanism"] in MECHANISMS and scenario not in LEFT_OUT
]


def test_most_conversations_are_played() -> None:
    assert len(RECORDED) == 141
    assert len({release for _, release, _ in RECORDED}) == 7


class Play:
    """One conversation with a broker."""

    def __init__(self, scenario: str, steps: list[Step]) -> None:
        self.scenario = scenario
        self.steps = steps
        self.tokens = [*self._tokens()]
        self.asked: dict[int, tuple[int, int]] = {}

    def _tokens(self) -> list[tuple[str, bytes]]:
        """Return direction and bytes of each token."""
        tokens: list[tuple[str, bytes]] = []
        asked: dict[bytes, int] = {}
        for step in self.steps:
            body = bytes.fromhex(step["hex"])[4:]
            if step["meaning"].startswith("raw token frame"):
                tokens.append((step["dir"], body))
            elif step["dir"] == ">" and body[:2] == b"\0\x24" and len(body) > 8:
                version = int.from_bytes(body[2:4], "big")
                asked[body[4:8]] = version
                token = decode_request(ApiKey.SASL_AUTHENTICATE, version, body).auth_bytes
                tokens.append((">", token))
            elif step["dir"] == "<" and body[:4] in asked:
                version = asked.pop(body[:4])
                answer = decode_response(ApiKey.SASL_AUTHENTICATE, version, body)
                if answer.error_code == 0:
                    tokens.append(("<", answer.auth_bytes))
        return tokens

    @property
    def lifetimes_ms(self) -> list[int]:
        found = (re.search(r"session_lifetime_ms=(\d+)", step["meaning"]) for step in self.steps)
        return [int(match[1]) for match in found if match]

    @property
    def claims(self) -> dict[str, Any]:
        """Claims of the first token of OAUTHBEARER, empty without one."""
        for _, token in self.tokens:
            if found := re.search(rb"Bearer [^.]+\.([^.]+)\.", token):
                part = found[1]
                decoded = base64.urlsafe_b64decode(part + b"=" * (-len(part) % 4))
                claims: dict[str, Any] = json.loads(decoded)
                return claims
        return {}

    @property
    def wall_ms(self) -> int | None:
        """Time of the broker: what is left of the token decided the lifetime of the session."""
        claims = self.claims
        if not claims:
            return None
        lifetime_ms = max(self.lifetimes_ms, default=0)
        if 0 < lifetime_ms < MAX_REAUTH_MS or MAX_REAUTH_MS < lifetime_ms < OAUTH_MAX_REAUTH_MS:
            return int(claims["exp"] * 1000) - lifetime_ms
        if "within_skew" in self.scenario:
            return int(claims["exp"] * 1000) + 2_000
        is_expired = self.scenario == "oauth_unsecured_expired"
        return int(claims["iat"] * 1000) + (3_600_000 if is_expired else 1)

    def nonces(self) -> list[str]:
        """Return the parts of the SCRAM nonces that the broker chose."""
        return [found["r"].removeprefix(found["client"]) for found in self._challenges()]

    def _challenges(self) -> Iterator[dict[str, str]]:
        for (_, first), (direction, answer) in zip(self.tokens, self.tokens[1:], strict=False):
            if direction == "<" and first.startswith(b"n,") and answer.startswith(b"r="):
                parts = dict(part.partition("=")[::2] for part in answer.decode().split(","))
                bare = first.decode().split(",", 2)[2].split(",")
                own = dict(part.partition("=")[::2] for part in bare)
                yield {**parts, "client": own["r"]}

    def set_credentials(self, broker: Broker, mechanism: str) -> None:
        """Give the user of SCRAM the recorded salt."""
        store = broker._running.credentials
        for user in PLAIN_USERS:
            store.delete_scram(user, mechanism)
        if self.scenario == "scram_user_without_this_mechanism":
            return
        for found in [*self._challenges()] or [{"s": "c2FsdA==", "i": "4096"}]:
            for user, password in SCRAM_USERS.items():
                credential = ScramCredential.from_password(
                    mechanism, Secret(password), base64.b64decode(found["s"]), int(found["i"])
                )
                store.set_scram(user, mechanism, credential)

    def validate(self, token: Secret, extensions: Mapping[str, str]) -> ValidatedToken:
        """Accept the tokens that the identity provider signed and the broker accepted."""
        [answer, *_] = (answer for direction, answer in self.tokens if direction == "<")
        if answer:
            raise TokenRefused(answer.decode())
        return ValidatedToken(self.claims["sub"], int(self.claims["exp"] * 1000))

    # --- comparison --------------------------------------------------------------------------

    def note_request(self, frame: bytes) -> None:
        body = frame[4:]
        if len(body) >= 8:
            key, version = int.from_bytes(body[:2], "big"), int.from_bytes(body[2:4], "big")
            self.asked[int.from_bytes(body[4:8], "big")] = key, version

    def compare(self, step: Step, expected: bytes, actual: bytes) -> None:
        key, version = self.asked.get(int.from_bytes(expected[:4], "big"), (-1, 0))
        assert actual[:4] == expected[:4], "correlation id, or a token"
        if key == ApiKey.API_VERSIONS:
            assert actual[4:6] == expected[4:6], "error code"
            if "error=0" not in step["meaning"] and version < 99:
                assert actual == expected
        elif key == ApiKey.METADATA and "ILLEGAL_SASL_STATE" not in step["meaning"]:
            assert decode_response(key, version, actual).brokers
        elif key == ApiKey.SASL_HANDSHAKE:
            ours, theirs = (
                decode_response(key, version, actual),
                decode_response(key, version, expected),
            )
            assert ours.error_code == theirs.error_code
            assert ours.mechanisms == [each for each in theirs.mechanisms if each != "GSSAPI"]
        else:
            assert actual == expected


def mechanisms_of(steps: list[Step]) -> list[str] | None:
    """Return the mechanisms that the recorded broker listed, without GSSAPI."""
    for step in steps:
        if found := re.search(r"mechanisms=\[('.*?')\]", step["meaning"]):
            return [name.strip("' ") for name in found[1].split(",") if "GSSAPI" not in name]
    return None


@pytest.mark.parametrize(
    ("scenario", "release", "steps"),
    RECORDED,
    ids=[f"{scenario}-{release}" for scenario, release, _ in RECORDED],
)
async def test_the_broker_answers_as_recorded(
    scenario: str, release: str, steps: list[Step], monkeypatch: pytest.MonkeyPatch
) -> None:
    play = Play(scenario, steps)
    nonces = iter(play.nonces())
    monkeypatch.setattr(authenticator, "random_text", lambda rng: next(nonces, "unused"))
    mechanism = steps[0]["mechanism"]
    is_oauth, is_oidc = scenario.startswith("oa"), scenario.startswith("oidc")
    sasl = BrokerSasl(
        users=PLAIN_USERS,
        mechanisms=mechanisms_of(steps),
        token_validator=play.validate if is_oidc else None,
    )
    lifetime = MAX_REAUTH_MS if any(each == MAX_REAUTH_MS for each in play.lifetimes_ms) else 0
    if scenario.startswith("reauth"):
        lifetime = MAX_REAUTH_MS
    elif (is_oauth or is_oidc) and release == "4.3.0" and scenario != "oidc_no_max_reauth":
        lifetime = OAUTH_MAX_REAUTH_MS
    on_plaintext = "plaintext_listener" in scenario
    runtime = ShiftedRuntime(play.wall_ms)
    async with Broker(
        runtime=runtime,
        as_of=release,
        sasl=sasl,
        listeners=["PLAINTEXT", "SASL_PLAINTEXT"],
        connections_max_reauth_ms=lifetime,
        connection_failed_authentication_delay_ms=10,
    ) as broker:
        if mechanism.startswith("SCRAM"):
            play.set_credentials(broker, mechanism)
        servers = broker.listeners["PLAINTEXT" if on_plaintext else "SASL_PLAINTEXT"]
        host, _, port = servers.rpartition(":")
        transport = await RealRuntime().connect(Address(host, int(port)))
        reader, frames = FrameReader(2**20, 0), []
        try:
            for step in steps:
                sent = bytes.fromhex(step["hex"])
                if step["dir"] == "-":
                    if found := re.match(r"([\d.]+) s pass", step["meaning"]):
                        runtime.ahead.advance(float(found[1]))
                    continue
                if step["dir"] == ">":
                    if scenario == "reauth_three_times" and sent[4:6] == b"\0\x11":
                        # The pauses of this recording were not noted.
                        runtime.ahead.advance(1.5)
                    play.note_request(sent)
                    await transport.send([sent])
                    continue
                if "still open" in step["meaning"]:
                    with anyio.move_on_after(OPEN_S) as scope:
                        await transport.receive_into(reader.get_buffer())
                    assert scope.cancelled_caught
                    continue
                with anyio.fail_after(STEP_S):
                    actual = None
                    while not frames:
                        try:
                            count = await transport.receive_into(reader.get_buffer())
                        except OSError:
                            count = 0
                        if not count:
                            break
                        frames += reader.buffer_updated(count)
                    if frames:
                        actual = bytes(frames.pop(0))
                if not sent:
                    assert actual is None, f"closed was expected: {step['meaning']}"
                else:
                    assert actual is not None, f"closed, but expected: {step['meaning']}"
                    play.compare(step, sent[4:], actual)
        finally:
            await transport.aclose()
