"""The commands in the pages exist, with all their options."""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path
from typing import Any

import click
import pytest

from aiokafkawire.cli.application import application, expand_mode
from aiokafkawire.cli.application import run as run_command

from .pages import PAGES, ROOT, commands_of

PROGRAM = "aiokafkawire"

COMMANDS = [
    pytest.param(line, id=f"{page.relative_to(ROOT)}:{number}")
    for page in PAGES
    for number, text in commands_of(page)
    for line in text.split(" | ")
    if line.startswith(PROGRAM)
]


def parsed(line: str) -> dict[str, Any]:
    """Parse a command with click, without running it. Raises `click.UsageError`."""
    _, *words = shlex.split(re.sub(r" [<>] .*", "", line))
    command: click.Command | None = application
    name: str | None = PROGRAM
    words = expand_mode(words)
    # A command keeps the help option of its first context, so pass the settings of its parent.
    context: click.Context | None = None
    while isinstance(command, click.Group):
        context = click.Context(command, context, name, **command.context_settings)
        name, command, words = command.resolve_command(context, words)
    assert command is not None
    return command.make_context(name, words, context).params


@pytest.mark.parametrize("line", COMMANDS)
def test_command_of_a_page_is_valid(line: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    # click checks that the files in the arguments exist.
    monkeypatch.chdir(tmp_path)
    for word in shlex.split(line):
        if re.fullmatch(r"\w+\.\w+", word):
            (tmp_path / word).touch()
    assert parsed(line)


def test_pages_use_the_main_commands():
    names = {param.values[0].split()[1] for param in COMMANDS}
    assert names >= {"produce", "consume", "topics", "groups", "decode", "broker"}


def test_unknown_option_is_detected():
    with pytest.raises(click.UsageError):
        parsed("aiokafkawire consume -b h:1 -t orders --no-such-option")


def test_decode_example_prints_the_shown_json(
    capfdbinary: pytest.CaptureFixture[bytes],
):
    page = ROOT / "docs" / "cli.md"
    (line,) = [text for _, text in commands_of(page) if re.match(r"aiokafkawire decode \d", text)]
    assert run_command(shlex.split(line)[1:]) == 0
    printed = json.loads(capfdbinary.readouterr().out)
    shown = page.read_text(encoding="utf-8").split("## decode")[1].split("```json\n")[1]
    assert printed == json.loads(shown.split("```")[0])
