"""`python manage.py send_outbox`: run one of it."""

from __future__ import annotations

from typing import Any

import anyio
from django.conf import settings
from django.core.management.base import BaseCommand

from shop.outbox import send_forever


class Command(BaseCommand):
    help = "Send the records of the outbox to Kafka."

    def handle(self, *args: Any, **options: Any) -> None:
        anyio.run(send_forever, settings.KAFKA_BOOTSTRAP_SERVERS)
