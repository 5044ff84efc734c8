"""Builds the compiled kernel beside the pure package; everything else stands in pyproject.toml.

Without a C compiler (or without Cython) the package is installed pure, unless
AIOKAFKAWIRE_REQUIRE_EXT=1 makes that an error.
"""

from __future__ import annotations

import hashlib
import os
import platform
import sys
from pathlib import Path

import setuptools

MINIMUM_SETUPTOOLS = 77
"""The same minimum as in pyproject.toml, which pip ignores with --no-build-isolation."""
if int(setuptools.__version__.partition(".")[0]) < MINIMUM_SETUPTOOLS:
    sys.exit(
        f"aiokafkawire needs setuptools {MINIMUM_SETUPTOOLS} or later to build, not "
        f"{setuptools.__version__}: pip install 'setuptools>={MINIMUM_SETUPTOOLS}' 'Cython>=3.1', "
        "or build without --no-build-isolation"
    )

from setuptools import Extension, setup  # noqa: E402
from setuptools.command.bdist_wheel import bdist_wheel  # noqa: E402
from setuptools.command.build_ext import build_ext  # noqa: E402
from setuptools.errors import CompileError  # noqa: E402

KERNEL = "aiokafkawire/records/_kernel"
REQUIRED = os.environ.get("AIOKAFKAWIRE_REQUIRE_EXT", "0") not in {"", "0"}
NOT_BUILT = (
    "AIOKAFKAWIRE_REQUIRE_EXT is set, but the compiled kernel cannot be built: {reason}. Install "
    "{remedy}, or unset AIOKAFKAWIRE_REQUIRE_EXT to install without it (slower)"
)
OPTIONS = [] if sys.platform == "win32" else ["-g0", "--param=inline-unit-growth=100"]
"""By default gcc stops inlining once a file has grown by 40 %, and calls a function for each
varint. clang ignores the parameter."""
COMPILER = (
    "a C compiler and Python's headers (Debian: apt-get install gcc python3-dev; macOS: "
    "xcode-select --install; Windows: the C++ build tools of Visual Studio)"
)


def kernel() -> list[Extension]:
    """Return the extension. Always regenerate its C source: timestamps are not reliable."""
    if platform.python_implementation() != "CPython" and not REQUIRED:
        return []
    try:
        from Cython.Build import cythonize  # noqa: PLC0415 - it may be missing
    except ImportError as error:
        if REQUIRED:
            sys.exit(NOT_BUILT.format(reason=error, remedy="'Cython>=3.1' beside setuptools"))
        return []
    sources = [Path(KERNEL + suffix) for suffix in (".py", ".pxd")]
    digest = hashlib.sha256(b"".join(path.read_bytes() for path in sources)).hexdigest()
    extension = Extension(
        KERNEL.replace("/", "."),
        [str(sources[0])],
        extra_compile_args=OPTIONS,
        define_macros=[("AIOKAFKAWIRE_KERNEL_HASH", f'"{digest}"')],
    )
    directives = {"language_level": 3, "annotation_typing": False, "wraparound": False}
    (built,) = cythonize(
        [extension], build_dir="build", force=True, quiet=True, compiler_directives=directives
    )
    built.optional = not REQUIRED  # cythonize forgets it
    return [built]


class BuildKernel(build_ext):
    """Leaves no earlier kernel where a build failed, and says that there is none."""

    def build_extension(self, ext: Extension) -> None:
        try:
            super().build_extension(ext)
        except Exception as error:
            self._built(ext).unlink(missing_ok=True)
            if not REQUIRED:
                raise
            raise CompileError(NOT_BUILT.format(reason=error, remedy=COMPILER)) from error

    def _file(self, ext: Extension) -> str:
        return str(self.get_ext_filename(self.get_ext_fullname(ext.name)))

    def _built(self, ext: Extension) -> Path:
        return Path(self.build_lib, self._file(ext))

    def run(self) -> None:
        in_place = self.inplace
        super().run()
        if all(self._built(ext).exists() for ext in self.extensions):
            return
        print("aiokafkawire: no compiled kernel; it works without, but slower", file=sys.stderr)
        for ext in self.extensions if in_place else ():
            Path(self._file(ext)).unlink(missing_ok=True)
        self.extensions = self.distribution.ext_modules = []


class Wheel(bdist_wheel):
    """Tagged as pure where the kernel was not compiled."""

    def run(self) -> None:
        if self.distribution.has_ext_modules():
            self.run_command("build_ext")
            self.root_is_pure = not self.distribution.has_ext_modules()
        super().run()


setup(ext_modules=kernel(), cmdclass={"build_ext": BuildKernel, "bdist_wheel": Wheel})
