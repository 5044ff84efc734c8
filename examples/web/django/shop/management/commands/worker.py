"""`python manage.py worker`: run as many as the topic has partitions."""

from __future__ import annotations

from typing import Any

from django.core.management.base import BaseCommand

from shop.worker import make_worker


class Command(BaseCommand):
    help = "Process orders until SIGTERM."

    def handle(self, *args: Any, **options: Any) -> None:
        make_worker().run_forever()
