"""The first tables."""

from __future__ import annotations

from django.db import migrations, models


class Migration(migrations.Migration):
    initial = True
    operations = [
        migrations.CreateModel(
            "Order",
            [
                ("id", models.BigAutoField(primary_key=True)),
                ("customer", models.CharField(max_length=100)),
                ("total", models.IntegerField()),
                ("billed", models.BooleanField(default=False)),
            ],
        ),
        migrations.CreateModel(
            "OutboxRecord",
            [
                ("id", models.BigAutoField(primary_key=True)),
                ("topic", models.CharField(max_length=249)),
                ("key", models.BinaryField(null=True)),
                ("value", models.BinaryField(null=True)),
            ],
        ),
    ]
