"""Sources of options: flags, the environment, a file."""

from __future__ import annotations

import base64
import json
import os
import sys
import time
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from aiokafkawire.broker import BrokerSasl
from aiokafkawire.cli.arguments import client_options, parse_assignments
from aiokafkawire.config import ClientConfig, ConsumerConfig, ProducerConfig
from aiokafkawire.errors import InvalidOption
from aiokafkawire.testing import KafkaBroker

from .conftest import Cli
from .shell import aiokafkawire, running

SERVERS = "AIOKAFKAWIRE_BOOTSTRAP_SERVERS"
CONFIG = "AIOKAFKAWIRE_CONFIG"

LINUX = pytest.mark.skipif(sys.platform != "linux", reason="the file is Linux's")

Write = Callable[[str], Path]


@pytest.fixture(autouse=True)
def no_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in os.environ:
        if name.startswith("AIOKAFKAWIRE_"):
            monkeypatch.delenv(name, raising=False)


@pytest.fixture
def write(tmp_path: Path) -> Write:
    """A config file of this content."""

    def put(text: str) -> Path:
        path = tmp_path / "kafka.properties"
        path.write_text(text, encoding="utf-8")
        return path

    return put


def test_a_file_has_an_option_a_line(write: Write):
    path = write(
        "# brokers\n! of the test cluster\n\n"
        "bootstrap.servers = one:1, two:2\n  linger_ms=7\r\nclient_id=a=b # c\nlinger_ms=8\n"
    )
    options = client_options(ProducerConfig, (), {}, config=path)
    assert options == {"bootstrap_servers": "one:1, two:2", "linger_ms": 8, "client_id": "a=b # c"}


def test_a_file_serves_every_client(write: Write):
    path = write("bootstrap_servers=h:1\nlinger_ms=7\ngroup.id=g\n")
    servers = {"bootstrap_servers": "h:1"}
    assert client_options(ClientConfig, (), {}, config=path) == servers
    assert client_options(ProducerConfig, (), {}, config=path) == servers | {"linger_ms": 7}
    assert client_options(ConsumerConfig, (), {}, config=path) == servers | {"group_id": "g"}


def test_flags_go_before_the_environment_and_that_before_the_file(
    write: Write, monkeypatch: pytest.MonkeyPatch
):
    path = write("bootstrap_servers=file:1\nlinger_ms=1\nretries=1\nacks=1\nmax_block_ms=1\n")

    def servers(*assignments: str, flag: str | None = None) -> Any:
        given = {"bootstrap_servers": flag}
        return client_options(ProducerConfig, assignments, given, config=path)["bootstrap_servers"]

    assert servers() == "file:1"
    monkeypatch.setenv(SERVERS, "")
    assert servers() == "file:1"
    monkeypatch.setenv(SERVERS, "environment:1")
    assert servers() == "environment:1"
    assert servers("bootstrap_servers=x:1") == "x:1"
    assert servers("bootstrap_servers=x:1", flag="flag:1") == "flag:1"

    options = client_options(
        ProducerConfig,
        ["acks=0"],
        {},
        {"linger_ms": 0, "retries": 0, "compression_type": "gzip"},
        config=path,
        command_values={"retries": 2, "acks": "all"},
    )
    assert (options["linger_ms"], options["retries"], options["acks"]) == (1, 2, 0)
    assert (options["max_block_ms"], options["compression_type"]) == (1, "gzip")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a line", "line 1 is not of the form option=value"),
        ("\n=5", "line 2 is not of the form option=value"),
        ("linger=5", "line 1: unknown option 'linger'; did you mean 'linger_ms'?"),
        ("batch.size=5", "line 1: unknown option 'batch.size'; did you mean 'batch_size_bytes'?"),
        ("ssl.engine.factory.class=x", "line 1: unknown option 'ssl.engine.factory.class'; did"),
        ("\nsasl.mechanism=NTLM", "line 2: sasl_mechanism must be one of 'PLAIN', "),
        ("\n\nsasl.jaas.config=x", "line 3: sasl.jaas.config is not of the form LoginModule"),
        ("ssl.truststore.location=a.jks", "line 1: ssl.truststore.location is a JKS file"),
        ("client_id=\\\n\\\n\\u00e", "line 1: \\u must be followed by four hexadecimal digits"),
        ("segment_bytes=1", "line 1: unknown option 'segment_bytes'"),
        ("linger_ms=soon", "line 1: linger_ms must be a whole number, not 'soon'"),
        ("group_id=g\nfetch_min_bytes=-1", "line 2: fetch_min_bytes must be at least 0"),
        ("bootstrap_servers=h:port", "line 1: "),
        ("partitioner=mine", "line 1: partitioner takes a Python object"),
        ("client_id=a\x85b\u2028c\x0cd\n?", "line 2 is not of the form option=value"),
        ("bootstrap_servers=h:" + "9" * 5_000, "line 1: bootstrap server 'h:999"),
    ],
)
def test_a_wrong_line_is_named(text: str, message: str, write: Write):
    path = write(text)
    # Also by a client that does not have the option.
    for config_class in (ClientConfig, ProducerConfig, ConsumerConfig):
        with pytest.raises(InvalidOption) as failure:
            client_options(config_class, (), {"bootstrap_servers": "h:1"}, config=path)
        assert str(failure.value).startswith(f"{path}, {message}")


def test_a_file_that_is_no_text_is_refused(tmp_path: Path):
    path = tmp_path / "binary"
    path.write_bytes(b"client_id=\xff\n")
    with pytest.raises(InvalidOption, match="is not UTF-8"):
        client_options(ClientConfig, (), {}, config=path)


@LINUX
def test_a_file_without_an_end_is_refused():
    with pytest.raises(InvalidOption, match="/dev/zero has more than"):
        client_options(ClientConfig, (), {}, config=Path("/dev/zero"))


@LINUX
def test_a_file_that_cannot_be_read_is_refused():
    with pytest.raises(InvalidOption, match="/proc/self/mem cannot be read: Input/output error"):
        client_options(ClientConfig, (), {}, config=Path("/proc/self/mem"))


@pytest.mark.parametrize("name", ["linger_ms", "connect_on_start"])
def test_a_long_value_is_named_in_part(name: str):
    with pytest.raises(InvalidOption) as failure:
        client_options(ProducerConfig, (f"{name}={'9' * 5_000}",), {})
    assert len(str(failure.value)) < 2_000


def test_brokers_must_come_from_somewhere():
    with pytest.raises(InvalidOption, match=f"-b HOST:PORT, {SERVERS} in the environment, or"):
        client_options(ClientConfig, (), {})


@pytest.mark.parametrize(
    "arguments",
    [
        ("consume", "t"),
        ("produce", "t"),
        ("topics", "list"),
        ("topics", "create", "t"),
        ("groups", "list"),
        ("txns", "list"),
    ],
    ids=" ".join,
)
def test_every_command_takes_brokers_from_anywhere(
    arguments: tuple[str, ...], cli: Cli, write: Write, monkeypatch: pytest.MonkeyPatch
):
    code, out, err = cli(*arguments)
    assert (code, out, err.count("\n")) == (2, b"", 1)
    assert "brokers are missing" in err
    path = str(write("bootstrap_servers=no-number:port"))
    for given in (("--config", path), ("-F", path)):
        code, _, err = cli(*arguments, *given)
        assert (code, err.count("\n")) == (2, 1)
        assert f"{path}, line 1: " in err
    monkeypatch.setenv(CONFIG, path)
    assert f"{path}, line 1: " in cli(*arguments)[2]
    monkeypatch.setenv(CONFIG, f"{path}-not")
    code, _, err = cli(*arguments)
    assert (code, err.count("\n")) == (2, 1)
    assert CONFIG in err
    assert "does not exist" in err
    monkeypatch.delenv(CONFIG)
    monkeypatch.setenv(SERVERS, "no-number:port")
    code, _, err = cli(*arguments)
    assert (code, err.count("\n")) == (2, 1)
    assert "no-number:port" in err


# --- TLS and SASL ---

SECRET = "only-the-tests-know-this-secret"

JAVA = f"""\
bootstrap.servers = SASL_SSL://h:9093
security.protocol = SASL_SSL
ssl.truststore.type = PEM
ssl.truststore.location = /etc/kafka/ca.pem
sasl.mechanism = SCRAM-SHA-512
sasl.jaas.config = org.apache.kafka.common.security.scram.ScramLoginModule required \\
    username="alice" \\
    password="{SECRET}";
"""

OPTIONS = {
    "bootstrap_servers": "SASL_SSL://h:9093",
    "security_protocol": "SASL_SSL",
    "ssl_cafile": "/etc/kafka/ca.pem",
    "sasl_mechanism": "SCRAM-SHA-512",
    "sasl_username": "alice",
    "sasl_password": SECRET,
}


@pytest.mark.parametrize(
    "text",
    [
        JAVA,
        # The names of this package
        "".join(f"{name}={value}\n" for name, value in OPTIONS.items()),
        # librdkafka, as kcat reads it
        "bootstrap.servers=SASL_SSL://h:9093\nsecurity.protocol=sasl_ssl\n"
        "ssl.ca.location=/etc/kafka/ca.pem\nsasl.mechanisms=SCRAM-SHA-512\n"
        f"sasl.username=alice\nsasl.password={SECRET}\n",
    ],
)
def test_a_file_can_have_the_names_of_any_client(text: str, write: Write):
    path = write(text)
    for config_class in (ClientConfig, ProducerConfig, ConsumerConfig):
        assert client_options(config_class, (), {}, config=path) == OPTIONS


TOML = """\
bootstrap_servers = ["SASL_SSL://h:9093", "i:9093"]
connect_on_start = false
request_timeout_ms = 7_000
security.protocol = "SASL_SSL"
[ssl.truststore]
type = "PEM"
location = "/etc/kafka/ca.pem"
[sasl]
mechanism = "SCRAM-SHA-512"
username = "alice"
password = '''only-the-tests-know-this-secret'''
"""


def test_a_file_can_be_toml(tmp_path: Path):
    path = tmp_path / "kafka.toml"
    path.write_text(TOML, encoding="utf-8")
    assert client_options(ClientConfig, (), {}, config=path) == OPTIONS | {
        "bootstrap_servers": "SASL_SSL://h:9093,i:9093",
        "connect_on_start": False,
        "request_timeout_ms": 7_000,
    }


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("linger_ms", " is not TOML: "),
        ("linger_ms = 1.5", ", linger_ms must be a string, a whole number, a boolean or a list"),
        ("[linger]\nms = true", ", linger.ms: linger_ms must be a whole number, not 'true'"),
        (
            "[linger]\nmss = 1",
            ", linger.mss: unknown option 'linger.mss'; did you mean 'linger_ms'?",
        ),
        (
            "a = [1]",
            ", a must be a string, a whole number, a boolean or a list of strings, not list",
        ),
        (
            "ssl.keystore.location = 'k.jks'",
            ", ssl.keystore.location: ssl.keystore.location is a JKS",
        ),
    ],
)
def test_a_wrong_key_of_toml_is_named(text: str, message: str, tmp_path: Path):
    path = tmp_path / "kafka.toml"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(InvalidOption) as failure:
        client_options(ProducerConfig, (), {"bootstrap_servers": "h:1"}, config=path)
    assert str(failure.value).startswith(f"{path}{message}")


@pytest.mark.parametrize(
    ("line", "value"),
    [
        (r"client_id=a\\b", r"a\b"),
        (r"client_id=\u0041\u00e9", "A\xe9"),
        (r"client_id=a\tb\:c", "a\tb:c"),
        ("client_id=a\\\n  b\\\n  # c", "ab# c"),
        ("client_id: a=b", "a=b"),
        ("client_id=a\\", "a"),
    ],
)
def test_properties_are_read_as_java_reads_them(line: str, value: str, write: Write):
    path = write(f"bootstrap_servers=h:1\n{line}\n")
    assert client_options(ClientConfig, (), {}, config=path)["client_id"] == value


@pytest.mark.parametrize(
    "text",
    [
        f"sasl.password {SECRET}",
        f"{SECRET}",
        f"ssl_keyfile=-----BEGIN PRIVATE KEY-----\n{'A' * 60}{SECRET}==\n",
        f"ssl.key.password={SECRET}\nssl.keystore.location=keystore.jks",
        f"sasl_password={SECRET}\ud800".encode("utf-8", "surrogatepass").decode("latin-1"),
        f"security.protocol=SASL_SSL\nsasl.mechanism=PLAIN\nsasl_password={SECRET}",
        f"sasl_passwort={SECRET}",
        f"sasl.jaas.config=org.x.PlainLoginModule required password={SECRET};",
    ],
)
def test_no_error_shows_a_secret_of_the_file(text: str, write: Write):
    path = write(text)
    with pytest.raises(InvalidOption) as failure:
        client_options(ClientConfig, (), {"bootstrap_servers": "h:1"}, config=path)
    assert SECRET not in "".join(traceback.format_exception(failure.value))


def test_a_file_in_another_encoding_is_refused_without_its_text(tmp_path: Path):
    path = tmp_path / "kafka.properties"
    path.write_bytes(f"sasl_password={SECRET}\xe9\n".encode("latin-1"))
    with pytest.raises(InvalidOption, match=r"is not UTF-8: .* at byte 45") as failure:
        client_options(ClientConfig, (), {}, config=path)
    assert SECRET not in "".join(traceback.format_exception(failure.value))


def test_every_option_has_an_environment_variable(write: Write, monkeypatch: pytest.MonkeyPatch):
    for name, value in OPTIONS.items():
        monkeypatch.setenv(f"AIOKAFKAWIRE_{name.upper()}", value)
    monkeypatch.setenv("AIOKAFKAWIRE_CONNECT_ON_START", "no")
    monkeypatch.setenv("AIOKAFKAWIRE_LINGER_MS", "7")
    monkeypatch.setenv("AIOKAFKAWIRE_SSL_CERTFILE", "")
    expected = OPTIONS | {"connect_on_start": False}
    assert client_options(ClientConfig, (), {}) == expected
    assert client_options(ProducerConfig, (), {}) == expected | {"linger_ms": 7}
    # Above the file, below -X.
    path = write("sasl_username=bob\nlinger_ms=9\n")
    options = client_options(ProducerConfig, ["sasl.username=carol"], {}, config=path)
    assert (options["sasl_username"], options["linger_ms"]) == ("carol", 7)


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("LINGER_MS", "soon", "linger_ms must be a whole number, not 'soon'"),
        ("SASL_MECHANISM", "plain", "sasl_mechanism must be one of "),
        ("SSL_CONTEXT", "x", "ssl_context takes a Python object: it cannot be set here"),
    ],
)
def test_a_wrong_variable_is_named(
    name: str, value: str, message: str, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv(f"AIOKAFKAWIRE_{name}", value)
    with pytest.raises(InvalidOption) as failure:
        client_options(ProducerConfig, (), {"bootstrap_servers": "h:1"})
    assert str(failure.value).startswith(f"AIOKAFKAWIRE_{name} in the environment: {message}")


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("SASL_PASWORD", "; did you mean 'sasl_password'?"),
        ("SASL_MECHANISMS", "; did you mean 'sasl_mechanism'?"),
        ("BOOTSTRAP_SERVER", "; did you mean 'bootstrap_servers'?"),
        ("CONFI", "; did you mean 'config'?"),
    ],
)
def test_a_misspelt_variable_is_warned_of(
    name: str, hint: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
):
    monkeypatch.setenv(f"AIOKAFKAWIRE_{name}", SECRET)
    client_options(ClientConfig, (), {"bootstrap_servers": "h:1"})
    (record,) = caplog.records
    assert record.getMessage() == f"AIOKAFKAWIRE_{name} in the environment sets no option{hint}"


def test_other_variables_are_not_warned_of(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
):
    # An option that only another client has is valid for all commands.
    for name, value in (("PURE_PYTHON", "1"), ("LINGER_MS", "7"), ("SASL_PASWORD", "")):
        monkeypatch.setenv(f"AIOKAFKAWIRE_{name}", value)
    client_options(ConsumerConfig, (), {"bootstrap_servers": "h:1"})
    assert caplog.records == []


def test_a_password_can_be_any_word():
    for password in ("none", "NULL", "7", " a "):
        options = client_options(
            ClientConfig,
            ["security_protocol=SASL_SSL", "sasl_mechanism=PLAIN", "sasl_username=u"],
            {"bootstrap_servers": "h:1", "sasl_password": password},
        )
        assert options["sasl_password"] == password
        given = (f"sasl_password={password}",)
        assert parse_assignments(ClientConfig, given)["sasl_password"] == password.strip()


def test_x_takes_names_of_librdkafka_as_kcat_does():
    given = ["security.protocol=ssl", "ssl.ca.location=ca.pem", "ssl.key.location=k"]
    given += ["ssl.certificate.location=c"]
    assert client_options(ClientConfig, given, {"bootstrap_servers": "h:1"}) == {
        "bootstrap_servers": "h:1",
        "security_protocol": "SSL",
        "ssl_cafile": "ca.pem",
        "ssl_certfile": "c",
        "ssl_keyfile": "k",
    }


@pytest.mark.parametrize("name", ["sasl_password", "sasl.password"])
def test_a_secret_on_the_command_line_is_warned_of(name: str, caplog: pytest.LogCaptureFixture):
    given = ["security.protocol=SASL_SSL", "sasl.mechanism=PLAIN", "sasl.username=alice"]
    client_options(ClientConfig, [*given, f"{name}={SECRET}"], {"bootstrap_servers": "h:1"})
    (record,) = caplog.records
    assert record.getMessage() == (
        "sasl_password of -X is visible to other users of this machine, in the list of processes:"
        " set AIOKAFKAWIRE_SASL_PASSWORD in the environment, or write it to the file of --config"
    )


def test_consume_warns_of_a_secret_once(cli: Cli, caplog: pytest.LogCaptureFixture):
    # The options contradict each other, so that the command ends.
    code, _, _ = cli("consume", "-b", "h:1", "t", "-X", f"sasl_password={SECRET}")
    assert code == 2
    assert caplog.text.count("visible to other users") == 1


def test_a_command_says_what_lacks(cli: Cli, write: Write):
    path = str(write("security.protocol=SASL_SSL\nsasl.mechanism=PLAIN\nsasl.username=alice\n"))
    code, out, err = cli("topics", "list", "-b", "h:1", "-F", path)
    assert (code, out) == (2, b"")
    assert err == (
        "aiokafkawire: sasl_mechanism 'PLAIN' needs sasl_username and sasl_password;"
        " sasl_password is missing\n"
    )


@pytest.mark.slow
def test_commands_with_a_file_and_the_environment(servers: str, write: Write):
    text = "group_id=of-the-file\nenable_auto_commit=true\nauto_offset_reset=earliest\n"
    path = str(write(f"bootstrap_servers={servers}\ntransactional_id=of-an-application\n{text}"))
    # What a program uses for transactions is not taken away from it.
    done = aiokafkawire("produce", "configured", "-p", "0", stdin=b"one\n", env={CONFIG: path})
    assert (done.returncode, done.stderr) == (0, b"")
    given = ("configured", "-e", "-q", "-F", path)
    assert aiokafkawire("consume", *given).stdout == b"one\n"
    # Nothing was committed for the group of the file.
    assert aiokafkawire("consume", *given, "-o", "stored").stdout == b"one\n"
    assert aiokafkawire("consume", *given, "-o", "stored").stdout == b""
    # -o is a flag, and goes before the file.
    done = aiokafkawire("consume", "-G", "other", *given, "-o", "end")
    assert (done.returncode, done.stdout) == (0, b"")
    done = aiokafkawire("topics", "list", env={SERVERS: servers})
    assert b"configured\n" in done.stdout


@pytest.mark.slow
def test_a_static_member_of_an_application_is_not_fenced(servers: str, write: Write):
    text = f"bootstrap_servers={servers}\ngroup_instance_id=of-an-application\n"
    path = str(write(f"{text}auto_offset_reset=earliest\n"))
    assert aiokafkawire("produce", "static", "-F", path, stdin=b"one\n").returncode == 0
    group = ("consume", "-G", "static-group", "static", "-F", path)
    with running(*group, "-X", "group_instance_id=of-an-application") as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"one\n"
        with running(*group) as other:
            assert other.stderr is not None
            assert b"assigned" in other.stderr.readline()
            described = ("groups", "describe", "static-group", "-F", path, "--json")
            members = json.loads(aiokafkawire(*described).stdout)["members"]
            names = {member["group_instance_id"] for member in members}
            assert names == {"of-an-application", None}


# --- commands on brokers with TLS and SASL ---

TOKEN_HEADER = {"alg": "none"}


def unsecured_token(**claims: object) -> str:
    def part(content: object) -> str:
        return base64.urlsafe_b64encode(json.dumps(content).encode()).decode().rstrip("=")

    return f"{part(TOKEN_HEADER)}.{part(claims)}."


@pytest.fixture
def secure(tmp_path: Path) -> Iterator[dict[str, str]]:
    """Addresses by protocol, and the file of the authority as `ca`."""
    sasl = BrokerSasl(users={"alice": SECRET}, mechanisms=["SCRAM-SHA-512", "OAUTHBEARER"])
    with KafkaBroker(tls=True, sasl=sasl, listeners=["SASL_SSL"]) as broker:
        authority = tmp_path / "ca.pem"
        assert broker.authority is not None
        broker.authority.write(authority)
        yield {"servers": broker.bootstrap_servers, "ca": str(authority)}


def test_commands_authenticate_as_the_file_says(secure: dict[str, str], cli: Cli, write: Write):
    text = JAVA.replace("/etc/kafka/ca.pem", secure["ca"]).replace(
        "SASL_SSL://h:9093", f"SASL_SSL://{secure['servers']}"
    )
    path = str(write(text))
    assert cli("topics", "create", "t", "-F", path)[0] == 0
    code, out, err = cli("topics", "list", "-F", path)
    assert (code, out, err) == (0, b"t\n", "")
    code, out, err = cli("topics", "list", "-F", path, "-X", "sasl_username=bob")
    assert (code, out) == (1, b"")
    assert "SCRAM-SHA-512: the broker refused the credentials" in err
    assert SECRET not in err


def test_commands_authenticate_with_tokens_of_a_file(
    secure: dict[str, str], cli: Cli, write: Write, tmp_path: Path
):
    token = tmp_path / "token"
    now = int(time.time())
    token.write_text(unsecured_token(sub="alice", iat=now, exp=now + 600), encoding="utf-8")
    path = str(
        write(
            f"bootstrap.servers={secure['servers']}\nsecurity.protocol=SASL_SSL\n"
            f"ssl.ca.location={secure['ca']}\nsasl.mechanism=OAUTHBEARER\n"
            f"sasl.oauthbearer.token.endpoint.url={token.as_uri()}\n"
        )
    )
    assert cli("topics", "list", "-F", path) == (0, b"", "% no topics\n")


def test_a_client_secret_on_the_command_line_is_warned_of(caplog: pytest.LogCaptureFixture):
    given = ["security.protocol=SASL_SSL", "sasl.mechanism=OAUTHBEARER"]
    given += ["sasl.oauthbearer.token.endpoint.url=https://idp.example.com/token"]
    given += ["sasl.oauthbearer.client.id=c", f"sasl.oauthbearer.client.secret={SECRET}"]
    options = client_options(ClientConfig, given, {"bootstrap_servers": "h:1"})
    assert "idp.example.com" in repr(options["sasl_oauth_token_provider"])
    assert SECRET not in repr(options)
    assert "sasl.oauthbearer.client.secret of -X is visible to other users" in caplog.text
