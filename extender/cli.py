"""`gpushare-extender`: the command."""

from __future__ import annotations

import sys

import uvloop

from extender import schedulerconfigcommand
from extender.server import serve
from extender.settings import ExtenderSettings
from gpushare.errors import GpuShareError
from kubeapi import logs
from kubeapi.settings import load, read

PROGRAM = "gpushare-extender"


def main() -> None:
    """Read the settings and serve; exit code 2 for settings, 1 with a message when it cannot start.

    With `scheduler-config` as the first argument print what kube-scheduler has to be told, and end.
    """
    if sys.argv[1:2] == [schedulerconfigcommand.COMMAND]:
        schedulerconfigcommand.run(sys.argv[2:])
        return
    settings = load(ExtenderSettings, program=PROGRAM)
    logs.configure(settings.log_level)
    try:
        uvloop.run(serve(settings, reread=lambda: read(ExtenderSettings, program=PROGRAM)))
    except GpuShareError as error:
        sys.exit(f"{PROGRAM}: {error}")


if __name__ == "__main__":
    main()
