"""A gRPC service without generated code: messages are bytes. Prints its port and serves until it is killed."""

import sys
import threading
from concurrent import futures

import grpc

gone = threading.Event()
begun = threading.Event()
go = threading.Event()


def unary(request, context):
    asked = dict(context.invocation_metadata())
    context.send_initial_metadata((("x-first", asked.get("x-name", "nobody")),))
    context.set_trailing_metadata((("x-last", str(len(request))), ("x-last-bin", b"\x00\xff")))
    return request[::-1]


def fail(request, context):
    context.set_trailing_metadata((("x-why", "because"),))
    context.abort(grpc.StatusCode.NOT_FOUND, "no such thing: \u00fc")


def fail_later(request, context):
    yield b"first"
    context.abort(grpc.StatusCode.DATA_LOSS, "in the middle")


def count(request, context):
    """The second message is there once the first has arrived."""
    go.clear()
    yield b"1"
    go.wait(20)
    yield b"2"


def let_go(request, context):
    go.set()
    return b""


def total(requests, context):
    return str(sum(len(request) for request in requests)).encode()


def talk(requests, context):
    for request in requests:
        yield request.upper()
    context.set_trailing_metadata((("x-last", "over"),))


def greet(requests, context):
    """Speaks first, and before the caller has said a word."""
    yield b"hello"
    for request in requests:
        yield request


def slow(request, context):
    """Ends when it is given up."""
    gone.clear()
    if not context.add_callback(gone.set):
        gone.set()
    begun.set()
    gone.wait(20)
    return b"late"


def has_begun(request, context):
    """Whether Slow has, for the first time since this was asked."""
    has = begun.wait(float(request))
    begun.clear()
    return b"yes" if has else b"no"


def was_given_up(request, context):
    return b"yes" if gone.wait(20) else b"no"


def give_up(request, context):
    context.cancel()
    yield b""


UNARY = grpc.unary_unary_rpc_method_handler
STREAM = grpc.unary_stream_rpc_method_handler
METHODS = {
    "Unary": UNARY(unary),
    "Fail": UNARY(fail),
    "FailLater": STREAM(fail_later),
    "Count": STREAM(count),
    "LetGo": UNARY(let_go),
    "Total": grpc.stream_unary_rpc_method_handler(total),
    "Talk": grpc.stream_stream_rpc_method_handler(talk),
    "Greet": grpc.stream_stream_rpc_method_handler(greet),
    "Slow": UNARY(slow),
    "HasBegun": UNARY(has_begun),
    "WasGivenUp": UNARY(was_given_up),
    "GiveUp": STREAM(give_up),
}

server = grpc.server(futures.ThreadPoolExecutor(max_workers=64))
server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler("test.Test", METHODS),))
print(server.add_insecure_port("127.0.0.1:0"), flush=True)
server.start()
sys.stdin.read()
