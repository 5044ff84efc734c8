"""A Kerberos KDC (MIT) for listeners with GSSAPI, run as an ordinary user."""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from subprocess import DEVNULL, PIPE, STDOUT, run
from typing import Self

from tests.brokers.process import HOST, Process, free_ports
from tests.brokers.releases import Unavailable, tail
from tests.brokers.security import kerberos

REALM = "KAFKA.TEST"
SERVICE = "kafka/localhost"
CLIENT = "carol"
READY_WITHIN_S = 20.0
TOOL_WITHIN_S = 30.0


class Kdc:
    """A key distribution centre with a service and a client, whose keys are in files.

    Args:
        folder: Existing folder for its database and files.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.config = folder / "krb5.conf"
        self._process: Process | None = None
        self._programs = {name: kerberos.program(name) for name in kerberos.PROGRAMS}

    def keytab(self, principal: str) -> Path:
        """Return the file with the keys of a principal."""
        return self.folder / f"{principal.replace('/', '-')}.keytab"

    def __enter__(self) -> Self:
        (port,) = free_ports(1)
        self._write_settings(port)
        self._run("kdb5_util", "create", "-s", "-P", "master-password", "-r", REALM)
        for principal in (SERVICE, CLIENT):
            self._run("kadmin.local", "-q", f"addprinc -randkey {principal}")
            self._run("kadmin.local", "-q", f"ktadd -k {self.keytab(principal)} {principal}")
        # A process inherits its environment.
        command = ["env", *(f"{key}={value}" for key, value in self._variables().items())]
        command += [self._programs["krb5kdc"], "-n"]
        self._process = Process(command, self.folder / "kdc.log")
        try:
            self._wait_until_ready(port)
        except BaseException:
            self._process.kill()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        if self._process is not None:
            self._process.stop()

    def _write_settings(self, port: int) -> None:
        libraries = kerberos.libraries()
        database = ""
        if libraries is not None:
            database = f"[dbmodules]\n db_module_dir = {libraries}/krb5/plugins/kdb\n"
        self.config.write_text(
            "[libdefaults]\n"
            f" default_realm = {REALM}\n"
            " dns_lookup_kdc = false\n"
            " dns_lookup_realm = false\n"
            " dns_canonicalize_hostname = false\n"
            " rdns = false\n"
            " udp_preference_limit = 1\n"
            "[realms]\n"
            f" {REALM} = {{\n  kdc = {HOST}:{port}\n }}\n"
            "[domain_realm]\n"
            f" localhost = {REALM}\n" + database,
            encoding="ascii",
        )
        (self.folder / "kdc.conf").write_text(
            "[kdcdefaults]\n"
            f" kdc_listen = {HOST}:{port}\n"
            f" kdc_tcp_listen = {HOST}:{port}\n"
            "[realms]\n"
            f" {REALM} = {{\n"
            f"  database_name = {self.folder}/principal\n"
            f"  key_stash_file = {self.folder}/stash\n"
            f"  acl_file = {self.folder}/kadm5.acl\n"
            " }\n" + database,
            encoding="ascii",
        )

    def _variables(self) -> Mapping[str, str]:
        found = {
            "KRB5_CONFIG": str(self.config),
            "KRB5_KDC_PROFILE": str(self.folder / "kdc.conf"),
        }
        libraries = kerberos.libraries()
        if libraries is not None:
            others = kerberos.folder() / "lib" / libraries.name
            found["LD_LIBRARY_PATH"] = f"{libraries}:{others}"
        return found

    def _run(self, program: str, *arguments: str) -> None:
        done = run(
            [self._programs[program], *arguments],
            stdin=DEVNULL,
            stdout=PIPE,
            stderr=STDOUT,
            text=True,
            env={**os.environ, **self._variables()},
            timeout=TOOL_WITHIN_S,
            check=False,
        )
        if done.returncode != 0:
            raise Unavailable(f"{program} failed: {tail(done.stdout)}")

    def _wait_until_ready(self, port: int) -> None:
        assert self._process is not None
        end = time.monotonic() + READY_WITHIN_S
        while time.monotonic() < end and self._process.returncode is None:
            with suppress(OSError), socket.create_connection((HOST, port)):
                return
            time.sleep(0.05)
        raise Unavailable(f"the KDC does not answer: {tail(self._process.output())}")
