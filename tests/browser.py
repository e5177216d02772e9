"""A real browser for tests, without further packages: Chromium, spoken to over the pipes of its debugging protocol."""

from __future__ import annotations

import json
import os
import select
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
# no sandbox: root has none, and tests may run as root; nothing is fetched in the background
FLAGS = ("--headless", "--no-sandbox", "--disable-gpu", "--disable-background-networking", "--disable-dev-shm-usage",
         "--no-first-run", "--remote-debugging-pipe", "--window-size=1300,1000")  # fmt: skip
# Chromium reads commands from descriptor 3 and answers on 4
START = """import fcntl, os, sys
pair = [fcntl.fcntl(int(a), fcntl.F_DUPFD, 20) for a in sys.argv[1:3]]
os.dup2(pair[0], 3), os.dup2(pair[1], 4)
os.execv(sys.argv[3], sys.argv[3:])"""


class Browser:
    """One page in a headless Chromium; `problems` are its console errors and uncaught exceptions."""

    def __init__(self, folder: Path, timeout: float = 60.0) -> None:
        assert CHROMIUM is not None
        (theirs_in, self._out), (self._in, theirs_out) = os.pipe(), os.pipe()
        command = [sys.executable, "-c", START, str(theirs_in), str(theirs_out), CHROMIUM, *FLAGS]
        self._process = subprocess.Popen(
            [*command, f"--user-data-dir={folder}"], pass_fds=(theirs_in, theirs_out),
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        )  # fmt: skip
        os.close(theirs_in)
        os.close(theirs_out)
        self.problems: list[str] = []
        self._timeout, self._buffer, self._number, self._session, self._loaded = timeout, b"", 0, "", False
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self._session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log"):
            self.call(f"{domain}.enable")

    def __enter__(self) -> Browser:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.terminate()
        self._process.wait(20)
        os.close(self._in)
        os.close(self._out)

    def call(self, method: str, **params: Any) -> dict[str, Any]:
        """A command of the protocol and its answer."""
        self._number += 1
        message: dict[str, Any] = {"id": self._number, "method": method, "params": params}
        if self._session:
            message["sessionId"] = self._session
        os.write(self._out, json.dumps(message).encode() + b"\0")
        while True:
            answer = self._next()
            if answer.get("id") == self._number:
                assert "error" not in answer, answer
                return dict(answer["result"])

    def _next(self) -> dict[str, Any]:
        end = time.monotonic() + self._timeout
        while b"\0" not in self._buffer:
            ready, _, _ = select.select([self._in], [], [], max(0.0, end - time.monotonic()))
            data = os.read(self._in, 1 << 20) if ready else b""
            if not data:
                raise TimeoutError("the browser does not answer")
            self._buffer += data
        line, self._buffer = self._buffer.split(b"\0", 1)
        message = json.loads(line)
        kind, params = message.get("method"), message.get("params", {})
        self._loaded |= kind == "Page.loadEventFired"
        level = params.get("entry", {}).get("level") if kind == "Log.entryAdded" else params.get("type")
        if kind == "Runtime.exceptionThrown" or (
            kind in ("Log.entryAdded", "Runtime.consoleAPICalled") and level in ("error", "warning", "assert")
        ):
            self.problems.append(json.dumps(params)[:500])
        return dict(message)

    def open(self, path: Path) -> None:
        """Load a file and wait for it."""
        self.open_address(path.as_uri())

    def open_address(self, address: str) -> None:
        """Load a page and wait for it."""
        self._loaded = False
        self.call("Page.navigate", url=address)
        while not self._loaded:
            self._next()

    def run(self, script: str) -> Any:
        """The value of a JavaScript expression."""
        answer = self.call("Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in answer, answer
        return answer["result"].get("value")
