"""S3 where two requests work at once on an object: 409, whose sender tries again, and 412, who is too late."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest
from fsspec.implementations.memory import MemoryFileSystem

from bench.store.remote import objects as remote
from bench.store.remote.objects import Objects

NAME = "runs/1/history/1"
CONFLICT = (409, "ConditionalRequestConflict", "")
EXISTS = [(412, "PreconditionFailed", "<Condition>If-None-Match</Condition>"), (412, "PreconditionFailed", "")]


class Bucket:
    """Answers to requests that create objects: 409 to the first `conflicts`, during which another's may arrive."""

    def __init__(self, conflicts: int, others: bytes | None, exists: tuple[int, str, str]) -> None:
        self.conflicts, self.others, self.exists = conflicts, others, exists
        self.held: dict[str, bytes] = {}
        self.asked = 0  #: requests

    def create(self, path: str, content: bytes) -> tuple[int, str, str] | None:
        """Return why nothing was written as status, code and a part of the answer; None if the object was made."""
        self.asked += 1
        if self.asked <= self.conflicts:
            if self.others is not None:
                self.held[path] = self.others
            return CONFLICT
        if path in self.held:
            return self.exists
        self.held[path] = content
        return None


@pytest.fixture
def on_server(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[Bucket], Objects]]:
    """Objects through s3fs and botocore, in a bucket whose answers are those of S3's protocol."""
    s3fs = pytest.importorskip("s3fs", reason="s3fs is not installed")
    servers: list[ThreadingHTTPServer] = []

    def serve(bucket: Bucket) -> Objects:
        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"  # botocore waits for "100 Continue" before it sends a body

            def do_PUT(self) -> None:
                content = self.rfile.read(int(self.headers["Content-Length"]))
                assert self.headers["If-None-Match"] == "*"
                status, code, more = bucket.create(self.path.split("?")[0], content) or (200, "", "")
                answer = f"<Error><Code>{code}</Code><Message>said by S3</Message>{more}</Error>" if code else ""
                self.send_response(status)
                self.send_header("Content-Length", str(len(answer)))
                self.send_header("ETag", '"0"')
                self.end_headers()
                self.wfile.write(answer.encode())

            def log_message(self, *_: object) -> None: ...

        servers.append(server := ThreadingHTTPServer(("127.0.0.1", 0), Handler))
        threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
        monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://127.0.0.1:{server.server_port}")
        for key in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
            monkeypatch.setenv(key, "test")
        s3fs.S3FileSystem.clear_instance_cache()  # a client keeps the address that it began with
        return Objects("s3://bucket/results")

    yield serve
    s3fs.S3FileSystem.clear_instance_cache()
    for server in servers:
        server.shutdown()
        server.server_close()


class Answer(Exception):
    """Botocore's ClientError, as far as its documentation describes it."""

    def __init__(self, status: int) -> None:
        self.response = {"ResponseMetadata": {"HTTPStatusCode": status}}


@pytest.fixture
def in_errors(monkeypatch: pytest.MonkeyPatch) -> Callable[[Bucket], Objects]:
    """Objects in memory, for which errors are raised as s3fs raises them; for where s3fs is not installed."""

    def serve(bucket: Bucket) -> Objects:
        def pipe_file(_: object, path: str, value: bytes, mode: str) -> None:
            assert mode == "create"
            if refused := bucket.create(path, value):
                if refused[2]:
                    raise FileExistsError(path) from Answer(refused[0])
                raise OSError(5, "said by S3") from Answer(refused[0])

        monkeypatch.setattr(MemoryFileSystem, "pipe_file", pipe_file)
        return Objects("memory://bucket")

    return serve


@pytest.fixture(params=["in_errors", "on_server"])
def served(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Callable[[Bucket], Objects]:
    monkeypatch.setattr(remote, "_WAITS", (0.0,) * 4)
    found: Any = request.getfixturevalue(request.param)
    return found  # type: ignore[no-any-return]


@pytest.mark.parametrize("exists", EXISTS, ids=["s3", "without its condition"])
def test_a_conflict_is_tried_again_until_the_object_is_made_or_is_anothers(
    served: Callable[[Bucket], Objects], exists: tuple[int, str, str]
) -> None:
    objects = served(bucket := Bucket(2, None, exists))
    assert objects.create(NAME, b"ours")
    assert (bucket.asked, [*bucket.held.values()]) == (3, [b"ours"])
    assert not objects.create(NAME, b"late")
    assert [*bucket.held.values()] == [b"ours"]
    objects = served(bucket := Bucket(1, b"theirs", exists))
    assert not objects.create(NAME, b"ours"), "two owners"
    assert (bucket.asked, [*bucket.held.values()]) == (2, [b"theirs"])


def test_a_conflict_without_an_end_is_an_error(served: Callable[[Bucket], Objects]) -> None:
    objects = served(bucket := Bucket(99, None, EXISTS[0]))
    with pytest.raises(OSError, match="said by S3"):
        objects.create(NAME, b"ours")
    assert (bucket.asked, bucket.held) == (5, {})
