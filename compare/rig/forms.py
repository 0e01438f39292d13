"""The forms of a request for a page: as the load generator asks by itself, which says little more than it must, and as a browser does."""

from rig.command import names

# What Chrome sends from one page of a site to the next, to a site that counts its visitors by two services.
CHROME = {
    "Connection": "keep-alive",
    "sec-ch-ua": '"Chromium";v="140", "Not=A?Brand";v="24", "Google Chrome";v="140"',
    "sec-ch-ua-mobile": "?0",
    "sec-ch-ua-platform": '"Linux"',
    "Upgrade-Insecure-Requests": "1",
    "User-Agent": "Mozilla/5.0 (X11; Linux x86_64) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/140.0.0.0 Safari/537.36",
    "Accept": "text/html,application/xhtml+xml,application/xml;q=0.9,image/avif,image/webp,image/apng,*/*;q=0.8,application/signed-exchange;v=b3;q=0.7",
    "Sec-Fetch-Site": "same-origin",
    "Sec-Fetch-Mode": "navigate",
    "Sec-Fetch-Dest": "document",
    "Accept-Encoding": "gzip, deflate, br, zstd",
    "Accept-Language": "en-US,en;q=0.9,de;q=0.8",
    "Cookie": "_ga=GA1.1.1234567890.1700000000; _ga_ABCDEF1234=GS1.1.1700000000.1.1.1700000100.0.0.0; _gid=GA1.2.987654321.1700000000; "
              "_fbp=fb.1.1700000000000.123456789"}
PLAIN = "plain"
FORMS = {PLAIN: {}, "chrome": CHROME}
ASKED = {PLAIN: "", "chrome": ", as Chrome asks"}
# The body for which hits are measured in all forms. A form is as much longer whatever the body is.
SIZE = 1024


def add_option(parser):
    """The choice of the forms of a measurement."""
    parser.add_argument("--forms", type=names(FORMS), default=list(FORMS), metavar="FORM,…", help=f"of {', '.join(FORMS)} (default all)")


def measured(cases, forms, in_all=SIZE):
    """The cases and forms of a measurement: all cases plain, one in all forms."""
    return [(case, form) for case in cases for form in forms if form == PLAIN or case == in_all]


def flags(form, own=(), first=None, is_http2=False):
    """The options of wrk, h2load, ab and siege that add the fields of a form, without those that the program writes of its own. HTTP/2 has names in lower case."""
    fields = sorted(FORMS[form].items(), key=lambda field: field[0] != first)
    return tuple(word for name, value in fields if name not in own for word in ("-H", f"{name.lower() if is_http2 else name}: {value}"))
