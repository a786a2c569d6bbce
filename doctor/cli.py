"""`gpushare-doctor`: says what is wrong with gpushare in a cluster, and what to do about it."""

from __future__ import annotations

import argparse
import asyncio
import gc
import logging
import sys
from collections.abc import Sequence
from pathlib import Path

from doctor.checks import CHECKS
from doctor.cluster import Cluster
from doctor.collecting import Subject, collect
from doctor.findings import Finding
from doctor.report import as_json, as_table, failed
from gpushare import __version__
from gpushare.errors import ResourceNameError
from gpushare.names import DEFAULT_MEMORY_RESOURCE, Names
from gpushare.release import NAMESPACE, PAIR
from kubeapi.client import KubeApi
from kubeapi.errors import ApiError

PROGRAM = "gpushare-doctor"

_EPILOG = """\
Exit code: 0 all is well (warnings are allowed), 1 something failed, 2 bad flags or no cluster.
It only reads; two pods are created as dry runs, of which nothing stays.
What you may not read is skipped, and the right that is missing is named.
"""


def main(argv: Sequence[str] | None = None) -> None:
    """Look, print, and end with the code that says whether anything failed."""
    given = _parser().parse_args(argv)
    logging.getLogger().addHandler(logging.NullHandler())  # the findings are all there is to say
    try:
        subject = Subject(
            names=Names.of(given.resource),
            namespace=given.namespace,
            scheduler_name=given.scheduler_name,
            probe_namespace=given.probe_namespace,
            extender_url=given.extender_url,
        )
        findings = _findings(subject, kubeconfig=given.kubeconfig, context=given.context)
    except (ApiError, ResourceNameError) as error:
        print(f"{PROGRAM}: {error}", file=sys.stderr)
        sys.exit(2)
    print(as_json(findings) if given.output == "json" else as_table(findings), end="")
    sys.exit(1 if failed(findings) else 0)


def _findings(subject: Subject, *, kubeconfig: Path | None, context: str | None) -> list[Finding]:
    gc.disable()  # it would go through 50,000 pods again and again, for nothing
    try:
        cluster = asyncio.run(_look(subject, kubeconfig=kubeconfig, context=context))
        return [check.run(cluster) for check in CHECKS]
    finally:
        gc.enable()


async def _look(subject: Subject, *, kubeconfig: Path | None, context: str | None) -> Cluster:
    agent = f"{PROGRAM}/{__version__}"
    async with await KubeApi.connect_as_user(user_agent=agent, kubeconfig=kubeconfig, context=context) as api:
        return await collect(api, subject=subject)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog=PROGRAM,
        description="Says what is wrong with gpushare in a cluster, a line a check, and what to do about it.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    add = parser.add_argument
    add("--kubeconfig", type=Path, metavar="FILE", help="kubeconfig file (default: as kubectl finds its own)")
    add("--context", metavar="NAME", help="context of the kubeconfig (default: the current one)")
    add("--namespace", "-n", help=f"the release's namespace (default: where it is found, else {NAMESPACE})")
    add(
        "--resource",
        default=DEFAULT_MEMORY_RESOURCE,
        help=f"what counts GPU memory (default: {DEFAULT_MEMORY_RESOURCE})",
    )
    add(
        "--scheduler-name",
        default=PAIR,
        metavar="NAME",
        help=f"what pods name as schedulerName (default: {PAIR})",
    )
    add(
        "--extender-url",
        metavar="URL",
        help="the extender's --view-listen, http://…:39998, where the API server's proxy does not reach it "
        "(kubectl port-forward)",
    )
    add(
        "--probe-namespace",
        default="default",
        metavar="NAMESPACE",
        help="where the trial pods would be created, if they were (default: default)",
    )
    add("--output", "-o", choices=("table", "json"), default="table", help="form of the answer")
    add("--version", action="version", version=__version__)
    return parser


if __name__ == "__main__":
    main()
