"""`aiokafkawire completion`: print a shell completion script."""

from __future__ import annotations

import click
from click.shell_completion import get_completion_class

__all__ = ("completion",)

PROGRAM = "aiokafkawire"
VARIABLE = "_AIOKAFKAWIRE_COMPLETE"
"""click's environment variable: the script sets it to request completions."""


@click.command(short_help="Print a shell completion script.")
@click.argument("shell", type=click.Choice(("bash", "zsh", "fish")))
def completion(*, shell: str) -> None:
    """Print a script for SHELL that completes commands, options and their values.

    \b
    bash: eval "$(aiokafkawire completion bash)" in ~/.bashrc
    zsh:  eval "$(aiokafkawire completion zsh)" in ~/.zshrc
    fish: aiokafkawire completion fish > ~/.config/fish/completions/aiokafkawire.fish
    """
    completion_class = get_completion_class(shell)
    assert completion_class is not None
    root = click.get_current_context().find_root().command
    click.echo(completion_class(root, {}, PROGRAM, VARIABLE).source())
