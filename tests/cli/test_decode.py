from __future__ import annotations

import json
from pathlib import Path

import pytest

from aiokafkawire.cli import decode
from aiokafkawire.wire.header import encode_request, encode_response
from aiokafkawire.wire.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from aiokafkawire.wire.messages.sync_group import SyncGroupResponse

from .conftest import Cli
from .shell import aiokafkawire

REQUEST = b"".join(
    encode_request(HeartbeatRequest(group_id="g", generation_id=2, member_id="m"), 4, 7, "me")
)
RESPONSE = b"".join(encode_response(HeartbeatResponse(throttle_time_ms=0, error_code=27), 4, 7))
HEADER = {"requestApiKey": 12, "requestApiVersion": 4, "requestApiKeyName": "HEARTBEAT"}
FIRST = {
    "requestHeader": {**HEADER, "correlationId": 7, "clientId": "me"},
    "request": {"groupId": "g", "generationId": 2, "memberId": "m", "groupInstanceId": None},
}
SECOND = {
    "requestHeader": HEADER,
    "responseHeader": {"correlationId": 7},
    "response": {"throttleTimeMs": 0, "errorCode": 27},
}


def test_digits_become_json(cli: Cli):
    code, out, err = cli("decode", REQUEST.hex())
    assert (code, err) == (0, "")
    assert json.loads(out) == FIRST
    assert out.startswith(b'{\n  "requestHeader"')


def test_digits_may_be_cut_by_spaces(cli: Cli):
    assert json.loads(cli("decode", *REQUEST.hex(" ").split())[1]) == FIRST


@pytest.mark.parametrize("hexadecimal", [True, False])
def test_a_file_of_frames(cli: Cli, tmp_path: Path, hexadecimal: bool):
    path = tmp_path / "frames"
    data = REQUEST + RESPONSE
    path.write_bytes(data.hex().encode() + b"\n" if hexadecimal else data)
    code, out, err = cli("decode", "-f", str(path), "--json")
    assert (code, err) == (0, "")
    assert [json.loads(line) for line in out.splitlines()] == [FIRST, SECOND]


@pytest.mark.slow
@pytest.mark.parametrize("data", [REQUEST + RESPONSE, (REQUEST + RESPONSE).hex().encode()])
def test_stdin(data: bytes):
    done = aiokafkawire("decode", "--json", stdin=data)
    assert (done.returncode, done.stderr) == (0, b"")
    assert [json.loads(line) for line in done.stdout.splitlines()] == [FIRST, SECOND]


@pytest.mark.slow
def test_a_reader_that_has_enough_is_no_failure():
    done = aiokafkawire("decode", "--json", stdin=REQUEST * 20_000)
    assert done.returncode == 0
    assert len(done.stdout.splitlines()) == 20_000


def test_a_response_alone(cli: Cli):
    options = ("--response", "--api", "heartbeat", "--version", "4")
    assert json.loads(cli("decode", RESPONSE.hex(), *options)[1]) == SECOND


def test_a_body_alone(cli: Cli):
    body = RESPONSE[9:].hex()
    options = ("--response", "--api", "12", "--version", "4", "--body")
    code, out, _ = cli("decode", body, *options)
    assert (code, json.loads(out)) == (
        0,
        {key: SECOND[key] for key in ("requestHeader", "response")},
    )


def test_what_is_inside_is_shown_with_inside(cli: Cli):
    message = SyncGroupResponse(error_code=0, assignment=bytes.fromhex("00000000000000000000"))
    frame = b"".join(encode_response(message, 0, 7)).hex()
    options = ("--response", "--api", "SyncGroup", "--version", "0", "--json")
    assert b'"assignment": "AAAAAAAAAAAAAA=="' in cli("decode", frame, *options)[1]
    inside = json.loads(cli("decode", frame, *options, "-i")[1])["response"]["assignment"]
    assert inside == {"version": 0, "assignedPartitions": [], "userData": ""}


def test_frames_before_a_bad_one_are_printed(cli: Cli, tmp_path: Path):
    path = tmp_path / "frames"
    bad = b"\x00\x00\x00\x08\x00\x0c\x00\x63\x00\x00\x00\x01"
    path.write_bytes(REQUEST + bad)
    code, out, err = cli("decode", "--json", "-f", str(path))
    assert code == 1
    assert [json.loads(line) for line in out.splitlines()] == [FIRST]
    assert err.startswith("aiokafkawire: frame 2, 8 bytes: ")
    assert err.count("\n") == 1


@pytest.mark.parametrize(
    ("arguments", "code", "reason"),
    [
        (("xyz",), 2, "'xyz' is not hexadecimal; use -f to read a file"),
        (("0a0",), 1, "3 hexadecimal digits are an odd number"),
        (("00", "-f", __file__), 2, "HEX and -f exclude each other"),
        (("00", "--version", "1"), 2, "--version needs --api"),
        (("00", "--api", "Fetsh"), 2, "did you mean 'Fetch'?"),
        (("00", "--body"), 2, "--body needs --api and --version"),
        (("00",), 1, "1 bytes are too few for a frame"),
        (("00000000", "--api", "fetch", "--response", "--version", "99"), 2, "0 to"),
    ],
)
def test_what_is_wrong_is_reported_in_one_line(
    cli: Cli, arguments: tuple[str, ...], code: int, reason: str
):
    got, out, err = cli("decode", *arguments)
    assert (got, out, err.count("\n")) == (code, b"", 1)
    assert reason in err


def test_an_empty_input_is_refused(cli: Cli, tmp_path: Path):
    path = tmp_path / "empty"
    path.touch()
    code, _, err = cli("decode", "-f", str(path))
    assert (code, "the input is empty" in err) == (1, True)


def test_an_input_is_bounded(cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(decode, "MAX_INPUT_BYTES", 10)
    path = tmp_path / "large"
    path.write_bytes(REQUEST)
    code, _, err = cli("decode", "-f", str(path))
    assert (code, "larger than 10 bytes" in err) == (1, True)
