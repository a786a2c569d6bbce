"""A person's cluster is found as kubectl finds it."""

import os
from pathlib import Path

import pytest
import yaml

from kubeapi.client import KubeApi
from kubeapi.errors import ApiError


def write(path: Path, *contexts: str, current: str | None = None, host: str = "cluster") -> Path:
    """A kubeconfig with these contexts, each of a cluster at `http://HOST-CONTEXT`."""
    config = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": name, "cluster": {"server": f"http://{host}-{name}"}} for name in contexts],
        "users": [{"name": name, "user": {"token": "t"}} for name in contexts],
        "contexts": [{"name": name, "context": {"cluster": name, "user": name}} for name in contexts],
    }
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(yaml.safe_dump(config | ({"current-context": current} if current else {})))
    return path


@pytest.fixture(autouse=True)
def person(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty home, no KUBECONFIG, outside any cluster."""
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("KUBECONFIG", raising=False)
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
    return tmp_path


async def host(*, kubeconfig: Path | None = None, context: str | None = None) -> str:
    async with await KubeApi.connect_as_user(user_agent="t", kubeconfig=kubeconfig, context=context) as api:
        return api.host


def set_files(monkeypatch: pytest.MonkeyPatch, *files: Path) -> None:
    monkeypatch.setenv("KUBECONFIG", os.pathsep.join(map(str, files)))


async def test_the_file_at_home_is_the_default(tmp_path: Path) -> None:
    write(tmp_path / ".kube" / "config", "a", "b", current="b")
    assert await host() == "http://cluster-b"
    assert await host(context="a") == "http://cluster-a"


async def test_the_variable_wins_over_home_and_the_flag_over_both(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(tmp_path / ".kube" / "config", "home", current="home")
    set_files(monkeypatch, write(tmp_path / "env", "env", current="env"))
    assert await host() == "http://cluster-env"
    assert await host(kubeconfig=write(tmp_path / "flag", "flag", current="flag")) == "http://cluster-flag"


async def test_several_files_are_merged_and_the_first_that_says_something_is_right(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = write(tmp_path / "1", "a", host="first")
    second = write(tmp_path / "2", "a", "b", current="b", host="second")
    third = write(tmp_path / "3", "c", current="c", host="third")
    empty = tmp_path / "empty"
    empty.touch()
    set_files(monkeypatch, tmp_path / "gone", empty, first, second, third)
    assert await host() == "http://second-b"
    assert await host(context="a") == "http://first-a"
    assert await host(context="c") == "http://third-c"


async def test_a_context_that_does_not_exist_is_an_error_that_names_it(tmp_path: Path) -> None:
    with pytest.raises(ApiError, match="'prod'"):
        await host(context="prod")
    path = write(tmp_path / ".kube" / "config", "a", current="a")
    with pytest.raises(ApiError, match=f"(?s){path}.*prod"):
        await host(context="prod")


async def test_without_any_file_the_pods_own_account_is_tried(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "10.96.0.1")
    with pytest.raises(ApiError, match=r"in-cluster .*--kubeconfig FILE"):
        await host()


async def test_who_has_no_kubeconfig_at_all_is_told_where_it_was_looked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(
        ApiError, match=r"no kubeconfig: \$KUBECONFIG is not set, and ~/.kube/config is missing"
    ):
        await host()
    set_files(monkeypatch, tmp_path / "gone")
    with pytest.raises(ApiError, match=rf"\$KUBECONFIG names \({tmp_path}/gone\) is missing or empty"):
        await host()


@pytest.mark.parametrize("text", ["", "\n", "# nothing yet\n"])
async def test_an_empty_file_given_by_flag_is_said_to_be_empty(tmp_path: Path, text: str) -> None:
    path = tmp_path / "empty"
    path.write_text(text)
    with pytest.raises(ApiError, match=f"kubeconfig {path} is not usable: it is empty"):
        await host(kubeconfig=path)


@pytest.mark.parametrize("text", ["[1, 2]", "{", "\x00", "just text"])
async def test_a_broken_file_among_several_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str
) -> None:
    broken = tmp_path / "broken"
    broken.write_text(text)
    set_files(monkeypatch, broken, write(tmp_path / "good", "a", current="a"))
    with pytest.raises(ApiError, match=str(broken)):
        await host()
    with pytest.raises(ApiError, match=str(broken)):
        await host(context="a")


async def test_a_file_given_by_flag_must_be_there(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with pytest.raises(ApiError, match=f"{tmp_path / 'gone'}.*no such file"):
        await host(kubeconfig=tmp_path / "gone")
    assert caplog.records == [], "the library has nothing to add"


async def test_a_pipe_is_a_kubeconfig_too(tmp_path: Path) -> None:
    text = write(tmp_path / "config", "a", current="a").read_bytes()
    reading, writing = os.pipe()
    os.write(writing, text)
    os.close(writing)
    try:
        assert await host(kubeconfig=Path(f"/dev/fd/{reading}")) == "http://cluster-a"
    finally:
        os.close(reading)
