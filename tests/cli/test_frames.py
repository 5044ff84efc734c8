from __future__ import annotations

import pytest

from aiokafkawire import wire
from aiokafkawire.cli.error_text import CommandFailed
from aiokafkawire.cli.frames import (
    MAX_PENDING,
    FrameDecoder,
    FrameHint,
    find_api,
    parse_hex,
    split_frames,
)
from aiokafkawire.errors import InvalidOption, MalformedMessage
from aiokafkawire.wire.header import encode_request, encode_response
from aiokafkawire.wire.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from aiokafkawire.wire.messages.find_coordinator import FindCoordinatorResponse
from aiokafkawire.wire.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from aiokafkawire.wire.messages.metadata import MetadataResponse, MetadataResponseBroker
from tests.wire import vectors

NO_HINT = FrameHint()
BEAT = HeartbeatRequest(group_id="g", generation_id=2, member_id="m")


def request(correlation_id: int = 7, version: int = 4) -> bytes:
    return b"".join(encode_request(BEAT, version, correlation_id, "me"))


def response(correlation_id: int = 7, version: int = 4) -> bytes:
    message = HeartbeatResponse(throttle_time_ms=3, error_code=27)
    return b"".join(encode_response(message, version, correlation_id))


def bare(frame: bytes) -> memoryview:
    return memoryview(frame)[4:]


# --- hexadecimal digits ---


@pytest.mark.parametrize(
    ("text", "bytes_of"),
    [
        (b"0a0B", b"\n\x0b"),
        (b"0x0a 0b", b"\n\x0b"),
        (b"0a:0b\n0c\n", b"\n\x0b\x0c"),
        (b"0a0\n0a0", b"\n\x00\xa0"),
    ],
)
def test_digits_are_bytes(text: bytes, bytes_of: bytes):
    assert parse_hex(text) == [bytes_of]


@pytest.mark.parametrize("data", [b"\x00\x00\x00\x04abcd", b"xyz", b"", b" \n"])
def test_other_text_is_none(data: bytes):
    assert parse_hex(data) is None


def test_half_a_byte_is_refused():
    with pytest.raises(CommandFailed, match="3 hexadecimal digits"):
        parse_hex(b"0a0")


def test_lines_of_whole_frames_stand_for_themselves():
    lines = [request(1), request(2)]
    text = "\n".join(line.hex() for line in lines).encode()
    assert parse_hex(text) == lines
    # A dump of one frame over several lines is one piece.
    half = len(lines[0]) // 2
    assert parse_hex(f"{lines[0][:half].hex()}\n{lines[0][half:].hex()}".encode()) == [lines[0]]


# --- frames ---


def test_frames_are_cut_at_their_lengths():
    data = memoryview(request(1) + response(1))
    assert list(split_frames(data, NO_HINT)) == [bare(request(1)), bare(response(1))]


def test_one_frame_may_come_without_its_length():
    assert list(split_frames(bare(request()), NO_HINT)) == [bare(request())]


def test_what_is_left_over_is_reported_behind_the_frames():
    frames = split_frames(memoryview(request(1) + request(2)[:-2]), NO_HINT)
    assert next(frames) == bare(request(1))
    with pytest.raises(CommandFailed, match="bytes after frame 1 are not a whole frame"):
        next(frames)


def test_too_few_bytes_are_no_frame():
    with pytest.raises(CommandFailed, match="3 bytes are too few for a frame"):
        list(split_frames(memoryview(b"abc"), NO_HINT))
    assert list(split_frames(memoryview(b"abc"), FrameHint(body=True))) == [b"abc"]


# --- what a frame is ---


def test_a_request_says_what_it_is():
    found = FrameDecoder(NO_HINT).decode(bare(request()))
    assert (found.api.name, found.version, found.message) == ("Heartbeat", 4, BEAT)
    assert (found.correlation_id, found.client_id, found.is_response) == (7, "me", False)


def test_a_response_is_known_by_its_request():
    decoder = FrameDecoder(NO_HINT)
    decoder.decode(bare(request(7, version=3)))
    found = decoder.decode(bare(response(7, version=3)))
    assert (found.api.name, found.version, found.is_response) == ("Heartbeat", 3, True)
    assert not found.guessed
    # Its request is answered now: another response of the number is a guess.
    with pytest.raises(CommandFailed, match="Heartbeat v1 to v3"):
        decoder.decode(bare(response(7, version=3)))


def test_a_refusal_of_a_version_comes_in_another_layout():
    decoder = FrameDecoder(NO_HINT)
    asked = ApiVersionsRequest(client_software_name="a", client_software_version="1")
    decoder.decode(bare(b"".join(encode_request(asked, 4, 7, "me"))))
    answer = ApiVersionsResponse(error_code=35, api_keys=[])
    found = decoder.decode(bare(b"".join(encode_response(answer, 0, 7))))
    assert (found.api.name, found.version, found.message) == ("ApiVersions", 4, answer)


def test_what_does_not_fit_an_earlier_request_is_a_request():
    decoder = FrameDecoder(NO_HINT)
    # The first bytes of a request, its API and version, read as this correlation id.
    number = int.from_bytes(bare(request())[:4])
    decoder.decode(bare(request(number)))
    assert not decoder.decode(bare(request())).is_response


def test_the_memory_of_requests_is_bounded():
    decoder = FrameDecoder(FrameHint())
    for number in range(MAX_PENDING + 1):
        decoder.decode(bare(request(number)))
    with pytest.raises(CommandFailed, match="fit"):
        decoder.decode(bare(response(0)))
    assert decoder.decode(bare(response(1))).api.name == "Heartbeat"


def test_a_response_that_fits_one_api_alone_is_guessed():
    node = MetadataResponseBroker(node_id=1, host="localhost", port=9092)
    message = MetadataResponse(brokers=[node], topics=[], cluster_id="c", controller_id=1)
    found = FrameDecoder(NO_HINT).decode(bare(b"".join(encode_response(message, 12, 5))))
    assert (found.api.name, found.guessed, found.message) == ("Metadata", True, message)
    assert found.version in {11, 12}


def test_a_response_that_fits_many_asks_for_more():
    with pytest.raises(CommandFailed, match=r"--response --api NAME --version N") as failed:
        FrameDecoder(FrameHint(is_response=True)).decode(bare(response(version=1)))
    assert "Heartbeat v1 to v3" in str(failed.value)


def test_what_fits_nothing_says_why_it_is_no_request():
    with pytest.raises(
        CommandFailed, match="not a known response; as a request: unknown API key 999"
    ):
        FrameDecoder(NO_HINT).decode(memoryview(b"\x03\xe7\x00\x00\x00\x00\x00\x07" + bytes(50)))


def test_the_version_is_found_for_a_given_api():
    api = wire.APIS[wire.ApiKey.FIND_COORDINATOR]
    message = FindCoordinatorResponse(node_id=1, host="h", port=9092)
    frame = bare(b"".join(encode_response(message, 2, 5)))
    found = FrameDecoder(FrameHint(api, None, is_response=True)).decode(frame)
    assert (found.version, found.also_fits, found.message) == (2, (1,), message)
    found = FrameDecoder(FrameHint(api, 1, is_response=True)).decode(frame)
    assert (found.version, found.also_fits) == (1, ())
    with pytest.raises(MalformedMessage):
        FrameDecoder(FrameHint(api, 0, is_response=True)).decode(frame)
    with pytest.raises(InvalidOption, match="FindCoordinator has versions 0 to 6"):
        FrameDecoder(FrameHint(api, 7, is_response=True)).decode(frame)
    with pytest.raises(CommandFailed, match="not a FindCoordinator response of any version"):
        FrameDecoder(FrameHint(api, None, is_response=True)).decode(bare(response(version=1)))


def test_another_request_than_said_is_refused():
    with pytest.raises(CommandFailed, match="is a Heartbeat request, not Fetch"):
        FrameDecoder(FrameHint(wire.APIS[wire.ApiKey.FETCH])).decode(bare(request()))


def test_a_body_has_no_header():
    api = wire.APIS[wire.ApiKey.HEARTBEAT]
    header_bytes = 4 + 8 + 2 + 2 + 1  # length, key to correlation id, client id, tags
    body = memoryview(request())[header_bytes:]
    assert FrameDecoder(FrameHint(api, 4, body=True)).decode(body).message == BEAT
    with pytest.raises(InvalidOption, match="--body needs --api and --version"):
        FrameDecoder(FrameHint(api, body=True)).decode(body)


def test_versions_that_lay_out_alike_are_reported():
    frame = bare(b"".join(encode_request(ApiVersionsRequest(), 0, 1, None)))
    assert FrameDecoder(NO_HINT).decode(frame).also_fits == ()


def firsts(file: str) -> dict[tuple[int, int], wire.Message]:
    """One message of Kafka's own making for each API and version."""
    found: dict[tuple[int, int], wire.Message] = {}
    for vector in vectors.lines(file):
        key = vector["apiKey"], vector["version"]
        cls = wire.message_class(vector["message"])
        api = wire.APIS[vector["apiKey"]]
        # Some APIs had another name once.
        if key not in found and cls in {api.request, api.response}:
            found[key] = wire.decode(cls, vector["version"], bytes.fromhex(vector["hex"]))
    return found


def test_a_conversation_in_every_api_and_version_is_understood():
    decoder = FrameDecoder(NO_HINT)
    responses = firsts("responses")
    requests = firsts("requests")
    assert requests.keys() == responses.keys()
    for number, ((key, version), message) in enumerate(requests.items(), 1000):
        assert isinstance(message, wire.Request)
        frame = bare(b"".join(encode_request(message, version, number, "me")))
        found = decoder.decode(frame)
        assert (found.api.key, found.version, found.message) == (key, version, message)
        answer = responses[key, version]
        assert isinstance(answer, wire.Response)
        frame = bare(b"".join(encode_response(answer, version, number)))
        found = decoder.decode(frame)
        assert (found.api.key, found.version, found.is_response) == (key, version, True)
        assert wire.to_json(found.message, version) == wire.to_json(answer, version)


@pytest.mark.parametrize("text", ["Fetch", "fetch", "FETCH", "FetchRequest", "fetch-response", "1"])
def test_an_api_is_found_by_name_or_key(text: str):
    assert find_api(text).key == wire.ApiKey.FETCH


def test_the_nearest_api_is_named():
    with pytest.raises(InvalidOption, match=r"did you mean 'JoinGroup'\?$"):
        find_api("JoinGruop")


def test_without_a_near_one_all_apis_are_named():
    with pytest.raises(InvalidOption, match="unknown --api 'zzzz'; there are Produce, Fetch, "):
        find_api("zzzz")
