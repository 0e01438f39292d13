"""The application behind a fleet: pages that are fresh for a second, and articles that last until they are purged. It notes when it was asked for what.

Run as a program, because it must not wait for the load: versions.py PORT. /publish/PATH makes a new version of a path; /asked gives the notes since the last time.
"""

import asyncio
import json
import sys
import time
from collections import Counter

WORK_SECONDS = 0.02
TTL_SECONDS = 1.0
LIFETIMES = {"page": "max-age=1, stale-while-revalidate=10", "article": "max-age=3600"}
PADDING = "x" * 1000


class Application(asyncio.Protocol):
    asked, versions = [], Counter()

    def connection_made(self, transport):
        self.transport, self.received = transport, b""

    def data_received(self, data):
        *heads, self.received = (self.received + data).split(b"\r\n\r\n")
        for head in heads:
            self.answer(head.split(b" ", 2)[1].decode())

    def answer(self, path):
        _, kind, name = (path + "/").split("/", 2)
        if kind == "publish":
            self.versions["/" + name.rstrip("/")] += 1
            self.send("", "no-store")
        elif kind == "asked":
            self.send(json.dumps(self.asked), "no-store")
            self.asked.clear()
        else:
            self.asked.append((time.monotonic(), path))
            body = f"{path} {self.versions[path]} {PADDING}"  # what is published while a page is made is not in it
            asyncio.get_running_loop().call_later(WORK_SECONDS, self.send, body, LIFETIMES.get(kind, "no-store"))

    def send(self, body, lifetime):
        self.transport.write(f"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nCache-Control: {lifetime}\r\nContent-Length: {len(body)}\r\n\r\n{body}".encode())


async def serve(port):
    server = await asyncio.get_running_loop().create_server(Application, "127.0.0.1", port, backlog=4096)
    await server.serve_forever()


if __name__ == "__main__":
    asyncio.run(serve(int(sys.argv[1])))
