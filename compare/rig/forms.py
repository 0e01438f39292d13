"""The forms of a request for a page: as wrk asks, which says no more than it must, and as a browser does."""

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
PLAIN = "wrk"
FORMS = {PLAIN: {}, "chrome": CHROME}
ASKED = {PLAIN: "", "chrome": ", as Chrome asks"}
# The body for which hits are measured in all forms. A form is as much longer whatever the body is.
SIZE = 1024


def measured(sizes, forms):
    """The sizes and forms of a measurement of hits: all sizes as wrk asks, one as a browser does."""
    return [(size, form) for size in sizes for form in forms if form == PLAIN or size == SIZE]


def flags(form, is_http2=False):
    """The options of wrk and h2load that add the fields of a form. HTTP/2 has names in lower case, and none for the connection."""
    fields = FORMS[form]
    if is_http2:
        fields = {name.lower(): value for name, value in fields.items() if name != "Connection"}
    return tuple(word for name, value in fields.items() for word in ("-H", f"{name}: {value}"))
