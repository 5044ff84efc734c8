"""`aiokafkawire worker`: run a worker of a module."""

from __future__ import annotations

import importlib
import logging
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import click

from aiokafkawire.cli.arguments import REFUSED_TIMEOUT_MS
from aiokafkawire.cli.error_text import CommandFailed, explain
from aiokafkawire.cli.log_lines import stop_logging_to_stderr
from aiokafkawire.cli.run_loop import BACKENDS, installed_backend
from aiokafkawire.errors import InvalidOption, KafkaError
from aiokafkawire.worker import Worker

__all__ = ("find_worker", "worker")

logger = logging.getLogger("aiokafkawire.cli")

LOG_FORMAT = "%(asctime)s %(levelname)s %(name)s: %(message)s"

RELOAD_STOP_S = 30
"""Time of a worker to stop before it is killed: more than the default of `drain_timeout_ms`."""


@click.command(short_help="Run a worker of a module.")
@click.option(
    "--backend",
    type=click.Choice([*BACKENDS]),
    default="asyncio",
    show_default=True,
    help="Event loop.",
)
@click.option(
    "--log-level",
    type=click.Choice(["debug", "info", "warning", "error"]),
    default="info",
    show_default=True,
    help="Level of the log on stderr.",
)
@click.option(
    "--reload",
    is_flag=True,
    help="For development: stop the worker and start it again after each change of a Python file"
    " in the current directory.",
)
@click.argument("target", metavar="MODULE:WORKER")
def worker(*, backend: str, log_level: str, reload: bool, target: str) -> None:
    """Run the Worker named WORKER in MODULE until SIGTERM or Ctrl-C.

    The module is imported from the current directory or the installed packages. The first signal
    lets running handlers finish; a second one cancels them and ends the command.
    """
    stop_logging_to_stderr()
    library, options = installed_backend(backend)
    if reload:
        logging.basicConfig(level=log_level.upper(), format=LOG_FORMAT)
        logging.getLogger("watchfiles").setLevel(logging.WARNING)
        run_reloading(["--backend", backend, "--log-level", log_level, target])
        return
    found = find_worker(target)
    # Without an effect if the module has configured logging.
    logging.basicConfig(level=log_level.upper(), format=LOG_FORMAT)
    found._option_sets.limit_refused_start(REFUSED_TIMEOUT_MS)
    try:
        found.run_forever(backend=library, backend_options=options)
    except KafkaError as error:
        raise CommandFailed(explain(error, has_flags=False)) from error


def run_reloading(arguments: list[str]) -> None:
    """Run a worker in a process that is replaced after each change, until SIGTERM or Ctrl-C.

    Raises:
        CommandFailed: The package watchfiles is missing.
    """
    try:
        from watchfiles import PythonFilter, watch  # noqa: PLC0415
    except ImportError:
        raise CommandFailed(
            "--reload needs watchfiles: pip install 'aiokafkawire[reload]'"
        ) from None
    terminated = False

    def terminate(number: int, frame: object) -> None:
        nonlocal terminated
        terminated = True
        raise KeyboardInterrupt

    signal.signal(signal.SIGTERM, terminate)
    command = [sys.executable, "-m", "aiokafkawire", "worker", *arguments]
    process = subprocess.Popen(command)
    try:
        for changes in watch(Path.cwd(), watch_filter=PythonFilter()):
            _log_changes([Path(path) for _, path in changes])
            stop_process(process)
            process = subprocess.Popen(command)
    except KeyboardInterrupt:
        # A terminal sends Ctrl-C to the worker too, and a second signal would cancel its handlers.
        stop_process(process, notify=terminated)


def _log_changes(paths: Sequence[Path]) -> None:
    """Log which files have changed."""
    first = min(paths)
    here = Path.cwd()
    name = first.relative_to(here) if first.is_relative_to(here) else first
    others = f" and {len(paths) - 1} more" if len(paths) > 1 else ""
    logger.info("%s%s changed; starting the worker again", name, others)


def stop_process(process: subprocess.Popen[bytes], *, notify: bool = True) -> None:
    """Wait until a worker has stopped; kill it after `RELOAD_STOP_S`."""
    if notify and process.poll() is None:
        process.send_signal(signal.SIGINT)
    deadline = time.monotonic() + RELOAD_STOP_S
    while process.poll() is None:
        try:
            process.wait(deadline - time.monotonic())
        except KeyboardInterrupt:
            continue  # the worker has this one, too
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def find_worker(target: str) -> Worker:
    """Import the worker that `module:attribute` names.

    Raises:
        InvalidOption: There is no such module or worker.
    """
    module_name, _, attribute = target.partition(":")
    if not module_name or not attribute:
        example = f"{module_name or 'billing.main'}:{attribute or 'worker'}"
        raise InvalidOption(f"{target!r:.80} must be MODULE:WORKER, such as {example:.80}")
    here = str(Path.cwd())
    if here not in sys.path:
        sys.path.insert(0, here)
    try:
        found: object = importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        # A module that the named one imports may be missing, too: that is its own error.
        if error.name is None or not f"{module_name}.".startswith(f"{error.name}."):
            raise
        raise InvalidOption(f"there is no module {error.name!r} in {here}") from None
    workers = sorted(name for name, value in vars(found).items() if isinstance(value, Worker))
    for name in attribute.split("."):
        try:
            found = getattr(found, name)
        except AttributeError:
            raise InvalidOption(
                f"module {module_name!r} has no {attribute!r}; {_list(workers)}"
            ) from None
    if not isinstance(found, Worker):
        raise InvalidOption(
            f"{attribute!r} in module {module_name!r} is no Worker but has the type"
            f" {type(found).__name__}; {_list(workers)}"
        )
    return found


def _list(workers: Sequence[str]) -> str:
    """Return which workers a module has."""
    return f"its workers: {', '.join(workers)}" if workers else "it has no Worker"
