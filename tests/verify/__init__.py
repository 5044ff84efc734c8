"""Tests of the tools in `verify`."""
