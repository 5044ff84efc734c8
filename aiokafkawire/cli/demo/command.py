"""`aiokafkawire demo`: options and exit codes."""

from __future__ import annotations

import contextlib
import os
import shutil
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

import click

from aiokafkawire.cli.common_options import backend_option
from aiokafkawire.cli.demo.children import Children
from aiokafkawire.cli.demo.comparison import Comparison
from aiokafkawire.cli.demo.demo_run import DemoRun, DemoSettings
from aiokafkawire.cli.demo.inputs import default_files, find_files
from aiokafkawire.cli.demo.view import LiveView, PlainView, Screen, View, comparison_table
from aiokafkawire.cli.error_text import FAILED, OK, CommandFailed
from aiokafkawire.cli.run_loop import Interruption, run_command
from aiokafkawire.cli.standard_streams import redirect_to_null, require_stdout

__all__ = ("demo",)

PIPE_WIDTH = 100
STDERR = 2


@click.command(short_help="Watch a group of workers survive failures.")
@click.option(
    "--input",
    "path",
    envvar="INPUT",
    metavar="PATH",
    help="A text file or a folder of them; also INPUT in the environment."
    "  [default: the source of Python's standard library]",
)
@click.option(
    "-b",
    "--brokers",
    envvar="BOOTSTRAP",
    metavar="HOST:PORT,…",
    help="Use this Kafka instead of an embedded cluster; also BOOTSTRAP in the environment.",
)
@click.option("--plain", is_flag=True, help="Print lines instead of a live view, as in a pipe.")
@backend_option
def demo(*, path: str | None, brokers: str | None, plain: bool, backend: str) -> int:
    """Send a text line by line, and count its words with a group of three workers.

    Half way, one worker is killed, another one is started, and a node of the cluster is restarted.
    At the end the counts are compared with counts made without Kafka: exits with 0 if no line was
    lost or counted twice.
    """
    require_stdout()
    if path == "":
        raise CommandFailed("INPUT is empty; give a file or a folder")
    files = default_files() if path is None else find_files(Path(path))
    console = Screen() if sys.stdout.isatty() else Screen(width=PIPE_WIDTH)
    folder = Path(tempfile.mkdtemp(prefix="aiokafkawire-demo-"))
    children = Children(folder)
    interruption = Interruption()

    def clear_up() -> None:
        children.kill_all()
        shutil.rmtree(folder, ignore_errors=True)
        console.show_cursor()

    demo_runs: list[DemoRun] = []
    comparisons: list[Comparison] = []

    def last_resort() -> None:
        clear_up()
        report_interruption(demo_runs)

    interruption.before_exit.append(last_resort)

    async def run_demo(_: Interruption) -> None:
        moving = console.is_terminal and not plain
        view: View = LiveView(console) if moving else PlainView(console)
        with view:
            settings = DemoSettings(files, brokers or None, backend, folder)
            demo_runs.append(DemoRun(settings, children, view))
            comparisons.append(await demo_runs[0].run())

    try:
        run_command(run_demo, backend=backend, interruption=interruption)
    except BrokenPipeError:
        # Without a reader the demo ends early, with no result.
        redirect_to_null(sys.stdout)
        return FAILED
    finally:
        children.reap_all()
        clear_up()
        if interruption.happened:
            report_interruption(demo_runs)
    (comparison,) = comparisons
    console.print(comparison_table(demo_runs[0].truth, comparison))
    print(comparison.last_line, flush=True)
    return OK if comparison.good else FAILED


def report_interruption(demo_runs: Sequence[DemoRun]) -> None:
    """Report on stderr what remains after a signal. Takes no locks: signal handlers call it."""
    left = next((each.left_behind for each in demo_runs if each.left_behind), None)
    text = "topics and files of the demo are removed" if left is None else f"{left} may remain"
    with contextlib.suppress(OSError):
        os.write(STDERR, f"aiokafkawire: interrupted; {text}\n".encode())
