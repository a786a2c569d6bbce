"""Credentials that do not last, for programs that do.

In a pod kubelet replaces the service account's token every hour or so, and the official loader reads it again
once a minute by itself (`kubernetes` 37). What a kubeconfig names (`tokenFile`, `exec`) it reads once, which
is enough for kubectl and not for a program that runs for months.
"""

from __future__ import annotations

import time
from typing import Any

from kubernetes.aio.config import ConfigException

EVERY = 60.0
"""Seconds between two looks. A plugin is asked again only five minutes before its token ends, or each time if
it does not say when that is."""

_KEY = "BearerToken"

_clock = time.monotonic


def keep_fresh(configuration: Any, loader: Any) -> None:
    """Have `configuration` go by what `loader`, which has filled it from a kubeconfig, finds later."""
    next_look = _clock() + EVERY

    async def look(current: Any) -> None:
        nonlocal next_look
        due = next_look
        if _clock() < due:
            return
        next_look = _clock() + EVERY  # other requests go on with what is known: it is still good
        try:
            await loader.load_and_set(current)
        except Exception as error:  # the official loaders raise whatever a broken file leads them to
            next_look = due
            raise ConfigException(str(error) or repr(error)) from error
        _trim(current)

    _trim(configuration)
    configuration.refresh_api_key_hook = look


def _trim(configuration: Any) -> None:
    """Files end with a newline, headers must not."""
    if _KEY in configuration.api_key:
        configuration.api_key[_KEY] = configuration.api_key[_KEY].strip()
