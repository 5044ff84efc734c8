"""The kept corpus is read within its bounds, and the search would notice what it looks for."""

from __future__ import annotations

import random
import re
import tracemalloc
from collections.abc import Iterator
from itertools import islice
from pathlib import Path

import pytest

from aiokafkawire.errors import KafkaError
from aiokafkawire.runtime.tls_transport import TlsTransport
from aiokafkawire.security import ScramServer
from tests.fuzz import __main__ as command
from tests.fuzz import targets
from tests.fuzz.kept import FOLDER, keep, kept
from tests.fuzz.security_targets import SECURITY_TARGETS
from tests.fuzz.targets import MAX_BYTES, OTHERS, TARGETS, Broken, beginnings, bounded, tried
from tests.wire.fuzz import mutate

MAX_CORPUS_BYTES = 300 * 1_024


@pytest.fixture
def _traced() -> Iterator[None]:
    tracemalloc.start()
    yield
    tracemalloc.stop()


@pytest.mark.parametrize("name", TARGETS)
@pytest.mark.usefixtures("_traced")
def test_what_was_found_is_read_or_refused(name: str) -> None:
    read = [bounded(name, raw) for raw in kept(name)]
    assert read
    assert False in read


def test_the_corpus_stays_small() -> None:
    assert sum(path.stat().st_size for path in FOLDER.iterdir()) < MAX_CORPUS_BYTES


@pytest.mark.parametrize("name", TARGETS)
def test_golden_vectors_are_good_beginnings(name: str) -> None:
    short = [raw for raw in islice(beginnings(name), 300) if len(raw) <= MAX_BYTES]
    assert sum(tried(name, raw) for raw in short) > len(short) * 0.9


def test_broken_inputs_are_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    def breaks(raw: bytes) -> None:
        raise KeyError(raw[3])

    monkeypatch.setitem(TARGETS, "others", breaks)  # type: ignore[arg-type]
    with pytest.raises(Broken, match=re.escape("others: KeyError(4)\n01020304")):
        tried("others", b"\1\2\3\4")


@pytest.mark.usefixtures("_traced")
def test_inputs_that_take_much_memory_are_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(targets, "OTHERS", (lambda raw: bytes(len(raw) << 22),))
    assert bounded("others", b"\0" * 1)
    with pytest.raises(Broken, match=r"others: \d+ bytes for 3"):
        bounded("others", b"\0" * 3)


def test_frames_split_differently_are_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = b"\7" + b"\0\0\0\4abcd\0\0\0\5defgh"
    assert tried("streams", whole)
    assert not tried("streams", whole + b"\xff\xff\xff\xff")
    monkeypatch.setattr(targets, "_frames", lambda rest: iter([b"abc"]))
    with pytest.raises(Broken, match="the frames are"):
        tried("streams", whole)


def test_every_input_has_its_reader() -> None:
    assert not tried("others", bytes((len(OTHERS),)))
    assert all(
        tried(name, b"") or name == "requests" for name in TARGETS.keys() - SECURITY_TARGETS.keys()
    )
    assert {name for name in SECURITY_TARGETS if tried(name, b"")} == {
        *("plain_client", "oauthbearer_client", "tls_client", "tls_server")
    }
    with pytest.raises(KafkaError):
        targets.requests(b"")


def test_a_corpus_is_kept_as_text(tmp_path: Path) -> None:
    keep("streams", [b"\1\2", b"\3", b"", b"\1\2"], tmp_path)
    assert (tmp_path / "streams.txt").read_text() == "03\n0102\n"
    assert list(kept("streams", tmp_path)) == [b"\3", b"\1\2"]
    assert list(kept("batches", tmp_path)) == []


def test_without_guidance_inputs_are_mutated() -> None:
    random.seed(1)
    said = command.blind("streams", 60, 500)
    found = re.fullmatch(r"streams: \d+ mutated inputs of (\d+) bytes in 0 s; \d+ good .*", said)
    assert found is not None
    assert int(found[1]) >= 500


@pytest.mark.parametrize("name", SECURITY_TARGETS)
@pytest.mark.usefixtures("_traced")
def test_mutated_tokens_and_ciphertext_are_read_or_refused(name: str) -> None:
    rng = random.Random(name)
    good = [*kept(name), *beginnings(name)]
    count = 100 if name.startswith("tls") else 400
    assert False in {bounded(name, mutate(rng, rng.choice(good), good)) for _ in range(count)}


def test_a_server_that_admits_a_stranger_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    def admit(server: ScramServer, _: str) -> bytes:
        server.principal = "bob"
        return b""

    (good,) = beginnings("scram_server")
    monkeypatch.setattr(ScramServer, "_check", admit)
    assert tried("scram_server", good)
    with pytest.raises(Broken, match="scram_server admits 'bob'"):
        tried("scram_server", good[:-8] + b"AAAAAAA=")


def test_a_client_that_accepts_a_stranger_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    (good,) = beginnings("scram_client")
    wrong = good[:-8] + b"AAAAAAA="
    assert not tried("scram_client", wrong)
    monkeypatch.setattr("aiokafkawire.security.scram.hmac.compare_digest", lambda *_: True)
    with pytest.raises(Broken, match="the client accepts"):
        tried("scram_client", wrong)


@pytest.mark.parametrize("name", ["tls_client", "tls_server"])
def test_data_that_the_peer_has_not_sent_is_reported(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    decrypt = TlsTransport._decrypt

    def forge(transport: TlsTransport, buffer: memoryview) -> int | None:
        count = decrypt(transport, buffer)
        buffer[0] = 7
        return count

    monkeypatch.setattr(TlsTransport, "_decrypt", forge)
    with pytest.raises(Broken, match="bytes that the peer has not sent"):
        tried(name, next(beginnings(name)))


@pytest.mark.slow
@pytest.mark.skipif(not command.is_there(), reason="atheris is not to be had for this Python")
def test_the_search_reaches_what_was_not_there(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(command, "kept", lambda name: iter([b"\1\0\0\0\1"]))
    monkeypatch.setattr(command, "keep", lambda name, inputs: keep(name, inputs, tmp_path))
    assert command.main(["streams", "--seconds", "3", "--keep"]) == 0
    assert "streams: " in capsys.readouterr().out
    assert len(list(kept("streams", tmp_path))) > 3
