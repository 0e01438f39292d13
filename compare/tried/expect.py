"""Expectations of a trial. One that is not met stops the application's trial."""

import struct
import zlib


def expect(is_met, reply, wanted):
    if not is_met:
        raise AssertionError(f"wanted: {wanted}\ngot: {reply!r}")
    return reply


def page(browser, path, *words, without=()):
    """A page that is there, with these words in it."""
    reply = browser.get(path)
    expect(reply.status == 200, reply, f"200 from {path}")
    has(reply, *words, without=without)
    return reply


def has(reply, *words, without=()):
    for word in words:
        expect(word in reply.text, reply, f"{word!r} in the page")
    for word in without:
        expect(word not in reply.text, reply, f"no {word!r} in the page")
    return reply


def hit_on_second_visit(first, second, path, *words):
    """What one visitor has seen, another one gets from memory."""
    page(first, path)
    reply = page(second, path, *words)
    return expect(reply.is_hit, reply, f"a hit on {path}")


def personal(browser, path, *words):
    """A page that is not from memory."""
    reply = page(browser, path, *words)
    return expect(not reply.is_hit and "stored" not in reply.cache, reply, f"{path} not stored")


def picture(width=64):
    """A PNG of one colour."""
    def chunk(kind, data):
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
    rows = zlib.compress((b"\0" + b"\x20\x80\xc0" * width) * width)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", struct.pack(">IIBBBBB", width, width, 8, 2, 0, 0, 0)) + chunk(b"IDAT", rows) + chunk(b"IEND", b"")
