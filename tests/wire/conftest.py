import pytest

from tests.wire import vectors


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    if vectors.checked:
        parts = ", ".join(f"{count} {file}" for file, count in sorted(vectors.checked.items()))
        terminalreporter.write_line(
            f"golden vectors of messages: {vectors.checked.total()} checked in both directions"
            f" ({parts})"
        )
