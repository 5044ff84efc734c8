"""Preparation of the tests with GSSAPI, as an ordinary user: `make kerberos`.

Debian's packages of MIT Kerberos are downloaded and unpacked into the cache, not installed. The
Python package `gssapi`, which has no wheels for Linux, is built against them. What the machine has
already is used as it is.
"""

from __future__ import annotations

import importlib.util
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path

from tests.brokers.releases import Unavailable, cache_folder, tail

FOLDER_VARIABLE = "AIOKAFKAWIRE_KRB5"
PROGRAMS = ("krb5kdc", "kdb5_util", "kadmin.local")
GSSAPI = "gssapi==1.12.0"
WITHIN_S = 300.0

# The programs with all their libraries, which must be of one version, and the headers for gssapi.
PACKAGES = (
    *("krb5-kdc", "krb5-admin-server", "libkdb5-10", "libkadm5srv-mit12", "libkadm5clnt-mit12"),
    *("libgssapi-krb5-2", "libgssrpc4", "libkrb5-3", "libk5crypto3", "libkrb5support0"),
    *("libkeyutils1", "libcom-err2", "libss2", "libverto1", "libverto-libev1", "libev4"),
    *("libkrb5-dev", "krb5-multidev", "comerr-dev"),
)


def folder() -> Path:
    """The folder of the unpacked packages, which need not exist."""
    given = os.environ.get(FOLDER_VARIABLE)
    return Path(given) if given else cache_folder() / "krb5"


def libraries() -> Path | None:
    """The folder of the unpacked shared libraries; None if the system's are used."""
    return next(folder().glob("usr/lib/*-linux-gnu*"), None)


def program(name: str) -> str:
    """Return the path of a program. Raises `Unavailable`."""
    places = [str(folder() / place) for place in ("usr/sbin", "usr/bin")]
    places += ["/usr/sbin", *os.environ.get("PATH", "").split(os.pathsep)]
    found = shutil.which(name, path=os.pathsep.join(places))
    if found is None:
        raise Unavailable(
            f"there is no `{name}`: run `make kerberos` (Debian, Ubuntu), or install MIT Kerberos"
            f" with its KDC, or name a folder with the unpacked packages in {FOLDER_VARIABLE}"
        )
    return found


def make_ready() -> None:
    """Fetch and build what is missing. Raises `Unavailable`."""
    try:
        for name in PROGRAMS:
            program(name)
    except Unavailable:
        _fetch()
    if importlib.util.find_spec("gssapi") is None:
        _build_gssapi()


def _fetch() -> None:
    for tool in ("apt-get", "dpkg-deb"):
        if shutil.which(tool) is None:
            raise Unavailable(
                f"there is no `{tool}` to fetch Debian's packages: install MIT Kerberos with its"
                " KDC and headers (Fedora: krb5-server krb5-devel; macOS: brew install krb5)"
            )
    folder().parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="krb5-", dir=folder().parent) as name:
        scratch = Path(name)
        # Package lists of its own, since only root may update those of the system.
        places = {"State": scratch / "state", "Cache": scratch / "cache"}
        for place in ("state/lists/partial", "cache/archives/partial"):
            (scratch / place).mkdir(parents=True)
        apt = ["apt-get", "-q", "-o", "Dir::State::status=/var/lib/dpkg/status"]
        apt += [part for key, place in places.items() for part in ("-o", f"Dir::{key}={place}")]
        _run(*apt, "update", cwd=scratch)
        _run(*apt, "download", *PACKAGES, cwd=scratch)
        for package in scratch.glob("*.deb"):
            _run("dpkg-deb", "--extract", str(package), "unpacked", cwd=scratch)
        shutil.rmtree(folder(), ignore_errors=True)
        (scratch / "unpacked").rename(folder())


def _build_gssapi() -> None:
    found = libraries()
    settings = {}
    if found is not None:
        headers = folder() / "usr/include"
        settings = {
            "GSSAPI_MAIN_LIB": str(found / "libgssapi_krb5.so.2"),
            "GSSAPI_COMPILER_ARGS": f"-I{headers} -I{headers}/mit-krb5 -DHAS_GSSAPI_EXT_H",
            # An RPATH, unlike a RUNPATH, holds for the libraries of the library too.
            "GSSAPI_LINKER_ARGS": f"-L{found} -L{found}/mit-krb5 -lgssapi_krb5"
            f" -Wl,--disable-new-dtags -Wl,-rpath,{found}",
        }
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    _run(*pip, GSSAPI, cwd=Path.cwd(), settings=settings)


def _run(*command: str, cwd: Path, settings: Mapping[str, str] | None = None) -> None:
    done = subprocess.run(
        command,
        cwd=cwd,
        env={**os.environ, **(settings or {})},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=WITHIN_S,
        check=False,
    )
    if done.returncode != 0:
        raise Unavailable(f"{command[0]} failed: {tail(done.stdout)}")


if __name__ == "__main__":
    try:
        make_ready()
    except Unavailable as lack:
        sys.exit(f"the tests with GSSAPI cannot run: {lack}")
    print(f"Kerberos is ready: {program('krb5kdc')}")
