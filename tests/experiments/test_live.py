"""The page of a run that is still going: who may ask, what is answered, and what the page does in a browser."""

from __future__ import annotations

import http.client
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time

import pytest
from browser import CHROMIUM, Browser
from page_checks import accessible, fits

from emais.errors import EmaisError
from emais.experiments.live import LivePage, LiveServer, is_log, log_text
from emais.experiments.runs.runner import run_all
from emais.experiments.runs.sweep import parse

SECONDS = 120  # to wait for something on a busy machine


@pytest.fixture
def path(tmp_path):
    return tmp_path / "run.jsonl"


@pytest.fixture
def server(path):
    with LiveServer(LivePage(path), port=0) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
        thread.start()
        yield server
        server.shutdown()
        thread.join()


def ask(server, target="/", method="GET", **headers):
    connection = http.client.HTTPConnection("127.0.0.1", server.server_port, timeout=SECONDS)
    connection.request(method, target, headers=headers)
    answer = connection.getresponse()
    body = answer.read().decode("utf-8")
    connection.close()
    return answer, body


def add(path, step, **values):
    with path.open("a") as file:
        file.write(json.dumps({"step": step, **values}) + "\n")


def test_it_waits_for_the_file_and_shows_what_is_added(server, path):
    assert "there is no such file yet" in ask(server)[1]
    path.write_text("")
    assert "no line with numbers yet" in ask(server)[1]
    path.write_text('{"step": 7, "loss"')
    assert "no line with numbers yet" in ask(server)[1]
    path.write_text("")
    add(path, 7, loss=2.0)
    first = ask(server)[1]
    assert "At step 7" in first
    add(path, 8, loss=1.0)
    second = ask(server)[1]
    assert "At step 8" in second
    assert second == ask(server)[1]
    path.unlink()
    assert "there is no such file yet" in ask(server)[1]


def test_a_file_that_cannot_be_read_is_no_crash(server, path):
    path.mkdir()
    answer, body = ask(server)
    assert answer.status == 200
    assert "cannot be read" in body


def test_a_file_of_finished_runs_is_shown_as_its_report(server, path):
    text = "data=digits model=perceptron batch_size=32 num_steps=4 method=sgd-scan"
    run_all(parse(text), path)
    body = ask(server)[1]
    assert "runs side by side" in body
    assert "data-version=" in body


def test_it_serves_nothing_but_its_page(server, path):
    add(path, 1, loss=1.0)
    (path.parent / "secret.txt").write_text("secret")
    for target in ("/secret.txt", "/run.jsonl", "/../run.jsonl", "/?a", "/%2e", "/favicon.ico", f"{path}", "*"):
        answer, body = ask(server, target)
        assert (answer.status, body) == (404, "There is nothing but /.\n"), target
    for method in ("POST", "PUT", "DELETE", "OPTIONS", "TRACE"):
        answer, body = ask(server, method=method)
        assert answer.status == 501
        assert "loss" not in body
    answer, body = ask(server, method="HEAD")
    assert (answer.status, body) == (200, "")


def test_it_answers_this_computer_only(server, path):
    """Also where another name leads to the loopback address (DNS rebinding)."""
    add(path, 1, loss=1.0)
    assert server.socket.getsockname()[0] == "127.0.0.1"
    for host in ("localhost", "LOCALHOST:1", "127.0.0.1:8717", "[::1]:80"):
        assert ask(server, Host=host)[0].status == 200
    for host in ("example.org", "localhost.example.org", "127.0.0.1.example.org", "127.0.0.1@example.org", ""):
        answer, body = ask(server, Host=host)
        assert answer.status == 403
        assert "loss" not in body
    with socket.create_connection(server.server_address, timeout=SECONDS) as raw:
        raw.sendall(b"GET / HTTP/1.1\r\nHost: localhost\r\nHost: example.org\r\n\r\n")
        assert b" 403 " in raw.recv(100)
    with socket.create_connection(server.server_address, timeout=SECONDS) as raw:
        raw.sendall(b"GET / HTTP/1.0\r\n\r\n")
        assert b" 403 " in raw.recv(100)


def test_what_the_browser_is_told(server, path):
    answer, _ = ask(server)
    assert answer.getheader("Cache-Control") == "no-store"
    assert answer.getheader("X-Content-Type-Options") == "nosniff"
    assert answer.getheader("X-Frame-Options") == "DENY"
    assert answer.getheader("Access-Control-Allow-Origin") is None


def test_a_port_in_use_is_said(server, path):
    with pytest.raises(EmaisError, match=rf"port {server.server_port} cannot be had .* --port 0"):
        LiveServer(LivePage(path), server.server_port)


def test_what_a_log_is(path):
    assert not is_log(path)
    path.write_text("{torn")
    assert not is_log(path)
    path.write_text('{"step": 1, "text": "x"}\n')
    assert not is_log(path)
    add(path, 2, loss=1.0)
    assert is_log(path)


@pytest.mark.launched
def test_the_command_stops_at_ctrl_c_and_leaves_one_file(path, tmp_path):
    add(path, 3, loss=1.0)
    out = tmp_path / "page.html"
    command = [sys.executable, "-m", "emais", "report", str(path), "--watch", "--port", "0", "--out", str(out)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        line = process.stdout.readline()
        assert line.startswith(f"Watching {path}: http://127.0.0.1:")
        port = int(line.split("127.0.0.1:")[1].split("/")[0])
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=SECONDS)
        connection.request("GET", "/")
        assert b"At step 3" in connection.getresponse().read()
        add(path, 4, loss=0.5)
        os.kill(process.pid, signal.SIGINT)
        rest, errors = process.communicate(timeout=SECONDS)
    finally:
        process.kill()
        process.wait()
    assert (process.returncode, rest, errors) == (0, f"Stopped.\nThe report: {out}\n", "")
    assert out.read_text("utf-8") == log_text(path)


SIGNALLED = """
import builtins, os, signal, sys
from emais.cli import main
write = print
def told(*words, **options):
    write(*words, **options)
    if words[0].startswith("Watching"):
        os.kill(os.getpid(), signal.Signals[sys.argv[1]])
builtins.print = told
sys.exit(main(sys.argv[2:]))
"""


@pytest.mark.launched
@pytest.mark.parametrize("name", ["SIGINT", "SIGTERM"])
def test_a_signal_at_the_very_moment_of_the_address_leaves_the_file(path, tmp_path, name):
    add(path, 3, loss=1.0)
    out = tmp_path / "page.html"
    options = ["report", str(path), "--watch", "--port", "0", "--out", str(out)]
    done = subprocess.run(
        [sys.executable, "-c", SIGNALLED, name, *options], capture_output=True, text=True, timeout=SECONDS, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.endswith(f"Stopped.\nThe report: {out}\n")
    assert out.read_text("utf-8") == log_text(path)


def until(browser, script, wanted):
    end = time.monotonic() + SECONDS
    while browser.run(script) != wanted and time.monotonic() < end:
        time.sleep(0.2)
    assert browser.run(script) == wanted


@pytest.mark.skipif(CHROMIUM is None, reason="no Chromium is installed here")
def test_the_page_in_a_browser_refreshes_itself(server, path, tmp_path):
    for step in range(1, 40):
        add(path, step, loss=3 / step, **{"emais/n_ems": 100 + step, "emais/score": 0.4, "<b>x</b>" * 9: step})
    status = "document.querySelector('h1 + p').textContent.split(',')[0]"
    with Browser(tmp_path / "profile") as browser:
        browser.open_address(server.address)
        assert browser.run(status) == "At step 39"
        browser.run("document.querySelector('.legend li').click()")
        add(path, 40, loss=0.01)
        until(browser, status, "At step 40")
        assert browser.run("document.querySelector('.charts').className") == "charts off-0"  # still hidden
        assert browser.run("document.querySelectorAll('.legend li[role=button]').length") >= 4
        fetched = browser.run("performance.getEntriesByType('resource').map(e => e.name)")
        assert set(fetched) == {server.address}
        for width in (1200, 400):
            size = {"width": width, "height": 800, "deviceScaleFactor": 1, "mobile": True}
            browser.call("Emulation.setDeviceMetricsOverride", **size)
            assert fits(browser)
            assert accessible(browser) == []
        assert browser.problems == []
