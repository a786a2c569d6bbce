"""Log lines: one each, key=value, to standard error, whatever is logged."""

import logging
import re
import sys

import pytest

from kubeapi import logs

LINE = re.compile(r"time=\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z level=(\w+) at=(\S+) (.*)\n")


def test_a_line_is_key_value_on_standard_error(capsys: pytest.CaptureFixture[str]) -> None:
    logs.configure("info")
    logging.getLogger("extender.binder").info("bound pod=%s node=%s", "default/a", "n1")
    out, err = capsys.readouterr()
    assert out == ""
    match = LINE.fullmatch(err)
    assert match is not None, err
    assert match.groups() == ("info", "extender.binder", "bound pod=default/a node=n1")


@pytest.mark.parametrize("level", logs.LEVELS)
def test_lines_below_the_level_are_left_out(capsys: pytest.CaptureFixture[str], level: str) -> None:
    logs.configure(level)
    for each in logs.LEVELS:
        getattr(logging.getLogger("x"), each)("message")
    wanted = logs.LEVELS[logs.LEVELS.index(level) :]
    assert [match.group(1) for match in LINE.finditer(capsys.readouterr().err)] == list(wanted)


@pytest.mark.parametrize(
    "text",
    [
        "two\nlines",
        "two\r\nlines",
        "over\rwritten",
        "\x1b[2Jcleared",
        "a\x00b",
        "\u2028",
        "\x85",
        "\udcff",
        "tab\t",
    ],
)
def test_what_is_logged_cannot_break_or_forge_a_line(capsys: pytest.CaptureFixture[str], text: str) -> None:
    logs.configure("info")
    logging.getLogger("x").info("pod=%s", f"{text} time=1 level=error")
    err = capsys.readouterr().err
    assert len(err.splitlines()) == 1
    assert err.removesuffix("\n").isprintable()
    assert "level=info at=x pod=" in err


@pytest.mark.parametrize("text", ["x" * 100_000, "€" * 100_000, "\n" * 100_000, "\n" * 900, "x" * 1024])
def test_a_line_is_less_than_1_KiB_and_shows_that_it_was_cut(
    capsys: pytest.CaptureFixture[str], text: str
) -> None:
    logs.configure("info")
    logging.getLogger("x").info("body=%s", text)
    err = capsys.readouterr().err
    assert err.endswith("…\n")
    assert 500 < len(err.encode()) <= 1024


def test_an_exception_follows_its_line(capsys: pytest.CaptureFixture[str]) -> None:
    logs.configure("info")
    try:
        int("because")
    except ValueError:
        logging.getLogger("x").exception("failed")
    first, *rest = capsys.readouterr().err.splitlines()
    assert first.endswith("failed")
    assert rest[-1].startswith("ValueError: ")


def test_configuring_again_replaces_the_handler(capsys: pytest.CaptureFixture[str]) -> None:
    logs.configure("error")
    logs.configure("info")
    logging.getLogger("x").info("once")
    assert capsys.readouterr().err.count("once") == 1
    assert [handler.stream for handler in logging.getLogger().handlers if hasattr(handler, "stream")] == [
        sys.stderr
    ]
