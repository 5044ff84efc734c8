"""`aiokafkawire cluster features`: print, upgrade and downgrade the levels of features."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import click

from aiokafkawire.cli.admin_command import (
    AdminCommand,
    Changing,
    Errors,
    admin_command,
    changing,
)
from aiokafkawire.cli.common_options import IntegerRange, SuggestingGroup, json_option
from aiokafkawire.errors import InvalidOption, KafkaError, PartialFailure

if TYPE_CHECKING:
    from aiokafkawire.admin import Admin, FeatureUpgradeType

__all__ = ("features",)


SHOW = "show"


class FeaturesGroup(SuggestingGroup):
    """Group that runs `show` without the name of a command."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        return super().parse_args(ctx, _with_command(ctx, args))

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        return super().resolve_command(ctx, _with_command(ctx, args))


def _with_command(ctx: click.Context, args: list[str]) -> list[str]:
    is_option = bool(args) and args[0].startswith("-") and args[0] not in ctx.help_option_names
    return [SHOW, *args] if is_option or not args else args


@click.group(cls=FeaturesGroup, short_help="Print, upgrade and downgrade the levels of features.")
def features() -> None:
    """Print the levels of features, or change them. Without a command, print them."""


@features.command(SHOW, short_help="Print the levels of features.")
@admin_command
@json_option
@click.option("--node", type=IntegerRange(min=0), help="Node id of the broker to ask.")
def show_command(admin: AdminCommand, *, as_json: bool, node: int | None) -> int:
    """Print the finalized level of each feature, and the levels that a broker supports."""

    async def show(client: Admin) -> Errors:
        found = await client.describe_features(node_id=node)
        rows = []
        for name in sorted({*found.supported_features, *found.finalized_features}):
            supported = found.supported_features.get(name)
            finalized = found.finalized_features.get(name)
            rows.append(
                {
                    "feature": name,
                    "supported_min": None if supported is None else supported.min_version,
                    "supported_max": None if supported is None else supported.max_version,
                    "finalized": None if finalized is None else finalized.max_version_level,
                }
            )
        await admin.print_rows(rows, "features", as_json=as_json)
        return ()

    return admin.execute(show)


@features.command("upgrade", short_help="Raise the levels of features.")
@admin_command
@changing(confirms=True)
@click.argument("levels", nargs=-1, required=True, metavar="FEATURE=LEVEL...")
def upgrade_command(admin: AdminCommand, *, change: Changing, levels: tuple[str, ...]) -> int:
    """Raise the finalized levels of features, as metadata.version=27 (Kafka 2.7+).

    Older brokers cannot join the cluster afterwards. From Kafka 4.0 on, all features are changed
    or none.
    """
    return _update(admin, change, levels, "UPGRADE")


@features.command("downgrade", short_help="Lower the levels of features.")
@admin_command
@click.option("--unsafe", is_flag=True, help="Lower a level even if metadata is lost.")
@changing(confirms=True)
@click.argument("levels", nargs=-1, required=True, metavar="FEATURE=LEVEL...")
def downgrade_command(
    admin: AdminCommand, *, change: Changing, unsafe: bool, levels: tuple[str, ...]
) -> int:
    """Lower the finalized levels of features; the level 0 disables a feature.

    From Kafka 4.0 on, all features are changed or none.
    """
    return _update(admin, change, levels, "UNSAFE_DOWNGRADE" if unsafe else "SAFE_DOWNGRADE")


def _update(admin: AdminCommand, change: Changing, levels: Sequence[str], kind: str) -> int:
    wanted = dict(map(parse_level, levels))
    if len(wanted) < len(levels):
        raise InvalidOption("give each feature once")
    verb = "Upgrade" if kind == "UPGRADE" else "Downgrade"
    change.confirm(f"{verb} {' '.join(levels)} for the whole cluster?")

    async def update(client: Admin) -> Errors:
        from aiokafkawire.admin import (  # noqa: PLC0415 - it imports every message
            FeatureUpdate,
            FeatureUpgradeType,
        )

        upgrade_type: FeatureUpgradeType = FeatureUpgradeType[kind]
        before = (await client.describe_features()).finalized_features
        errors: dict[str, KafkaError] = {}
        try:
            await client.update_features(
                {name: FeatureUpdate(level, upgrade_type) for name, level in wanted.items()},
                validate_only=change.dry_run,
            )
        except PartialFailure as error:
            errors = {str(name): each for name, each in error.failed.items()}
        await change.show(
            (
                {
                    "feature": name,
                    "current": before[name].max_version_level if name in before else 0,
                    "level": level,
                }
                for name, level in wanted.items()
                if name not in errors
            ),
            always=True,
        )
        # From Kafka 4.0 on, one error is that of each feature.
        return [*{each.reason: each for each in errors.values()}.values()]

    return admin.execute(update)


def parse_level(text: str) -> tuple[str, int]:
    """Parse FEATURE=LEVEL. Raises `InvalidOption`."""
    name, _, level = text.partition("=")
    if not name or not level.isdecimal() or not level.isascii():
        raise InvalidOption(f"{text!r} must be FEATURE=LEVEL, such as metadata.version=27")
    return name, int(level)
