"""The command line of the demo."""

from __future__ import annotations

import shutil
import sys
import tempfile
from pathlib import Path

import click

from aiokafkawire.cli.demo.children import Children
from aiokafkawire.cli.demo.inputs import default_files, files_at
from aiokafkawire.cli.demo.play import Play, Settings
from aiokafkawire.cli.demo.verdict import Verdict
from aiokafkawire.cli.demo.view import LiveView, PlainView, Screen, View, verdict_table
from aiokafkawire.cli.problems import FAILED, OK, Failure
from aiokafkawire.cli.running import Interruption, run
from aiokafkawire.cli.shared import backend_option

__all__ = ("demo",)

PIPE_WIDTH = 100


@click.command(short_help="See a group of workers survive bad luck.")
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
    help="Play on this Kafka and not on an embedded cluster; also BOOTSTRAP in the environment.",
)
@click.option("--plain", is_flag=True, help="Lines and no moving picture, as in a pipe.")
@backend_option
def demo(*, path: str | None, brokers: str | None, plain: bool, backend: str) -> int:
    """Send a text line by line, and count its words with a group of three workers.

    Half way one worker is killed, another one is started, and a node of the cluster is restarted.
    At the end the counts are compared with those made straight from the text: exits with 0 if
    nothing was lost and nothing counted twice.
    """
    if path == "":
        raise Failure("INPUT is empty; give a file or a folder")
    files = default_files() if path is None else files_at(Path(path))
    console = Screen() if sys.stdout.isatty() else Screen(width=PIPE_WIDTH)
    folder = Path(tempfile.mkdtemp(prefix="aiokafkawire-demo-"))
    children = Children(folder)
    interruption = Interruption()

    def clear_up() -> None:
        children.kill_all()
        shutil.rmtree(folder, ignore_errors=True)
        console.show_cursor()

    interruption.last_resorts.append(clear_up)
    outcome: list[tuple[Play, Verdict]] = []

    async def play(_: Interruption) -> None:
        moving = console.is_terminal and not plain
        view: View = LiveView(console) if moving else PlainView(console)
        with view:
            performance = Play(Settings(files, brokers or None, backend, folder), children, view)
            outcome.append((performance, await performance.perform()))

    try:
        run(play, backend=backend, interruption=interruption)
    finally:
        children.reap_all()
        clear_up()
    performance, verdict = outcome[0]
    console.print(verdict_table(performance.truth, verdict))
    print(verdict.last_line, flush=True)
    return OK if verdict.good else FAILED
