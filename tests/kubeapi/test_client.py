"""What the client makes of an API server that answers, refuses, hangs, breaks off or is not there."""

import asyncio
import json
import socket
import time
from pathlib import Path

import pytest
from kubernetes.aio import client
from kubernetes.aio.config import ConfigException

from gpushare.errors import GpuShareError
from kubeapi.client import MERGE_PATCH, KubeApi
from kubeapi.errors import ApiError, ApiRefused, ApiUnreachable
from tests.kubeapi.scripted import Script, answer, cut, event, kubeconfig, refuse, watch

pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest.fixture
def closed_port() -> int:
    """A port that nothing listens on."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


async def lines(api: KubeApi, *, idle: float = 10.0) -> list[bytes]:
    return [line async for line in api.lines("/watch", query={"watch": "1"}, idle=idle)]


async def test_a_request_carries_credentials_query_and_body(script: Script, api: KubeApi) -> None:
    script.then(answer({"metadata": {"name": "x"}}, status=201))
    response = await api.request(
        "POST", "/api/v1/things", query={"limit": "5", "fieldSelector": "a!=b,c="}, body={"k": 1}
    )
    assert (response.status, response.json()) == (201, {"metadata": {"name": "x"}})
    assert response.checked() is response
    (asked,) = script.asked
    assert (asked.method, asked.path) == ("POST", "/api/v1/things")
    assert asked.query == {"limit": "5", "fieldSelector": "a!=b,c="}
    assert json.loads(asked.body) == {"k": 1}
    assert asked.headers["Authorization"] == "Bearer secret"
    assert asked.headers["User-Agent"] == "gpushare-test/1"
    assert asked.headers["Content-Type"] == "application/json"
    assert api.host == script.url


@pytest.mark.parametrize("body", [{"metadata": {"annotations": {"a": None}}}, {}, []])
async def test_a_patch_carries_its_own_content_type(script: Script, api: KubeApi, body: object) -> None:
    script.then(answer({}))
    await api.request("PATCH", "/api/v1/nodes/n1", body=body, content_type=MERGE_PATCH)
    (asked,) = script.asked
    assert asked.headers["Content-Type"] == MERGE_PATCH
    assert json.loads(asked.body) == body, "null deletes a key: it must not get lost"


@pytest.mark.parametrize("status", [400, 401, 403, 404, 409, 410, 422, 429, 500, 503, 504])
async def test_a_refusal_is_returned_and_turns_into_an_error_with_kubernetes_own_words(
    script: Script, api: KubeApi, status: int
) -> None:
    script.then(refuse(status, reason="SomeReason", message='pods "a" cannot be: because'))
    response = await api.request("GET", "/x")
    assert response.status == status
    with pytest.raises(ApiRefused) as raised:
        response.checked()
    error = raised.value
    assert (error.status, error.reason, error.message) == (
        status,
        "SomeReason",
        'pods "a" cannot be: because',
    )
    assert str(error) == f'API server answered {status} SomeReason: pods "a" cannot be: because'
    assert isinstance(error, ApiError)
    assert isinstance(error, GpuShareError)


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (b"", ""),
        (b"<html>bad gateway</html>", "<html>bad gateway</html>"),
        (b"x" * 100_000, "x" * 200),
        (b"\xff\xfe", "\ufffd\ufffd"),
        (b"null", "null"),
        (b'{"message": 5}', '{"message": 5}'),
        (b'{"x":' + b"[" * 100_000, '{"x":' + "[" * 195),
    ],
    ids=["empty", "html", "long", "not-utf-8", "null", "wrong-type", "deep"],
)
async def test_a_refusal_of_somebody_in_between_is_an_error_with_what_was_said(
    script: Script, api: KubeApi, body: bytes, message: str
) -> None:
    script.then(answer(body, status=502))
    with pytest.raises(ApiRefused) as raised:
        (await api.request("GET", "/x")).checked()
    assert (raised.value.status, raised.value.reason, raised.value.message) == (502, "Unknown", message)


@pytest.mark.parametrize(
    ("header", "seconds"),
    [("3", 3.0), ("0", 0.0), (None, None), ("soon", None), ("Wed, 21 Oct 2026 07:28:00 GMT", None),
     ("-1", None), ("nan", None), ("inf", None), ("1e999", None)],
)  # fmt: skip
async def test_retry_after_is_a_finite_time_or_none(
    script: Script, api: KubeApi, header: str | None, seconds: float | None
) -> None:
    script.then(refuse(429, headers={"Retry-After": header} if header else None))
    with pytest.raises(ApiRefused) as raised:
        (await api.request("GET", "/x")).checked()
    assert raised.value.retry_after == seconds


async def test_a_refused_connection_is_out_of_reach_and_says_who_and_why(
    closed_port: int, tmp_path: Path
) -> None:
    url = f"http://127.0.0.1:{closed_port}"
    async with await KubeApi.connect(kubeconfig(tmp_path / "k", server=url), user_agent="t") as api:
        with pytest.raises(ApiUnreachable) as raised:
            await api.request("GET", "/api/v1/pods")
        for words in (url, "out of reach", "GET /api/v1/pods", "onnect"):
            assert words in str(raised.value)
        with pytest.raises(ApiUnreachable, match="watch of /watch"):
            await lines(api)


@pytest.mark.parametrize(
    "server",
    ["http://127.0.0.1:1", "http://no-such-host.invalid", "localhost:6443", "https://[::1",
     "http://h:99999999", "ftp://h", ""],
)  # fmt: skip
async def test_an_address_that_leads_nowhere_is_out_of_reach_whatever_is_wrong_with_it(
    server: str, tmp_path: Path
) -> None:
    try:
        api = await KubeApi.connect(kubeconfig(tmp_path / "k", server=server), user_agent="t")
    except ApiError:
        return  # said at once, which is as good
    async with api:
        with pytest.raises(ApiUnreachable):
            await api.request("GET", "/x", timeout=5.0)
        with pytest.raises(ApiUnreachable):
            await lines(api, idle=5.0)


async def test_a_server_that_hangs_is_out_of_reach_when_the_time_is_up(script: Script, api: KubeApi) -> None:
    start = time.monotonic()
    with pytest.raises(ApiUnreachable, match="no answer in time"):
        await api.request("GET", "/x", timeout=0.1)
    assert time.monotonic() - start < 2.0
    assert len(script.asked) == 1, "not tried again behind the caller's back"


@pytest.mark.parametrize("after", [b"", b'{"half":'], ids=["before-the-answer", "within-it"])
async def test_a_write_whose_connection_breaks_is_of_unknown_outcome_and_not_repeated(
    script: Script, api: KubeApi, after: bytes
) -> None:
    script.then(cut(after=after))
    with pytest.raises(ApiUnreachable):
        await api.request("POST", "/binding", body={"k": 1})
    assert len(script.asked) == 1


async def test_a_watch_gives_its_lines_however_they_are_cut_into_chunks(script: Script, api: KubeApi) -> None:
    long = b"x" * 3_000_000
    script.then(
        watch(b"one\ntw", b"o", b"\n", b"\n\nthree\n" + long[:10], long[10:] + b"\nrest without an end")
    )
    assert await lines(api) == [b"one", b"two", b"three", long]
    assert script.asked[0].query == {"watch": "1"}


async def test_a_watch_that_is_refused_says_why(script: Script, api: KubeApi) -> None:
    script.then(refuse(403, reason="Forbidden", message="cannot watch pods"))
    with pytest.raises(ApiRefused, match="cannot watch pods"):
        await lines(api)


async def test_a_watch_that_breaks_off_is_out_of_reach_after_its_lines(script: Script, api: KubeApi) -> None:
    script.then(watch(event("ADDED", "a", version=1), broken=True))
    got = []

    async def follow() -> None:
        async for line in api.lines("/watch", query={}, idle=10.0):
            got.append(line)

    with pytest.raises(ApiUnreachable, match="watch of /watch"):
        await follow()
    assert len(got) == 1


async def test_a_watch_that_is_silent_for_too_long_is_out_of_reach(script: Script, api: KubeApi) -> None:
    script.then(watch(b"one\n", held=True))
    with pytest.raises(ApiUnreachable, match="no answer in time"):
        await lines(api, idle=0.1)


async def test_a_watch_says_when_it_is_open_before_its_first_line(script: Script, api: KubeApi) -> None:
    script.then(refuse(410), watch(held=True))
    opened = asyncio.Event()

    async def follow() -> None:
        async for _ in api.lines("/watch", query={}, idle=10.0, opened=opened.set):
            pass

    with pytest.raises(ApiRefused):
        await follow()
    assert not opened.is_set()
    task = asyncio.create_task(follow())
    await asyncio.wait_for(opened.wait(), timeout=5)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


@pytest.mark.parametrize(
    "text",
    ["", "}{", "[]", "- a", "just text", "a: b: c", "5", "\x00", "apiVersion: v1", "current-context: c",
     "{current-context: c, contexts: [], clusters: []}",
     "{current-context: c, contexts: [{name: c}], clusters: []}",
     "{current-context: c, contexts: [{name: c, context: {cluster: x}}], clusters: []}",
     "{current-context: c, contexts: [{name: c, context: {cluster: c}}], clusters: [{name: c}]}",
     "{current-context: c, contexts: [{name: c, context: {cluster: c}}],"
     " clusters: [{name: c, cluster: {server: 5}}]}",
     "{current-context: c, contexts: 5, clusters: 5}"],
    ids=lambda text: repr(text[:60]),
)  # fmt: skip
async def test_a_kubeconfig_that_makes_no_sense_is_an_error_that_names_the_file(
    text: str, tmp_path: Path
) -> None:
    path = tmp_path / "kubeconfig"
    path.write_text(text)
    with pytest.raises(ApiError, match="is not usable") as raised:
        await KubeApi.connect(path, user_agent="t")
    assert str(path) in str(raised.value)


async def test_a_kubeconfig_that_is_not_there_is_an_error_that_says_so(tmp_path: Path) -> None:
    path = tmp_path / "missing"
    with pytest.raises(ApiError, match="no such file") as raised:
        await KubeApi.connect(path, user_agent="t")
    assert str(path) in str(raised.value)


async def test_a_kubeconfig_that_is_a_folder_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(ApiError, match="is not usable"):
        await KubeApi.connect(tmp_path, user_agent="t")


@pytest.mark.parametrize("content", [None, "", "not a certificate"], ids=["missing", "empty", "junk"])
async def test_a_certificate_authority_that_cannot_be_read_is_an_error(
    tmp_path: Path, content: str | None
) -> None:
    authority = tmp_path / "ca.crt"
    if content is not None:
        authority.write_text(content)
    path = kubeconfig(
        tmp_path / "k", server="https://127.0.0.1:1", **{"certificate-authority": str(authority)}
    )
    with pytest.raises(ApiError, match="is not usable"):
        await KubeApi.connect(path, user_agent="t")


async def test_outside_a_cluster_without_a_kubeconfig_is_an_error_that_says_what_to_give(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
    with pytest.raises(ApiError, match="--kubeconfig FILE"):
        await KubeApi.connect(None, user_agent="t")


async def test_a_token_that_cannot_be_refreshed_is_out_of_reach_and_not_a_crash(
    script: Script,
) -> None:
    """The service account's token is read again every minute; a rotation can leave it empty for a moment."""

    def broken(*_: object) -> None:
        raise ConfigException("Token file exists but empty.")

    configuration = client.Configuration(host=script.url)
    configuration.api_key["BearerToken"] = "Bearer secret"
    configuration.refresh_api_key_hook = broken
    async with KubeApi(configuration, user_agent="t") as api:
        with pytest.raises(ApiUnreachable, match="Token file exists but empty"):
            await api.request("GET", "/x")
        with pytest.raises(ApiUnreachable, match="Token file exists but empty"):
            await lines(api)


async def test_many_requests_at_once_share_one_client(script: Script, api: KubeApi) -> None:
    script.then(*[answer({"n": number}) for number in range(50)])
    responses = await asyncio.gather(*(api.request("GET", f"/{number}") for number in range(50)))
    assert sorted(response.json()["n"] for response in responses) == list(range(50))
