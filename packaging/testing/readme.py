"""README's example, "See it work": a slow guest book behind a published program."""

import sys
import threading
import time

from testing import image, package
from testing.machine import ROOT, answers, ask, ends_well, until

ORIGIN, PORT, ADMIN = 3000, 8080, 8081
PAGE = "/"


def works(machine, program):
    """The steps of the example, with a program that is called like this."""
    guest_book = machine.start([sys.executable, ROOT / "docs/example/guestbook.py", str(ORIGIN)])
    until(lambda: answers(ORIGIN), guest_book)
    server = machine.start([*program, f"http://localhost:{ORIGIN}"])
    until(lambda: answers(ADMIN, "/v1/ready"), server)
    steps()
    ends_well(server)
    guest_book.kill()


def steps():
    # A miss, then a hit.
    expect("fwd=uri-miss; fwd-status=200; stored", ask(PORT, PAGE))
    expect("; hit; ttl=", ask(PORT, PAGE))
    # The stale page at once, and the new one behind it.
    time.sleep(3)
    expect("; hit; ttl=-", ask(PORT, PAGE))
    time.sleep(0.9)
    expect("; hit; ttl=", ask(PORT, PAGE))
    # A form, and the page with its entry.
    expect("fwd=method; fwd-status=303", ask(PORT, PAGE, "POST", "entry=Nice", **{"Content-Type": "application/x-www-form-urlencoded"}), 303)
    page = expect("fwd=uri-miss; fwd-status=200; stored", ask(PORT, PAGE))
    assert "<li>Nice</li>" in page, page
    # Five at once: one is the fetch, and the others wait for it.
    answers_of_all = []
    visitors = [threading.Thread(target=lambda: answers_of_all.append(ask(PORT, "/?page=2"))) for _ in range(5)]
    for visitor in visitors:
        visitor.start()
    for visitor in visitors:
        visitor.join()
    waited = [status for _, status, _ in answers_of_all if "; collapsed" in status]
    assert len(waited) == 4, answers_of_all
    # Personal requests are not answered from memory.
    expect("fwd=request; fwd-status=200; detail=credentials", ask(PORT, PAGE, Cookie="session=1"))


def expect(words, answer, status=200):
    assert answer[0] == status and words in answer[1], f"{words} is not in {answer}"
    return answer[2]


def in_the_package(machine):
    """By the program of the package, which its unit would start with a file."""
    package.install(machine)
    works(machine, ["chroot", machine.root, "/usr/bin/microcache"])


def in_the_image(machine):
    """By the program of the image, with no rights."""
    works(machine, image.in_it(image.mounted(machine), "/usr/bin/microcache"))
