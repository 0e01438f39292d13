"""A browser without a screen: cookies, forms and redirects, as a user's has them. Its requests have the fields of Chrome's."""

import http.client
import re
import urllib.parse
import uuid
from html.parser import HTMLParser

from rig.forms import CHROME

PATIENCE_SECONDS = 120
MOST_REDIRECTS = 10
# Without codings, which it would have to undo.
FIELDS = {name: value for name, value in CHROME.items() if name not in ("Connection", "Accept-Encoding")}


class Reply:
    """A response as the browser saw it."""

    def __init__(self, path, status, fields, body):
        self.path, self.status, self.fields, self.body = path, status, fields, body
        self.text = body.decode(errors="replace")
        self.cache = fields.get("Cache-Status", "")
        self.is_hit = "; hit" in self.cache

    def __repr__(self):
        # What an application complains about comes first.
        complaint = max(0, *(self.text.find(mark) for mark in ["messages error", 'class="error', "mw-message-box-error"]))
        return f"{self.path}: {self.status}, Cache-Status: {self.cache}, Content-Type: {self.fields.get('Content-Type')}\n{self.text[complaint:complaint + 1500]}"


class Form(HTMLParser):
    """The fields of the form that contains a field or has an id, with what is in them."""

    def __init__(self, reply, known):
        super().__init__(convert_charrefs=True)
        self.known, self.found, self.values, self.text_of, self.select = known, None, {}, None, None
        self.action, self.is_current, self.is_found = None, False, False
        self.feed(reply.text)
        self.found = self.found or {}

    def handle_starttag(self, tag, pairs):
        given = dict(pairs)
        name = given.get("name")
        if tag == "form":
            self.values, self.action = {}, given.get("action")
            self.is_current = given.get("id") == self.known
        elif self.action is None and not self.values and tag not in ("input", "textarea", "select", "option"):
            return
        elif tag == "input" and name:
            if name == self.known:
                self.is_current = True
            kind = given.get("type", "text")
            if "disabled" not in given and kind not in ("submit", "button", "image", "file") and (kind not in ("checkbox", "radio") or "checked" in given):
                self.values[name] = given.get("value", "on" if kind == "checkbox" else "")
        elif tag == "textarea" and name:
            self.is_current |= name == self.known
            self.text_of, self.values[name] = name, ""
        elif tag == "select" and name:
            self.is_current |= name == self.known
            self.select = name
        elif tag == "option" and self.select and ("selected" in given or self.select not in self.values):
            self.values[self.select] = given.get("value", "")

    def handle_data(self, data):
        if self.text_of:
            self.values[self.text_of] += data

    def handle_endtag(self, tag):
        if tag == "textarea":
            self.text_of = None
        elif tag == "select":
            self.select = None
        elif tag == "form" and self.is_current and not self.is_found:
            self.is_found, self.is_current = True, False
            self.found, self.target = self.values, self.action


class Browser:
    """A visitor: a cookie jar of its own, and the address of the site."""

    def __init__(self, port):
        self.port, self.cookies, self.paths = port, {}, {}

    def get(self, path, fields=None, follow=True):
        return self.request("GET", path, None, fields, follow)

    def post(self, path, values, fields=None, follow=True):
        body = urllib.parse.urlencode(values)
        return self.request("POST", path, body, {"Content-Type": "application/x-www-form-urlencoded", **(fields or {})}, follow)

    def upload(self, path, values, name, file, content, media_type, follow=True):
        """Posts a form with a file."""
        mark = uuid.uuid4().hex
        parts = [f'--{mark}\r\nContent-Disposition: form-data; name="{key}"\r\n\r\n{value}\r\n'.encode() for key, value in values.items()]
        parts.append(f'--{mark}\r\nContent-Disposition: form-data; name="{name}"; filename="{file}"\r\nContent-Type: {media_type}\r\n\r\n'.encode())
        body = b"".join(parts) + content + f"\r\n--{mark}--\r\n".encode()
        return self.request("POST", path, body, {"Content-Type": f"multipart/form-data; boundary={mark}"}, follow)

    def submit(self, reply, known, values, follow=True, file=None):
        """Fills in and sends the form of a page that has the id, or a field of that name."""
        form = Form(reply, known)
        if not form.is_found:
            raise AssertionError(f"no form with {known} in {reply!r}")
        target = self.inside(urllib.parse.urljoin(reply.path, form.target or ""))
        if file:
            return self.upload(target, {**form.found, **values}, *file, follow=follow)
        return self.post(target, {**form.found, **values}, follow=follow)

    def request(self, method, path, body=None, fields=None, follow=True):
        for _ in range(MOST_REDIRECTS):
            reply = self.once(method, path, body, fields or {})
            place = reply.fields.get("Location")
            if not follow or reply.status not in (301, 302, 303, 307, 308) or not place:
                return reply
            path = self.inside(urllib.parse.urljoin(path, place))
            if reply.status in (301, 302, 303):
                method, body, fields = "GET", None, {}
        raise AssertionError(f"too many redirects, the last one to {path}")

    def once(self, method, path, body, fields):
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=PATIENCE_SECONDS)
        own = [f"{name}={value}" for name, value in self.cookies.items() if path.startswith(self.paths.get(name, "/"))]
        try:
            connection.request(method, path.replace(" ", "%20"), body, {**FIELDS, "Cookie": "; ".join([FIELDS["Cookie"], *own]), **fields})
            response = connection.getresponse()
            reply = Reply(path, response.status, response.headers, response.read())
        finally:
            connection.close()
        for line in response.headers.get_all("Set-Cookie") or []:
            name, value = line.split(";")[0].split("=", 1)
            if value in ("", "deleted", "+") or re.search(r"max-age=0|expires=Thu, 01.Jan.1970", line, re.I):
                self.cookies.pop(name, None)
            else:
                self.cookies[name] = value
                self.paths[name] = (re.search(r"; *path=([^;]*)", line, re.I) or [None, "/"])[1]
        return reply

    def inside(self, url):
        """The path of a URL, which must be one of this site."""
        parts = urllib.parse.urlsplit(url)
        if parts.netloc not in ("", f"127.0.0.1:{self.port}"):
            raise AssertionError(f"{url} leads away from the site")
        path = urllib.parse.quote(parts.path or "/", safe="/%:@!$&'()*+,;=~")
        return path + (f"?{parts.query}" if parts.query else "")
