"""Count the kernel loops' instructions per record and compare them with kernel_cost.json.

    python -m benchmarks.kernel_cost
    python -m benchmarks.kernel_cost --store

valgrind's callgrind counts, so that a busy machine changes nothing. One process runs each loop
once, others run one of them more often: the difference is the cost of that loop. Figures are
compared only if the fingerprint (Python release, compiler, architecture) is the stored one. More
than 10 % above the stored figure fails.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import re
import shutil
import subprocess
import sys
from pathlib import Path

STORED = Path(__file__).with_suffix(".json")
ALLOWED = 1.10
TIMES = 60
LOOPS = ("encode_columns", "encode_with_deliveries", "to_columns", "to_records", "to_values")

EVEN_COPIES = ":".join(
    f"glibc.cpu.x86_rep_{kind}_threshold={1 << 30}" for kind in ("movsb", "stosb")
)
"""callgrind counts a `rep movsb` as one instruction per byte. Without this setting, the count per
record differs by 10 % with the alignment of the memory."""

PROGRAM = """
import gc, sys
sys.modules["aiokafka"] = sys.modules["aiokafka.record"] = type(sys)("aiokafka")
sys.modules["aiokafka"]._crecords = None
from benchmarks import kernel
gc.disable()
for name in {names!r}:
    getattr(kernel, name)()
"""


def fingerprint() -> str:
    return f"{platform.python_version()} {platform.python_compiler()} {platform.machine()}"


def instructions(*names: str) -> int:
    """Return the instructions of a process that runs these loops."""
    command = ["valgrind", "--tool=callgrind", "--callgrind-out-file=/dev/null"]
    ran = subprocess.run(
        [*command, sys.executable, "-c", PROGRAM.format(names=names)],
        env={**os.environ, "PYTHONHASHSEED": "0", "GLIBC_TUNABLES": EVEN_COPIES},
        capture_output=True,
        text=True,
        check=True,
        timeout=600,
    )
    found = re.search(r"Collected : (\d+)", ran.stderr)
    assert found is not None, ran.stderr
    return int(found[1])


def per_record() -> dict[str, float]:
    from benchmarks.kernel import RECORDS  # noqa: PLC0415 - needs the compared client too

    once = instructions(*LOOPS)
    more = {name: instructions(*LOOPS, *[name] * TIMES) for name in LOOPS}
    return {name: round((count - once) / (TIMES * RECORDS), 1) for name, count in more.items()}


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--store", action="store_true")
    given = parser.parse_args(arguments)
    if shutil.which("valgrind") is None:
        print("not counted: valgrind is missing")
        return 0
    stored = json.loads(STORED.read_text()) if STORED.exists() else {}
    known = stored.get(fingerprint(), {})
    found = per_record()
    print(f"{'instructions a record':<28} {'now':>8} {'stored':>8}")
    for name, count in found.items():
        print(f"{name:<28} {count:8.1f} {known.get(name, '-'):>8}")
    if given.store:
        STORED.write_text(json.dumps({**stored, fingerprint(): found}, indent=2) + "\n")
        return 0
    if not known:
        print(f"nothing is stored for {fingerprint()}: not compared")
        return 0
    worse = [name for name, count in found.items() if count > ALLOWED * known[name]]
    if worse:
        print(f"more than 10 % above what is stored: {', '.join(worse)}", file=sys.stderr)
    return 1 if worse else 0


if __name__ == "__main__":
    sys.exit(main())
