"""The clients that compare/w4-client compares, and what is measured of each apart from the load."""

from dataclasses import dataclass

SUBJECT, SUBJECTS = "microcache", ["microcache", "microcache-stale"]
STALE_SECONDS = 10
# What the application is to name in its pages, so that the drivers can tell whose they are.
ECHO = "Accept-Language,Authorization"


@dataclass(frozen=True)
class Client:
    """What is compared: a client by the name that its driver has for it."""
    name: str
    is_java: bool
    has_memcached: bool
    words: tuple = ()  # that it alone is told
    stale_seconds: int = 0
    object_bytes: int = 0  # of those that bound bytes: what an object of the data set takes by the client's own count, which is not the same for all

    def room_for(self, objects):
        """The words that bound its memory to so many objects."""
        bound = {"entries": objects, "bytes": objects * self.object_bytes}
        return {name: value for name, value in bound.items() if value}


CLIENTS = {
    "microcache": Client("microcache", is_java=False, has_memcached=True, object_bytes=5702),
    "microcache-stale": Client("microcache", is_java=False, has_memcached=True, words=(f"stale-seconds={STALE_SECONDS}",), stale_seconds=STALE_SECONDS,
                               object_bytes=5702),
    "http-cache": Client("http-cache", is_java=False, has_memcached=False, object_bytes=5608),
    "HttpClient": Client("classic", is_java=True, has_memcached=True),
    "HttpClient-async": Client("async", is_java=True, has_memcached=True),
}


def alike(clients):
    """Those that differ in more than how stale they may be."""
    return {name: client for name, client in clients.items() if not client.stale_seconds}


def described(versions):
    return f"""- **microcache**: `microcache-client` as a layer on hyper-util's client, a shared cache like the others, and as strict as they are; **microcache-stale** may serve responses that are up to
  {STALE_SECONDS} s stale while it revalidates them.
- **http-cache** {versions["http-cache"]} with http-cache-reqwest {versions["http-cache-reqwest"]} and moka {versions["moka"]}, which bounds bytes. It has no memcached.
- **HttpClient** {versions["httpclient5-cache"]} of Apache, classic with a thread for each user, and async; its limit of 1,000 entries is raised, or set to half of the objects, as the others' limits are by their own count. With spymemcached
  {versions["spymemcached"]}: ketama, and the same deadline as Microcache's.
"""
