"""One target under atheris, in a process of its own.

`python -m tests.fuzz.guided NAME SCRIPT FOLDER…`: SCRIPT starts this again, as libFuzzer does when
it merges; what follows are its own arguments. The modules are read as they are written, not
compiled, and each branch is counted: inputs that reach new ones go into the first folder.
"""

from __future__ import annotations

import os
import sys

os.environ["AIOKAFKAWIRE_PURE_PYTHON"] = "1"

import atheris

with atheris.instrument_imports(include=["aiokafkawire"]):
    from tests.fuzz.targets import TARGETS, tried

from aiokafkawire.wire import codec


def main() -> None:
    name = sys.argv.pop(1)
    sys.argv[0] = sys.argv.pop(1)
    assert name in TARGETS
    make = codec.make_decoder
    # Decoders are made when they are used first.
    codec.make_decoder = lambda *given: atheris.instrument_func(make(*given))

    def one(raw: bytes) -> None:
        tried(name, raw)

    atheris.Setup(sys.argv, one)
    atheris.Fuzz()


if __name__ == "__main__":
    main()
