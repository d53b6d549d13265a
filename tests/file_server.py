"""A local web server of files with byte ranges. Tests can cut off its answers."""

import hashlib
import http.server
import io
import re
import threading
import zipfile


class Server:
    """A context manager that serves `files`, {path: bytes}, at `address`.

    Attributes:
      requests: list of (path, headers) of the requests.
      cuts: list of numbers of bytes. The next answer ends after the first number, and so on.
      pause: number of bytes after which answers wait for `go`, a threading.Event; None for no pause.
      ranges: whether the server supports the header Range.
      tags: whether the server sends the header ETag.
      tag: the ETag of all files. With None, the ETag of a file depends on its content.
      kind: the Content-Type.
      headers: {name: value} of further headers of all answers.
    """

    def __init__(self, files):
        self.files, self.requests, self.cuts = dict(files), [], []
        self.ranges = self.tags = True
        self.tag = self.pause = None
        self.go = threading.Event()
        self.kind, self.headers = "application/octet-stream", {}
        self._server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        self.address = f"http://127.0.0.1:{self._server.server_port}"

    def __enter__(self):
        threading.Thread(target=self._server.serve_forever, args=(0.01,), daemon=True).start()
        return self

    def __exit__(self, *error):
        self.go.set()
        self._server.shutdown()
        self._server.server_close()

    def _handler(server):  # noqa: N805  `self` is the handler
        class Handler(http.server.BaseHTTPRequestHandler):
            def do_GET(self):
                server.requests.append((self.path, dict(self.headers)))
                path = self.path.partition("?")[0]
                if path not in server.files:
                    self.send_error(404)
                    return
                server.answer(self, server.files[path])

            do_HEAD = do_GET

            def log_message(self, *args):
                pass

        return Handler

    def answer(self, handler, data):
        """Sends a file, or the part of the file that the header Range requests."""
        tag = self.tag or f'"{hashlib.sha1(data).hexdigest()}"'
        wanted = re.match(r"bytes=(\d+)-", handler.headers.get("Range", ""))
        start = int(wanted[1]) if wanted and self.ranges and handler.headers.get("If-Range") == tag else 0
        if start and start >= len(data):
            handler.send_error(416)
            return
        handler.send_response(206 if start else 200)
        handler.send_header("Content-Type", self.kind)
        handler.send_header("Content-Length", len(data) - start)
        if self.tags:
            handler.send_header("ETag", tag)
        if start:
            handler.send_header("Content-Range", f"bytes {start}-{len(data) - 1}/{len(data)}")
        for name, value in self.headers.items():
            handler.send_header(name, value)
        handler.end_headers()
        if handler.command == "HEAD":
            return
        rest = data[start:][:self.cuts.pop(0) if self.cuts else None]
        if self.pause is not None:
            handler.wfile.write(rest[:self.pause])
            self.go.wait()
        handler.wfile.write(rest[self.pause or 0:])


def zip_of(contents):
    """Returns the bytes of a zip file with the members {name: bytes}."""
    with io.BytesIO() as buffer:
        with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as zipped:
            for name, data in contents.items():
                zipped.writestr(name, data)
        return buffer.getvalue()
