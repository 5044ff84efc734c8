"""Nothing above goes past the runtime, or what a simulation finds could not be found again.

That is: no clock, chance, thread, socket or event loop of its own, and no decision that hangs on
the order of a set, which differs from process to process.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

import aiokafkawire

PACKAGE = Path(aiokafkawire.__file__).parent
OUTSIDE = (
    "runtime",
    "cli",
    "testing",
    "spark",
    "oauth",
    "blocking.py",
    "prometheus.py",
    "taskiq.py",
    "__main__.py",
)
"""The seam itself, and what is not run in a simulation: there are no identity providers in it."""

REAL_TIME = (
    "broker/authentication/jwks.py",
    "broker/authentication/tokens.py",
    "otel.py",
    "security/pem.py",
)
"""Tokens that applications make and check by the wall clock, spans, whose times OpenTelemetry takes
from it too, and keys that are read from files."""

MODULES = [
    path
    for path in sorted(PACKAGE.rglob("*.py"))
    if path.relative_to(PACKAGE).parts[0] not in OUTSIDE
    and str(path.relative_to(PACKAGE)) not in REAL_TIME
]

FORBIDDEN_MODULES = {
    "asyncio",
    "concurrent",
    "secrets",
    "selectors",
    "socket",
    "threading",
    "time",
    "trio",
    "uvloop",
}

FORBIDDEN_NAMES = {
    "anyio.connect_tcp",
    "anyio.create_tcp_listener",
    "anyio.current_time",
    "anyio.fail_after",
    "anyio.move_on_after",
    "anyio.sleep",
    "anyio.sleep_until",
    "anyio.to_thread",
    "datetime.datetime.now",
    "datetime.now",
    "os.getrandom",
    "os.urandom",
    "uuid.uuid1",
    "uuid.uuid4",
}

IN_ORDER = {
    "sorted",
    "set",
    "frozenset",
    "len",
    "min",
    "max",
    "sum",
    "any",
    "all",
    "bool",
    "Counter",
}
"""Calls whose result does not hang on the order of what they are given."""

INTO_ORDER = {"list", "tuple", "iter", "enumerate", "map", "filter", "zip", "reversed", "deque"}


def dotted(node: ast.expr) -> str:
    if isinstance(node, ast.Name):
        return node.id
    if isinstance(node, ast.Attribute):
        return f"{dotted(node.value)}.{node.attr}"
    return ""


def past_the_seam(tree: ast.AST) -> Iterator[str]:
    """Uses of what only the runtime may use."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import | ast.ImportFrom):
            names = [alias.name for alias in node.names]
            modules = [node.module or ""] if isinstance(node, ast.ImportFrom) else names
            for module in modules:
                if module.partition(".")[0] in FORBIDDEN_MODULES and not getattr(node, "level", 0):
                    yield f"{node.lineno}: imports {module}"
        elif isinstance(node, ast.Attribute):
            name = dotted(node)
            if name in FORBIDDEN_NAMES or (name.startswith("random.") and name != "random.Random"):
                yield f"{node.lineno}: uses {name}"
        elif isinstance(node, ast.Call) and dotted(node.func) == "random.Random":
            yield f"{node.lineno}: makes a source of chance"


def is_set_type(annotation: ast.expr) -> bool:
    text = ast.unparse(annotation)
    return text.split("[")[0].rpartition(".")[2].strip('"') in {"set", "frozenset", "Set"}


def is_set(node: ast.expr, sets: set[str]) -> bool:
    """Return whether an expression is a set, as far as one module shows."""
    if isinstance(node, ast.Set | ast.SetComp):
        return True
    if isinstance(node, ast.Call) and dotted(node.func) in {"set", "frozenset"}:
        return True
    if isinstance(node, ast.BinOp):
        return is_set(node.left, sets) or is_set(node.right, sets)
    return dotted(node) in sets if isinstance(node, ast.Name | ast.Attribute) else False


def known_sets(tree: ast.AST) -> set[str]:
    """Names and attributes that this module makes sets of."""
    found: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.AnnAssign) and is_set_type(node.annotation):
            found.add(dotted(node.target))
        elif isinstance(node, ast.arg) and node.annotation and is_set_type(node.annotation):
            found.add(node.arg)
        elif isinstance(node, ast.Assign) and is_set(node.value, set()):
            found |= {dotted(target) for target in node.targets}
    return found - {""}


def orders_of_sets(tree: ast.AST) -> Iterator[str]:
    """Places where something goes through a set one by one."""
    sets = known_sets(tree)
    harmless: set[ast.AST] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and dotted(node.func) in IN_ORDER:
            harmless.update(node.args)
        elif isinstance(node, ast.SetComp):
            harmless.add(node)
        gone_through: list[ast.expr] = []
        if isinstance(node, ast.For | ast.AsyncFor):
            gone_through = [node.iter]
        elif isinstance(node, ast.ListComp | ast.GeneratorExp | ast.DictComp):
            if node not in harmless:
                gone_through = [part.iter for part in node.generators]
        elif isinstance(node, ast.Call) and dotted(node.func) in INTO_ORDER:
            gone_through = node.args
        elif isinstance(node, ast.Starred):
            gone_through = [node.value]
        for each in gone_through:
            if is_set(each, sets):
                yield f"{each.lineno}: the order of {ast.unparse(each)}"
        if isinstance(node, ast.Call) and not node.args and isinstance(node.func, ast.Attribute):
            owner = node.func.value
            if node.func.attr == "pop" and is_set(owner, sets):
                yield f"{node.lineno}: any one of {ast.unparse(owner)}"


@pytest.mark.parametrize("path", MODULES, ids=lambda path: str(path.relative_to(PACKAGE)))
def test_only_the_runtime_uses_the_event_loop_directly(path: Path) -> None:
    tree = ast.parse(path.read_text(encoding="utf-8"))
    assert [*past_the_seam(tree), *orders_of_sets(tree)] == []


@pytest.mark.parametrize(
    "code",
    [
        "import time",
        "from socket import socket",
        "import random\nrandom.shuffle(x)",
        "import random\nr = random.Random()",
        "import anyio\nanyio.sleep(1)",
        "import uuid\nuuid.uuid4()",
        "for x in {1, 2}: pass",
        "s: set[str] = f()\ny = [x for x in s]",
        "class A:\n def f(self):\n  self.s = set()\n  return list(self.s)",
        "def f(s: frozenset[int]):\n return tuple(s - {1})",
        "s = {x for x in y}\ns.pop()",
        "s = set(y)\nf(*s)",
    ],
)
def test_direct_uses_are_found(code: str) -> None:
    tree = ast.parse(code)
    assert [*past_the_seam(tree), *orders_of_sets(tree)]


@pytest.mark.parametrize(
    "code",
    [
        "import random\ndef f(rng: random.Random): rng.random()",
        "for x in sorted({1, 2}): pass",
        "s = set()\nn = len(s)\nt = any(x > 1 for x in s)",
        "d: dict[str, None] = {}\nfor x in d: pass",
    ],
)
def test_harmless_uses_are_allowed(code: str) -> None:
    tree = ast.parse(code)
    assert not [*past_the_seam(tree), *orders_of_sets(tree)]
