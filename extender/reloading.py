"""What follows its files while the extender runs: certificates, the log level and the policy.

Anything new that cannot be used is logged and ignored: what was goes on.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Callable, Sequence

from extender.core import Extender
from extender.listeners import Listener
from extender.settings import ExtenderSettings
from kubeapi import logs
from kubeapi.configfile import SettingsRefused, key_of
from kubeapi.files import EVERY, FileWatch

log = logging.getLogger(__name__)

FOLLOWED = frozenset({"log_level", "policy"})
"""The settings that need no restart."""


class SettingsReload:
    """Called when the settings' file has changed."""

    def __init__(
        self, settings: ExtenderSettings, *, extender: Extender, reread: Callable[[], ExtenderSettings]
    ) -> None:
        self._settings = settings
        self._extender = extender
        self._reread = reread

    def __call__(self) -> None:
        """Take over what may change; flags and environment win over the file as they did at the start."""
        try:
            new = self._reread()
        except SettingsRefused as refusal:
            log.error("settings unchanged, the new ones cannot be used: %s", refusal)  # noqa: TRY400
            return
        changed = sorted(
            name for name in type(new).model_fields if getattr(new, name) != getattr(self._settings, name)
        )
        logs.set_level(new.log_level)
        self._extender.use_policy(new.default_policy)
        for name in changed:
            if name in FOLLOWED:
                log.info("setting changed %s=%s", key_of(name), getattr(new, name))
            else:
                log.warning("setting changed %s: takes effect at the next start", key_of(name))
        self._settings = new


@contextlib.asynccontextmanager
async def reloads(
    settings: ExtenderSettings,
    *,
    extender: Extender,
    listeners: Sequence[Listener],
    reread: Callable[[], ExtenderSettings],
    every: float = EVERY,
) -> AsyncIterator[None]:
    """Look at the files every so many seconds while the context is open."""
    watches = [each.tls.watch.run(each.tls.reload, every=every) for each in listeners if each.tls]
    if settings.config is not None:
        watch = FileWatch(settings.config)
        reload = SettingsReload(settings, extender=extender, reread=reread)
        reload()  # what has changed since the start
        watches.append(watch.run(reload, every=every))
    tasks = [asyncio.create_task(watch) for watch in watches]
    try:
        yield
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
