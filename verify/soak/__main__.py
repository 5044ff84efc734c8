"""Run the proofs on three real nodes and print what they saw.

python -m verify.soak                      # all: `make proofs`
python -m verify.soak leader churn
"""

from __future__ import annotations

import argparse
import sys
import time
import traceback
from collections.abc import Callable
from functools import partial

from tests.brokers.kafka import Kafka, Unavailable
from verify.soak import proofs
from verify.soak.chain import SHORT, chain, chain_without
from verify.soak.proofs import Report
from verify.soak.share_group import share_group
from verify.soak.worker_group import worker_group

PROOFS: dict[str, Callable[[Kafka], Report]] = {
    "leader": proofs.leader_killed,
    "eager": partial(proofs.rebalances, strategy="range"),
    "cooperative": partial(proofs.rebalances, strategy="cooperative-sticky"),
    "outage": proofs.outage,
    "churn": partial(proofs.many_members, strategy="range"),
    "churn-cooperative": partial(proofs.many_members, strategy="cooperative-sticky"),
    "churn-consumer": partial(proofs.many_members, strategy="consumer"),
    "coordinator-consumer": partial(proofs.coordinator_killed, strategy="consumer"),
    "coordinator-cooperative": partial(proofs.coordinator_killed, strategy="cooperative-sticky"),
    "share": share_group,
    "worker": worker_group,
    "worker-short": partial(worker_group, records=20_000),
    "chain": chain,
    "chain-without": chain_without,
    "chain-short": partial(chain, messages=20_000, fault_plan=SHORT),
}
ON_REQUEST = {
    "chain-short",
    "churn-consumer",
    "coordinator-consumer",
    "coordinator-cooperative",
    "share",
    "worker",
    "worker-short",
}
"""Proofs that run only if they are named."""
ALL = [name for name in PROOFS if name not in ON_REQUEST]
NODES = 3


def run_proof(name: str, kafka: Kafka) -> bool:
    """Run one proof and return whether it found no problem. One that raises has failed."""
    print(f"{name}:", flush=True)
    began = time.monotonic()
    try:
        report = PROOFS[name](kafka)
    except Exception:
        traceback.print_exc()
        print(f"  FAILED after {time.monotonic() - began:.0f} s", flush=True)
        kafka.start()
        return False
    for problem in report.problems:
        print(f"  PROBLEM: {problem}")
    check_result = "FAILED" if report.problems else "right"
    print(f"  {report.title}: {check_result} ({time.monotonic() - began:.0f} s)", flush=True)
    return not report.problems


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("proofs", nargs="*", metavar="NAME", help=", ".join(PROOFS))
    options = parser.parse_args()
    unknown = set(options.proofs) - PROOFS.keys()
    if unknown:
        parser.error(f"there is no {', '.join(sorted(unknown))}; there are {', '.join(PROOFS)}")
    try:
        with Kafka(nodes=NODES) as kafka:
            print(f"Kafka {kafka.release.version}, {NODES} nodes", flush=True)
            right = [run_proof(name, kafka) for name in options.proofs or ALL]
    except Unavailable as lack:
        print(lack, file=sys.stderr)
        return 1
    print(f"{sum(right)} of {len(right)} proofs right")
    return 0 if all(right) else 1


if __name__ == "__main__":
    sys.exit(main())
