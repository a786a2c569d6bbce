"""Fixtures: the library once a process, a board of its own for each test."""

import ctypes
from pathlib import Path

import pytest

import deviceplugin.nvmlsession
from tests.deviceplugin.nvml.board import Board, build


@pytest.fixture(scope="session")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The stub, loaded: whoever asks for a library of its name in this process now gets it."""
    path = build(tmp_path_factory.mktemp("nvml"))
    ctypes.CDLL(str(path))
    return path


@pytest.fixture
def board(library: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Board:
    board = Board(tmp_path / "board")
    monkeypatch.setenv("NVML_STUB", str(board.path))
    # Every test ends with such a wait; the program's own is met in `test_program`.
    monkeypatch.setattr(deviceplugin.nvmlsession, "WAIT_SECONDS", 0.05)
    return board
