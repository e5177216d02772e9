"""`emais report RUN --watch`: the page of a run that is still going, served to this computer alone."""

from __future__ import annotations

import re
import signal
import socketserver
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from ..errors import EmaisError, whole_number
from .analysis.run_log import RunLog
from .report.log_page import log_page, waiting_page
from .report.user_runs import known_runs, own_page
from .runs.record import RunRecord, typed
from .runs.store import Results

LOOPBACK = "127.0.0.1"
PORT = 8717
POLL_S = 0.5  # seconds; some systems do not let a signal end a wait
# a page of another name that leads here (DNS rebinding) is refused; the port may be another one: a tunnel's
OWN_NAMES = re.compile(r"(localhost|127\.0\.0\.1|\[::1\])(:\d{1,5})?", re.IGNORECASE)
HEADERS = {
    "Cache-Control": "no-store",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
}


def is_log(path: Path) -> bool:
    """Whether a file is the log of a run: it has numbers, and no record of a finished run."""
    if not path.is_file() or Results(path).read():
        return False
    log = RunLog(path)
    log.read()
    return bool(log.series)


def log_text(path: Path) -> str:
    """The page of a log as one file."""
    log = RunLog(path)
    log.read()
    return log_page(log)


class LivePage:
    """The page of a file, made again when the file has changed. Any thread may ask."""

    def __init__(self, path: Path) -> None:
        self.path, self._lock = path, threading.Lock()
        self._log = RunLog(path)
        self._version, self._text = "", ""

    def text(self) -> str:
        """The page as it is now; where there is nothing to show, it says why."""
        with self._lock:
            version = self._present()
            if version != self._version or not self._text:
                self._text, self._version = self._made(version), version
            return self._text

    def _present(self) -> str:
        """What changes whenever the file does."""
        try:
            found = self.path.stat()
        except OSError:
            return "none"
        return f"{found.st_ino}-{found.st_size}-{found.st_mtime_ns}"

    def _made(self, version: str) -> str:
        try:
            if runs := self._runs():
                return own_page(runs, self.path, version)
            self._log.read()
        except FileNotFoundError:
            return waiting_page(self.path, f"Waiting for {self.path}: there is no such file yet.", version)
        except (OSError, EmaisError) as error:
            return waiting_page(self.path, f"{self.path} cannot be read ({error}).", version)
        if self._log.series:
            return log_page(self._log, version)
        return waiting_page(self.path, f"Waiting for {self.path}: it has no line with numbers yet.", version)

    def _runs(self) -> list[RunRecord]:
        """The finished runs in the file; a log, which has none, is not searched for them again."""
        if self._log.series:
            return []
        return typed(known_runs([record for record in Results(self.path).read() if record.complete]))


class LiveServer(ThreadingHTTPServer):
    """Answers with one page, on the loopback address only."""

    daemon_threads = True

    def __init__(self, page: LivePage, port: int = PORT) -> None:
        self.page = page
        try:
            super().__init__((LOOPBACK, whole_number("port", port, 0, 65535)), PageHandler)
        except OSError as error:
            raise EmaisError(
                f"port {port} cannot be had ({error.strerror or error}): give another one, or --port 0 for any that is "
                "free"
            ) from None

    def server_bind(self) -> None:
        """Bind without asking a name server for this computer's name."""
        socketserver.TCPServer.server_bind(self)
        self.server_name, self.server_port = LOOPBACK, self.server_address[1]

    @property
    def address(self) -> str:
        """Where the page is."""
        return f"http://{LOOPBACK}:{self.server_port}/"


class PageHandler(BaseHTTPRequestHandler):
    """GET / is the page. There is nothing else."""

    server: LiveServer
    server_version, sys_version = "emais", ""
    timeout = 10

    def do_GET(self) -> None:
        """The page, or a refusal."""
        self._answer(with_body=True)

    def do_HEAD(self) -> None:
        """The same without its body."""
        self._answer(with_body=False)

    def _answer(self, with_body: bool) -> None:
        hosts = self.headers.get_all("Host") or []
        if len(hosts) != 1 or not OWN_NAMES.fullmatch(hosts[0].strip()):
            status, kind, text = 403, "text/plain", "This page is for this computer only: open it as localhost.\n"
        elif self.path != "/":
            status, kind, text = 404, "text/plain", "There is nothing but /.\n"
        else:
            status, kind, text = 200, "text/html", self.server.page.text()
        body = text.encode("utf-8", "replace")
        self.send_response(status)
        for name, value in HEADERS.items():
            self.send_header(name, value)
        self.send_header("Content-Type", f"{kind}; charset=utf-8")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if with_body:
            self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        """Say nothing of each request."""


def watch(path: Path, port: int = PORT) -> None:
    """Serve the page until Ctrl-C or SIGTERM, at whichever moment it comes."""
    if path.is_dir():
        raise EmaisError(f"{path} is a folder: give the file of a run, e.g. emais report {path / 'run.jsonl'} --watch")
    with LiveServer(LivePage(path), port) as server, until_stopped() as stopped:
        print(f"Watching {path}: {server.address} (Ctrl-C stops)", flush=True)
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            while not stopped.wait(POLL_S):
                pass
        finally:
            server.shutdown()
            thread.join()
        print("Stopped.")


@contextmanager
def until_stopped() -> Iterator[threading.Event]:
    """An event that Ctrl-C and SIGTERM set, instead of interrupting whatever is being done."""
    stopped = threading.Event()
    before = {number: signal.signal(number, lambda *_: stopped.set()) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield stopped
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
