"""Makes every kind of gRPC call at the address that it is given, and prints what came of each."""

import queue
import sys
from concurrent import futures

import grpc

PATIENCE = 60
channel = grpc.insecure_channel(sys.argv[1])


def method(kind, name):
    return getattr(channel, kind)(f"/test.Test/{name}")


def unary(name, message=b"", **options):
    return method("unary_unary", name)(message, timeout=PATIENCE, **options)


def own(metadata):
    """What the service has said; an error without messages is one head, in which a proxy has its fields too."""
    return sorted(tuple(pair) for pair in metadata or () if pair[0].startswith("x-"))


def outcome(call):
    try:
        return call()
    except grpc.RpcError as error:
        return error.code(), error.details(), own(error.trailing_metadata())


def say(what, *found):
    print(what, *found, flush=True)


class Talk:
    """A call in which both sides speak when they want."""

    def __init__(self, name="Talk"):
        self.words = queue.Queue()
        self.call = method("stream_stream", name)(iter(self.words.get, None), timeout=PATIENCE)

    def ask(self, word):
        self.words.put(word)
        return next(self.call)

    def end(self):
        self.words.put(None)
        return list(self.call), self.call.code(), own(self.call.trailing_metadata())


reply, call = method("unary_unary", "Unary").with_call(b"abc", metadata=(("x-name", "me"),), timeout=PATIENCE)
say("unary", reply, dict(call.initial_metadata())["x-first"], own(call.trailing_metadata()))
large = bytes(range(256)) * 12_000
say("large", unary("Unary", large) == large[::-1])
with futures.ThreadPoolExecutor(50) as pool:
    say("at once", all(pool.map(lambda n: unary("Unary", b"%d" % n) == (b"%d" % n)[::-1], range(200))))

say("error", outcome(lambda: unary("Fail")))
say("unknown method", outcome(lambda: unary("Nothing"))[0])
failing = method("unary_stream", "FailLater")(b"", timeout=PATIENCE)
say("error behind a message", next(failing), outcome(lambda: next(failing)))

counted = method("unary_stream", "Count")(b"", timeout=PATIENCE)
first = next(counted)
unary("LetGo")
say("stream", first, list(counted), counted.code())
say("upload", method("stream_unary", "Total")((b"x" * 10_000 for _ in range(100)), timeout=PATIENCE))
say("nothing to upload", method("stream_unary", "Total")(iter(()), timeout=PATIENCE))

talks = []
for number in range(6):
    # All of them are open at once, but each has begun before the next one does.
    talks.append(Talk())
    say("both ways", number, [talks[-1].ask(word) for word in (b"a", b"b")])
say("beside them", unary("Unary", b"ab"))
if len(sys.argv) > 2:
    # Neither side says anything for longer than an upload or a page may be silent.
    import time

    time.sleep(float(sys.argv[2]))
say("after a pause", [talk.ask(b"c") for talk in talks], [talk.end() for talk in talks])
greeted = Talk("Greet")
say("the service first", next(greeted.call), greeted.ask(b"word"), greeted.end())

for seconds in (0.5, 2, 8):
    # On a busy machine the first deadlines may be over before the service has the call, which is not what is looked at.
    code = outcome(lambda: method("unary_unary", "Slow")(b"", timeout=seconds))[0]
    if unary("HasBegun", b"0") == b"yes":
        break
say("deadline", code, unary("WasGivenUp"))
slow = method("unary_unary", "Slow").future(b"", timeout=PATIENCE)
say("begun", unary("HasBegun", b"20"))
counted = method("unary_stream", "Count")(b"", timeout=PATIENCE)
next(counted)
slow.cancel()
counted.cancel()
say("given up", slow.cancelled(), outcome(lambda: next(counted))[0], unary("WasGivenUp"))
say("given up there", outcome(lambda: list(method("unary_stream", "GiveUp")(b"", timeout=PATIENCE)))[0])
