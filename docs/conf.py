"""Sphinx settings for these pages: `make docs`."""

import re
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))  # for docs.diagrams

from sphinx.application import Sphinx

from aiokafkawire import __version__
from docs.diagrams import embed

project = "aiokafkawire"
author = "The aiokafkawire maintainers"
release = version = __version__

extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon"]
exclude_patterns = ["README.md", "build"]
html_theme = "furo"
html_title = f"{project} {release}"
html_copy_source = False
html_static_path = ["_static"]
html_css_files = ["custom.css"]

# A NamedTuple documents its attributes by itself, too.
napoleon_use_ivar = True

myst_heading_anchors = 3

default_role = "literal"
autoclass_content = "both"
autodoc_member_order = "bysource"
autodoc_typehints_format = "short"
autodoc_default_options = {"members": True}
python_use_unqualified_type_names = True

nitpicky = True
# Types in signatures that these pages do not describe: Python's own, and internal ones.
nitpick_ignore_regex = [
    (r"py:.*", r"(collections|datetime|enum|logging|os|pathlib|re|ssl|types|typing|uuid)\..*"),
    (r"py:.*", r"(opentelemetry|prometheus_client|pyarrow|taskiq)\..*"),
    (r"py:.*", r"aiokafkawire\.(config|runtime|wire)\..*"),
    (r"py:.*", r"(.*\.)?(Action|ApiKey|BatchIterator|Faults|BatchFuture|Segment)"),
    (r"py:.*", r"(.*\.)?(ShareBatchIterator|PartitionAcknowledgements|AcknowledgementFailed)"),
    (r"py:.*", r"(.*\.)?AcquisitionLock"),
    (r"py:.*", r"(.*\.)?(_Function|_KeyT|_ValueT|KeyT|ValueT|SentKeyT|SentValueT|WorkItem)"),
    (r"py:.*", r"(.*\.)?(HeldRecords|Origin)"),
    (r"py:.*", r"(.*\.)?(OffsetsSource|PartitionT|TransactionContextManager)"),
    (r"py:.*", r"(.*\.)?(TokenValidator|Mapping\[str|NodeId|ProducerIdAndEpoch)"),
    (r"py:.*", r"(.*\.)?(AclBinding|ClientMetrics|BrokerThread)"),
    (r"py:.*", r"(.*\.)?(Kafka07Config|Kafka07Options|KafkaError|CorruptRecord)"),
    # Errors that a docstring lists under "Raises": errors.md describes them.
    (r"py:exc", r"\w+"),
]

NOT_FOR_USERS = {"Delivery", "Fault", "FetchResult", "MessageStream", "Records", "WorkerRecord"}
"""Classes that only the package instantiates: their constructors are not shown."""


def tidy_signature(
    _app: object, what: str, name: str, _object: object, _options: object, signature: str, _: str
) -> tuple[str, str] | None:
    """Remove parameters for tests, and constructors that users do not call."""
    if what != "class" or not signature:
        return None
    if name.rpartition(".")[2] in NOT_FOR_USERS:
        return "", ""
    return re.sub(r"(\*, )?_runtime: [^,]*, ", "", signature), ""


def draw(_app: object, page: str, source: list[str]) -> None:
    """Replace Mermaid blocks, which only code hosts render, by drawings."""
    source[0] = embed(page, source[0])


def setup(app: Sphinx) -> None:
    app.connect("autodoc-process-signature", tidy_signature)
    app.connect("source-read", draw)
