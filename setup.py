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

from setuptools import Extension, setup
from setuptools.command.bdist_wheel import bdist_wheel
from setuptools.command.build_ext import build_ext

KERNEL = "aiokafkawire/records/_kernel"
REQUIRED = os.environ.get("AIOKAFKAWIRE_REQUIRE_EXT", "0") not in {"", "0"}


def kernel() -> list[Extension]:
    """The extension, its C source made anew: nothing is trusted to be as old as it looks."""
    if platform.python_implementation() != "CPython" and not REQUIRED:
        return []
    try:
        from Cython.Build import cythonize  # noqa: PLC0415 - it may be missing
    except ImportError:
        if REQUIRED:
            raise
        return []
    sources = [Path(KERNEL + suffix) for suffix in (".py", ".pxd")]
    digest = hashlib.sha256(b"".join(path.read_bytes() for path in sources)).hexdigest()
    extension = Extension(
        KERNEL.replace("/", "."),
        [str(sources[0])],
        extra_compile_args=[] if sys.platform == "win32" else ["-g0"],
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
        except Exception:
            self._built(ext).unlink(missing_ok=True)
            raise

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
