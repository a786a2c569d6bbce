"""Columns as Go's text/tabwriter aligns them. The expected texts were printed by Go 1.26."""

import pytest

from inspector.tabwriter import align, printable, row

CASES = {
    "no cell": (["", "a", ""], ["", "a", ""]),
    "the last cell is of no column": (["a\tb", "aaaa\tb"], ["a     b", "aaaa  b"]),
    "an ended last cell is padded": (["a\tbbb\t", "aaaa\tb\t"], ["a     bbb  ", "aaaa  b    "]),
    "a line without tabs ends the columns": (["a\tb", "-", "aaaa\tb"], ["a  b", "-", "aaaa  b"]),
    "a shorter line ends the later columns": (
        ["a\tb\tc", "aa\tb", "a\tbbbbbb\tc"],
        ["a   b  c", "aa  b", "a   bbbbbb  c"],
    ),
    "empty cells are as wide as the padding": (["\t\tx", "\t\ty"], ["    x", "    y"]),
    "letters are counted, not bytes": (["é\tb", "ab\tb"], ["é   b", "ab  b"]),
}


@pytest.mark.parametrize("case", CASES.values(), ids=CASES.keys())
def test_lines_are_aligned_as_go_aligns_them(case: tuple[list[str], list[str]]) -> None:
    lines, expected = case
    assert align(lines).split("\n") == [*expected, ""]


def test_nothing_gives_nothing() -> None:
    assert align([]) == ""


def test_thousands_of_columns_are_no_trouble() -> None:
    line = "\t".join("abc" for _ in range(3000))
    assert align([line, line]) == ("abc  " * 2999 + "abc\n") * 2


def test_what_a_terminal_would_obey_is_not_printed() -> None:
    assert row("a\tb", 5, "\x1b[2Jred\n") == "a?b\t5\t?[2Jred?"
    assert printable("NVIDIA A100 × 8") == "NVIDIA A100 × 8"
