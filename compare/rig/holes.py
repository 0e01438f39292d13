"""The application behind the caches that replace tags: pages with holes, and fragments that take their time."""

import threading
import time
from collections import Counter
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

TAGS = {"esi": '<esi:include src="{url}"/>', "ssi": '<!--# include virtual="{url}" -->'}
TEXT = "".join(f"<p>Row {row} of a page, with the number {row * row % 1009}.</p>\n" for row in range(100))
FRAGMENT = "<div>" + "what one visitor sees " * 20 + "</div>"
STORED = "public, max-age=36000"
PERSONAL = "private"


class Holes(BaseHTTPRequestHandler):
    """/page/TAGS/N/KIND/MILLISECONDS/NAME has N holes, /plain/N is the same page in one piece, /_fragment/KIND/MILLISECONDS/NAME/NUMBER fills a hole."""
    protocol_version = "HTTP/1.1"
    # Head and body leave together, and do not wait for the kernel's acknowledgements.
    wbufsize, disable_nagle_algorithm = -1, True

    def do_GET(self):
        self.server.asked[self.path] += 1
        what, *words = self.path.strip("/").split("/")
        if what == "page":
            tags, holes, *fragment = words
            urls = (f"/_fragment/{'/'.join(fragment)}/{number}" for number in range(int(holes)))
            self.answer(STORED, TEXT.join(["", *(TAGS[tags].format(url=url) for url in urls), ""]), 'content="ESI/1.0"' if int(holes) else "")
        elif what == "plain":
            self.answer(STORED, TEXT.join(["", *[FRAGMENT] * int(words[0]), ""]))
        else:
            kind, milliseconds, *_ = words
            time.sleep(int(milliseconds) / 1000)
            self.answer(STORED if kind == "shared" else PERSONAL, FRAGMENT)

    def answer(self, lifetime, body, announcement=""):
        self.send_response(200)
        self.send_header("Content-Type", "text/html")
        self.send_header("Cache-Control", lifetime)
        self.send_header("Content-Length", str(len(body)))
        if announcement:
            self.send_header("Surrogate-Control", announcement)
        self.end_headers()
        self.wfile.write(body.encode())

    def log_message(self, *_):
        """Nothing is written."""


class Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 2048


def composed(holes):
    """The page that a visitor is to get."""
    return TEXT.join(["", *[FRAGMENT] * holes, ""]).encode()


@contextmanager
def serving(port):
    """Serves, and gives the requests of each path so far."""
    server = Server(("127.0.0.1", port), Holes)
    server.asked = Counter()
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield server.asked
    finally:
        server.shutdown()
        server.server_close()
