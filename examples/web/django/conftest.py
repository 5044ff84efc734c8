"""Sets Django up before the tests import its models."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

import django

DIRECTORY = tempfile.TemporaryDirectory()
os.environ["DATABASE"] = f"{Path(DIRECTORY.name) / 'shop.sqlite3'}"
os.environ["DJANGO_SETTINGS_MODULE"] = "shop.settings"
django.setup()
