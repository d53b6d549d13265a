"""A real browser for tests: Chromium, controlled through chromedriver with the protocol W3C WebDriver."""

import contextlib
import json
import os
import shutil
import socket
import subprocess
import tempfile
import time
import urllib.request

_ELEMENT = "element-6066-11e4-a52e-4f735466cecf"  # the standard defines this key for the id of an element


def is_installed():
    return bool(shutil.which("chromium") and shutil.which("chromedriver"))


class Browser:
    """A window of the browser."""

    def __init__(self, port, arguments):
        self._url = f"http://127.0.0.1:{port}/session"
        options = {"args": arguments, "binary": shutil.which("chromium")}
        answer = self._call("POST", "", {"capabilities": {"alwaysMatch": {
            "goog:chromeOptions": options, "goog:loggingPrefs": {"browser": "ALL"}}}})
        self._url += f"/{answer['sessionId']}"

    def _call(self, method, path, body=None):
        request = urllib.request.Request(self._url + path, method=method,
                                         data=None if body is None else json.dumps(body).encode(),
                                         headers={"Content-Type": "application/json"})
        with urllib.request.urlopen(request, timeout=120) as answer:
            return json.load(answer)["value"]

    def open(self, url):
        self._call("POST", "/url", {"url": url})

    def run(self, script, *arguments):
        """Runs a JavaScript function with `arguments`, and returns its value. `script` is its body."""
        return self._call("POST", "/execute/sync", {"script": script, "args": list(arguments)})

    def _find(self, selector):
        found = self._call("POST", "/element", {"using": "css selector", "value": selector})
        return f"/element/{found[_ELEMENT]}"

    def click(self, selector):
        self._call("POST", f"{self._find(selector)}/click", {})

    def type(self, selector, text):
        """Clears a field, and types a text into it with the keys."""
        element = self._find(selector)
        self._call("POST", f"{element}/clear", {})
        self._call("POST", f"{element}/value", {"text": text})

    def text(self, selector):
        """Returns the visible text of the first element that the selector matches."""
        return self._call("GET", f"{self._find(selector)}/text")

    def wait_for(self, condition, seconds=60):
        """Waits until an expression in JavaScript is true."""
        end = time.monotonic() + seconds
        while not self.run(f"return Boolean({condition})"):
            assert time.monotonic() < end, condition
            time.sleep(0.1)

    def messages(self):
        """Returns the messages of the console since the last call, such as errors and blocked requests."""
        return [entry["message"] for entry in self._call("POST", "/se/log", {"type": "browser"})]

    def close(self):
        self._call("DELETE", "")


@contextlib.contextmanager
def opened():
    """A context manager that starts chromedriver and yields a `Browser`."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    with tempfile.TemporaryDirectory() as profile:
        driver = subprocess.Popen([shutil.which("chromedriver"), f"--port={port}"], stdin=subprocess.DEVNULL,
                                  stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
                                  env={**os.environ, "HOME": profile})
        try:
            for _ in range(600):
                with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port)):
                    break
                time.sleep(0.1)
            browser = Browser(port, [
                "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
                "--disable-background-networking", "--disable-component-update", "--disable-sync",
                "--disable-dev-shm-usage", "--window-size=900,1100", f"--user-data-dir={profile}/data"])
            try:
                yield browser
            finally:
                browser.close()
        finally:
            driver.terminate()
            driver.wait()
