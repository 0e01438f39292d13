"""The application behind Pushpin: it answers every request with the wish that an event stream be held open."""

import threading
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

CHANNEL = "bench"


class Holding(BaseHTTPRequestHandler):
    """GRIP: what is published to the channel is for whoever has asked."""
    protocol_version = "HTTP/1.1"

    def do_GET(self):
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.send_header("Grip-Hold", "stream")
        self.send_header("Grip-Channel", CHANNEL)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, *_):
        """Nothing is written."""


class Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 1024


@contextmanager
def serving(port):
    server = Server(("127.0.0.1", port), Holding)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield
    finally:
        server.shutdown()
        server.server_close()
