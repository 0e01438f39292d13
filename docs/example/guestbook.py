#!/usr/bin/env python3
"""A guest book that takes half a second for each page, to try a cache on.

    python3 docs/example/guestbook.py         # http://127.0.0.1:3000/

It says nothing about caching, as most applications do. Every page it makes is a line on its output.
"""

import html
import sys
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs

entries = ["Hello."]


class GuestBook(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self):
        time.sleep(0.5)
        lines = "".join(f"<li>{html.escape(entry)}</li>\n" for entry in entries)
        page = f"<!doctype html><title>Guest book</title>\n<ul>\n{lines}</ul>\n".encode()
        self.send_response(200)
        self.send_header("Content-Type", "text/html; charset=utf-8")
        self.send_header("Content-Length", str(len(page)))
        self.end_headers()
        self.wfile.write(page)

    def do_POST(self):
        form = parse_qs(self.rfile.read(int(self.headers["Content-Length"])).decode())
        entries.extend(form.get("entry", []))
        self.send_response(303)
        self.send_header("Location", "/")
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, template, *arguments):
        print(template % arguments, flush=True)


if __name__ == "__main__":
    port = int(sys.argv[1]) if len(sys.argv) > 1 else 3000
    ThreadingHTTPServer(("127.0.0.1", port), GuestBook).serve_forever()
