"""A name server in these namespaces, for programs that have to find addresses by DNS."""

import ipaddress
import socket
import struct
import threading

A, AAAA, INTERNET = 1, 28, 1
FOUND, NO_SUCH_NAME = 0x8180, 0x8183


class Names:
    """Answers for these names and addresses, and knows no others: RFC 1035, section 4."""

    def __init__(self, known, server="127.0.0.1"):
        self.known = {name.lower(): [ipaddress.ip_address(one) for one in addresses] for name, addresses in known.items()}
        self.server = server

    def __enter__(self):
        self.socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self.socket.bind((self.server, 53))
        self.is_ending = False
        self.thread = threading.Thread(target=self.serve, daemon=True)
        self.thread.start()
        return self

    def __exit__(self, *_):
        # A query to itself ends the thread, whose wait would keep the port.
        self.is_ending = True
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
            any_socket.sendto(b"", (self.server, 53))
        self.thread.join()
        self.socket.close()

    def serve(self):
        while True:
            query, client = self.socket.recvfrom(512)
            if self.is_ending:
                return
            self.socket.sendto(self.answer(query), client)

    def answer(self, query):
        labels, at = [], 12
        while query[at]:
            labels.append(query[at + 1:at + 1 + query[at]].decode().lower())
            at += 1 + query[at]
        kind, _ = struct.unpack(">HH", query[at + 1:at + 5])
        addresses = self.known.get(".".join(labels))
        fitting = [one for one in addresses or [] if kind == {4: A, 6: AAAA}[one.version]]
        head = query[:2] + struct.pack(">HHHHH", NO_SUCH_NAME if addresses is None else FOUND, 1, len(fitting), 0, 0)
        # Each record names the question, which stands behind the head of 12 bytes.
        records = [b"\xc0\x0c" + struct.pack(">HHIH", kind, INTERNET, 60, len(one.packed)) + one.packed for one in fitting]
        return head + query[12:at + 5] + b"".join(records)
