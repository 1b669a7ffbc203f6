"""A proxy in front of an S3 service that spoils chosen requests or their replies, and notes what it saw and did."""

from __future__ import annotations

import http.client
import random
import socket
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from enum import StrEnum
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Protocol
from urllib.parse import parse_qs, unquote, urlsplit
from xml.sax.saxutils import escape

from support.ports import LOOPBACK
from support.s3_service import S3Service

_PATIENCE_SECONDS = 60
_SLOW_SECONDS = 0.05
WRONG_ETAG = '"00000000000000000000000000000bad"'
# Each hop has its own connection and its own framing of the body.
_HOP_HEADERS = frozenset({"connection", "keep-alive", "transfer-encoding", "content-length", "expect"})


class Kind(StrEnum):
    """What a request asks of S3."""

    PUT = "PutObject"
    PUT_IF_ABSENT = "PutObject with If-None-Match"
    GET = "GetObject"
    HEAD = "HeadObject"
    LIST = "ListObjectsV2"
    CREATE_UPLOAD = "CreateMultipartUpload"
    UPLOAD_PART = "UploadPart"
    COPY_PART = "UploadPartCopy"
    COMPLETE_UPLOAD = "CompleteMultipartUpload"
    ABORT_UPLOAD = "AbortMultipartUpload"
    LIST_UPLOADS = "ListMultipartUploads"
    LIST_PARTS = "ListParts"
    DELETE = "DeleteObject"
    DELETE_MANY = "DeleteObjects"
    OTHER = "something else"


class Fault(StrEnum):
    """What goes wrong. Only those whose text says so are carried out by the service."""

    ERROR_BEFORE = "500, not carried out"
    ERROR_IN_BODY = "200 whose body is an error, not carried out"
    THROTTLED = "503 SlowDown, not carried out"
    DENIED = "403 AccessDenied, not carried out"
    NO_SUCH_UPLOAD = "404 NoSuchUpload, not carried out"
    REPLY_LOST = "carried out, and the connection is closed without an answer"
    REPLY_CUT = "carried out, and the connection is closed in the middle of the answer"
    ERROR_AFTER = "carried out, and answered with 500"
    WRONG_ETAG = "carried out, and answered with an ETag that is not the part's"
    SLOW = "carried out after a while"


_REFUSALS = {
    Fault.ERROR_BEFORE: (500, "InternalError"),
    Fault.ERROR_AFTER: (500, "InternalError"),
    Fault.ERROR_IN_BODY: (200, "InternalError"),
    Fault.THROTTLED: (503, "SlowDown"),
    Fault.DENIED: (403, "AccessDenied"),
    Fault.NO_SUCH_UPLOAD: (404, "NoSuchUpload"),
}
_NOT_CARRIED_OUT = frozenset(_REFUSALS) - {Fault.ERROR_AFTER}


@dataclass(frozen=True, slots=True)
class Request:
    """One request as it arrived."""

    kind: Kind
    method: str
    key: str


@dataclass(slots=True)
class Noted:
    """One request that the proxy has dealt with. ``status`` is the service's answer; None where it was not asked."""

    request: Request
    fault: Fault | None
    status: int | None = None


class Planner(Protocol):
    """Says which requests are spoiled. Asked once for each, by one thread at a time."""

    def fault_of(self, request: Request) -> Fault | None:
        """Return what happens to a request; None lets it be."""
        ...


@dataclass(slots=True)
class Rule:
    """Spoils ``times`` requests in a row of one of the kinds (and with ``key_contains``), after the first ``skip``."""

    fault: Fault
    kinds: Sequence[Kind]
    key_contains: str = ""
    skip: int = 0
    times: int = 1
    matched: int = 0

    def fault_of(self, request: Request) -> Fault | None:
        if request.kind not in self.kinds or self.key_contains not in request.key:
            return None
        self.matched += 1
        return self.fault if self.skip < self.matched <= self.skip + self.times else None


@dataclass(slots=True)
class Chaos:
    """Spoils a share of all requests, by a seed, with a fault that their kind can meet."""

    seed: int
    share: float
    drawn: random.Random = field(init=False)

    def __post_init__(self) -> None:
        self.drawn = random.Random(self.seed)

    def fault_of(self, request: Request) -> Fault | None:
        spoiled = self.drawn.random() < self.share
        fault = self.drawn.choice(faults_of(request.kind))
        return fault if spoiled else None


def faults_of(kind: Kind) -> list[Fault]:
    """Return the faults that requests of a kind can meet."""
    special = {
        Fault.NO_SUCH_UPLOAD: (Kind.UPLOAD_PART, Kind.COPY_PART, Kind.COMPLETE_UPLOAD),
        Fault.WRONG_ETAG: (Kind.UPLOAD_PART, Kind.COPY_PART),
        Fault.ERROR_IN_BODY: (Kind.COPY_PART, Kind.COMPLETE_UPLOAD),
        Fault.REPLY_CUT: (Kind.GET, Kind.LIST, Kind.COPY_PART, Kind.COMPLETE_UPLOAD),
    }
    return [fault for fault in Fault if kind in special.get(fault, (kind,))]


@dataclass(slots=True)
class S3Proxy:
    """A running proxy. ``noted`` has every request since the last ``reset``."""

    service: S3Service
    behind: S3Service
    planners: list[Planner] = field(default_factory=list)
    noted: list[Noted] = field(default_factory=list)
    # What the proxy itself could not deal with: a defect of the proxy or of the service behind it.
    broken: list[BaseException] = field(default_factory=list)
    closing: threading.Event = field(default_factory=threading.Event)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def arm(self, *planners: Planner) -> None:
        """Let these decide, too; the first one that has a fault for a request decides."""
        with self._lock:
            self.planners.extend(planners)

    def disarm(self) -> None:
        """Let every request be from now on."""
        with self._lock:
            self.planners.clear()

    def reset(self) -> None:
        """Disarm, and forget what was seen."""
        with self._lock:
            self.planners.clear()
            self.noted.clear()

    def hits(self, fault: Fault | None = None) -> list[Noted]:
        """Return the requests that were spoiled, by one fault or any."""
        return [noted for noted in list(self.noted) if noted.fault and fault in (None, noted.fault)]

    def decide(self, request: Request) -> Noted:
        """Note a request, with what is to happen to it."""
        with self._lock:
            # Each is asked, so that each counts every request that it is about.
            found = [planner.fault_of(request) for planner in self.planners]
            noted = Noted(request, next((fault for fault in found if fault), None))
            self.noted.append(noted)
            return noted


@contextmanager
def s3_proxy(behind: S3Service) -> Iterator[S3Proxy]:
    """A proxy on a free loopback port; its threads and connections end with the block.

    Raises ``AssertionError`` at the end where the proxy failed otherwise than planned.
    """
    server = _Server((LOOPBACK, 0), _Handler)
    proxy = S3Proxy(replace(behind, endpoint=f"http://{LOOPBACK}:{server.server_address[1]}"), behind)
    server.proxy = proxy
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, name="s3-proxy")
    thread.start()
    try:
        yield proxy
    finally:
        proxy.closing.set()
        server.shutdown()
        thread.join()
        server.close_connections()
        server.server_close()
    assert not proxy.broken, f"the proxy itself failed: {proxy.broken}"


class _Server(ThreadingHTTPServer):
    """One thread for each connection; all have ended when ``server_close`` returns."""

    daemon_threads = False
    block_on_close = True
    request_queue_size = 64
    proxy: S3Proxy

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self._open: set[socket.socket] = set()
        self._open_lock = threading.Lock()

    def process_request(self, request: Any, client_address: Any) -> None:
        with self._open_lock:
            self._open.add(request)
        super().process_request(request, client_address)

    def shutdown_request(self, request: Any) -> None:
        with self._open_lock:
            self._open.discard(request)
        super().shutdown_request(request)

    def close_connections(self) -> None:
        """Wake the threads that wait for the next request of a client that keeps its connection."""
        with self._open_lock:
            for each in self._open:
                with suppress(OSError):
                    each.shutdown(socket.SHUT_RDWR)

    def handle_error(self, request: Any, client_address: Any) -> None:
        error = sys.exception()
        # A client that goes away is its own affair.
        if error is not None and not isinstance(error, ConnectionError):
            self.proxy.broken.append(error)


class _Handler(BaseHTTPRequestHandler):
    """One connection of a client. Expect: 100-continue and keep-alive are the base class's."""

    protocol_version = "HTTP/1.1"
    timeout = _PATIENCE_SECONDS
    # Headers and body go out as two writes: neither waits for the other's acknowledgement.
    disable_nagle_algorithm = True
    server: _Server

    def _serve(self) -> None:
        # Read to its end first: a reply before it would leave the rest in the connection.
        body = self._read_body()
        proxy = self.server.proxy
        noted = proxy.decide(request_of(self.command, self.path, self.headers))
        fault = noted.fault
        if fault is Fault.SLOW:
            proxy.closing.wait(_SLOW_SECONDS)
        if fault in _NOT_CARRIED_OUT:
            self._refuse(fault, noted.request)
            return
        reply, data = self._forward(proxy.behind, body)
        noted.status = reply.status
        if fault is Fault.ERROR_AFTER:
            self._refuse(fault, noted.request)
        elif fault is Fault.REPLY_LOST:
            self._hang_up()
        else:
            self._answer(reply, data, fault)

    do_GET = do_HEAD = do_PUT = do_POST = do_DELETE = _serve  # noqa: N815 - the base class's names

    def _read_body(self) -> bytes:
        if "chunked" not in self.headers.get("Transfer-Encoding", ""):
            return self.rfile.read(int(self.headers.get("Content-Length", "0")))
        chunks = []
        while size := int(self.rfile.readline().partition(b";")[0], 16):
            chunks.append(self.rfile.read(size))
            self.rfile.readline()
        while self.rfile.readline().strip():
            pass
        return b"".join(chunks)

    def _forward(self, behind: S3Service, body: bytes) -> tuple[http.client.HTTPResponse, bytes]:
        upstream = http.client.HTTPConnection(urlsplit(behind.endpoint).netloc, timeout=_PATIENCE_SECONDS)
        try:
            # The Host that the client sent is part of what it signed.
            upstream.putrequest(self.command, self.path, skip_host=True, skip_accept_encoding=True)
            for name, value in self.headers.items():
                if name.lower() not in _HOP_HEADERS:
                    upstream.putheader(name, value)
            if body or self.command in ("PUT", "POST"):
                upstream.putheader("Content-Length", str(len(body)))
            upstream.endheaders(body or None)
            reply = upstream.getresponse()
            return reply, reply.read()
        finally:
            upstream.close()

    def _answer(self, reply: http.client.HTTPResponse, data: bytes, fault: Fault | None) -> None:
        etag = reply.getheader("ETag", "")
        self.send_response_only(reply.status, reply.reason)
        for name, value in reply.getheaders():
            if name.lower() not in _HOP_HEADERS:
                self.send_header(name, WRONG_ETAG if fault is Fault.WRONG_ETAG and name.lower() == "etag" else value)
        if fault is Fault.WRONG_ETAG and not etag:
            data = _with_wrong_etag(data)
        length = reply.getheader("Content-Length", "0") if self.command == "HEAD" else str(len(data))
        if reply.status != 204:
            self.send_header("Content-Length", length)
        self.end_headers()
        self.wfile.write(data[: len(data) // 2] if fault is Fault.REPLY_CUT else data)
        if fault is Fault.REPLY_CUT:
            self._hang_up()

    def _refuse(self, fault: Fault, request: Request) -> None:
        status, code = _REFUSALS[fault]
        text = f"<Error><Code>{code}</Code><Message>planned</Message><Key>{escape(request.key)}</Key></Error>"
        data = b"" if self.command == "HEAD" else b'<?xml version="1.0" encoding="UTF-8"?>\n' + text.encode()
        self.send_response_only(status)
        self.send_header("Content-Type", "application/xml")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def _hang_up(self) -> None:
        self.close_connection = True
        with suppress(OSError):
            self.connection.shutdown(socket.SHUT_RDWR)

    def log_message(self, *_: Any) -> None:
        """Say nothing on stderr: ``noted`` has it."""


def request_of(method: str, target: str, headers: Any) -> Request:
    """Return what a request with path-style addressing asks for."""
    parts = urlsplit(target)
    key = unquote(parts.path).lstrip("/").partition("/")[2]
    query = parse_qs(parts.query, keep_blank_values=True)
    return Request(_kind(method, key, query, headers), method, key)


def _kind(method: str, key: str, query: dict[str, list[str]], headers: Any) -> Kind:
    in_upload = "uploadId" in query
    if method == "PUT" and key:
        if in_upload:
            return Kind.COPY_PART if "x-amz-copy-source" in headers else Kind.UPLOAD_PART
        return Kind.PUT_IF_ABSENT if "if-none-match" in headers else Kind.PUT
    if method == "POST" and "delete" in query:
        return Kind.DELETE_MANY
    if method == "POST" and key:
        return Kind.CREATE_UPLOAD if "uploads" in query else Kind.COMPLETE_UPLOAD
    if method == "DELETE" and key:
        return Kind.ABORT_UPLOAD if in_upload else Kind.DELETE
    if method == "GET" and key:
        return Kind.LIST_PARTS if in_upload else Kind.GET
    if method == "GET" and "uploads" in query:
        return Kind.LIST_UPLOADS
    if method == "GET" and "list-type" in query:
        return Kind.LIST
    return Kind.HEAD if method == "HEAD" and key else Kind.OTHER


def _with_wrong_etag(data: bytes) -> bytes:
    before, opened, rest = data.partition(b"<ETag>")
    _, closed, after = rest.partition(b"</ETag>")
    return before + opened + WRONG_ETAG.encode() + closed + after
