"""Applications whose forms have tokens, behind the configurations of their guides."""

import os
import re
import subprocess
import sys
from dataclasses import dataclass

from rig.servers import COMPARE, ROOT, run
from tried.browser import Browser, Form
from tried.expect import expect, has

VISITORS, VISITS = 200, 5
# One of so many visitors sends the form after the second visit.
SENDERS = 5
SETTINGS = {"nothing": "", "anonymous_ttl": 'anonymous_ttl = "5s"\n', "tokens": None, "tokens, and every fifth sends the form": None}
REFUSED = (403, 419, 422)
BROWSER = ROOT / "crates/admin/browser"


@dataclass
class Application:
    name: str
    field: str  # of its token in a form
    packages: dict
    command: callable  # for a directory and a port
    source: str  # has the lines of its guide between `guide:` and `end`
    spellings: tuple = ()  # other URLs of the token


def rails(_home, port):
    return ["env", "RAILS_ENV=production", "puma", "-q", "-e", "production", "-t", "4:4", "-b", f"tcp://127.0.0.1:{port}", COMPARE / "form-apps/rails/config.ru"]


def laravel(home, port):
    for directory in ["bootstrap/cache", "storage/framework/sessions", "storage/framework/views", "storage/logs"]:
        (home / directory).mkdir(parents=True)
    index = COMPARE / "form-apps/laravel/index.php"
    return ["env", f"APP_BASE={home}", "php", "-d", "display_errors=0", "-d", f"include_path={os.environ.get('LARAVEL', '/usr/share/php')}",
            "-S", f"127.0.0.1:{port}", index]


def django(home, port):
    run([sys.executable, "-m", "pip", "install", "-q", "--target", home / "lib", "Django==5.2.*", "gunicorn"])
    return ["env", f"HOME={home}", f"PYTHONPATH={home / 'lib'}", "PYTHONDONTWRITEBYTECODE=1", sys.executable, "-m", "gunicorn", "-k", "gthread", "--threads", "4",
            "--chdir", COMPARE / "form-apps/django", "-b", f"127.0.0.1:{port}", "shop:application"]


APPLICATIONS = {one.name: one for one in [
    Application("rails", "authenticity_token", {"puma": "puma", "/usr/share/rubygems-integration/all/gems/actionpack-6.1.7.10": "ruby-rails"}, rails, "rails/config.ru",
                ("/csrf-token.json", "/csrf-token/")),
    Application("laravel", "_token", {"php": "php-cli php-mbstring php-xml", "/usr/share/php/Illuminate/Foundation/Application.php": "php-laravel-framework"}, laravel, "laravel/index.php",
                ("/index.php/csrf-token", "/csrf-token/")),
    Application("django", "csrfmiddlewaretoken", {}, django, "django/shop.py"),
]}


class Trial:
    """One application, and Microcache in front of it."""

    def __init__(self, rig, application):
        self.rig, self.application, self.measured = rig, application, []
        self.text = (ROOT / f"docs/guides/{application.name}.md").read_text()
        self.cores = {rig.server_core, rig.load_core}
        self.origin = rig.start(rig.stack, application.name, self.cores, application.command)
        self.cache = None

    def last_words(self):
        return self.origin.process.last_words() + (self.cache.process.last_words() if self.cache else "")

    def start(self, lines):
        """Starts Microcache anew, with nothing stored."""
        if self.cache:
            self.cache.process.stop()

        def command(home, port):
            origin = f'origin = "{self.origin.url}"\n'
            lines_here = re.sub(r'^origin = .*\n', "", lines, flags=re.M)
            (home / "microcache.toml").write_text(f'listen = "127.0.0.1:{port}"\nadmin = "off"\n{origin}{lines_here}')
            return [self.rig.microcache, "--config", home / "microcache.toml"]
        self.cache = self.rig.start(self.rig.stack, f"microcache-{self.application.name}", self.cores, command)
        return self.cache.port

    def configuration(self):
        return re.search(r"```toml\n(.*?)```", self.text, re.S)[1]

    def browser(self):
        return Browser(self.cache.port)

    def token(self, browser, **fields):
        return browser.get("/csrf-token", fields)

    def send(self, browser, value, text="hello"):
        return browser.post("/contact", {self.application.field: value, "text": text}, follow=False)

    def guide(self, step):
        step("the guide has the lines of the application")
        source = (COMPARE / "form-apps" / self.application.source).read_text()
        for lines in re.findall(r"(?:#|//) guide: .*\n(.*?)\n *(?:#|//) end\n", source, re.S):
            wanted = [line.strip() for line in lines.splitlines()]
            if "\n".join(wanted) not in "\n".join(line.strip() for line in self.text.splitlines()):
                raise AssertionError("not in the guide:\n" + lines)

    def rates(self, step):
        for page in ["/", "/contact"]:
            row = [self.application.name, page]
            for name, lines in SETTINGS.items():
                step(f"{page}: {name}")
                self.start(self.configuration() if lines is None else lines)
                row.append(f"{self.rate(page, sends=name.endswith('form')) * 100:.1f} %")
            self.measured.append(row)

    def rate(self, page, sends):
        hits, all_visitors = 0, [self.browser() for _ in range(VISITORS)]
        for visit in range(VISITS):
            for number, visitor in enumerate(all_visitors):
                if sends and visit == 2 and number % SENDERS == 0:
                    reply = self.send(visitor, self.token(visitor).text)
                    expect(reply.status in (302, 303), reply, "a form that is accepted")
                    has(visitor.get("/"), "Thanks for hello")
                reply = visitor.get(page)
                expect(reply.status == 200, reply, "200")
                hits += reply.is_hit
        return hits / (VISITORS * VISITS)

    def visited(self, step, mode):
        if not (BROWSER / "node_modules/playwright-core").exists():
            run(["npm", "ci", "--silent", "--no-audit", "--no-fund"], cwd=BROWSER)
        for path in ["/", "/contact", "/login"]:
            self.browser().get(path)
        done = subprocess.run(["node", COMPARE / "tried/forms.mjs", f"http://127.0.0.1:{self.cache.port}", f"http://localhost:{self.cache.port}", self.application.field, mode],
                              capture_output=True, text=True)
        for line in done.stdout.splitlines():
            step(line)
        expect(done.returncode == 0, done.stderr, "visitors with a browser")

    def visitors(self, step):
        self.start(self.configuration())
        self.visited(step, "browser")

    def without_scripts(self, step):
        self.start(re.sub(r'^(from = .*)', r'\1\nwait = true', self.configuration(), flags=re.M))
        self.visited(step, "wait")

    def attacks(self, step):
        self.start(self.configuration())
        step("a token belongs to one session, is never stored, however its URL is written")
        ann, bob = self.browser(), self.browser()
        tokens = [self.token(one).text for one in (ann, bob)]
        expect(self.send(bob, tokens[0]).status in REFUSED, tokens, "a refusal")
        expect(self.send(ann, tokens[0]).status in (302, 303), tokens, "an accepted form")
        seen = set()
        for path in ["/csrf-token", "/csrf-token?x=1", "/csrf%2Dtoken", "/%63srf-token", "//csrf-token", "/./csrf-token", *self.application.spellings] * 2:
            reply = self.browser().get(path, follow=False)
            expect(not (reply.is_hit and reply.status == 200), reply, f"no hit on {path}")
            expect("stored" not in reply.cache or reply.status != 200, reply, f"{path} not stored")
            if reply.status == 200:
                expect("no-store" in reply.fields["Cache-Control"] and reply.text not in seen, reply, "a token of its own")
                expect("Access-Control-Allow-Origin" not in self.token(self.browser(), Origin="http://evil.example").fields, reply, "no CORS")
                seen.add(reply.text)
        step("no hit sets a cookie, and no page in memory has a token")
        for path in ["/", "/contact", "/login", "/nowhere"]:
            own = self.browser()
            first = own.get(path)
            for _ in range(3):
                reply = self.browser().get(path)
                expect(reply.is_hit and "Set-Cookie" not in reply.fields and reply.status == first.status, reply, "a hit without a cookie")
                value = Form(reply, "text").values or {}
                expect(not value.get(self.application.field) and not re.search(r'"csrf-token" content="[^"]', reply.text), reply, "no token")
        step("a visitor whose request is sent keeps the session")
        for path in ["/", "/contact"]:
            ann = self.browser()
            value = self.token(ann).text
            before = dict(ann.cookies)
            self.start(self.configuration())
            ann.port = bob.port = self.cache.port
            reply = ann.get(path)
            expect(not reply.is_hit and ann.cookies == before, reply, "the cookies as they were")
            expect(self.send(ann, value).status in (302, 303), reply, "an accepted form")
        step("a page by language is shared by language, if its application has several")
        for path in ["/", "/contact"] * 2:
            for language in ["de", "fr"]:
                pages = [one.get(path, {"Accept-Language": language}) for one in (Browser(self.origin.port), self.browser())]
                expect(len({re.search(r"<html.*?>", page.text)[0] for page in pages}) == 1, pages[1], language)
        step("a refused form, its error page and a message are for one visitor")
        refused = self.send(bob, "")
        expect(refused.status in REFUSED and "stored" not in refused.cache, refused, "a refusal that is not stored")
        self.send(ann, self.token(ann).text, "secret of ann")
        for _ in range(3):
            has(self.browser().get("/"), without=["secret of ann"])
            has(self.browser().get("/contact"), without=["secret of ann"])
        has(ann.get("/"), "secret of ann")
        has(ann.get("/"), without=["secret of ann"])
        expect(ann.get("/").is_hit, ann.cookies, "a hit once the message was read")
        step("a sign-in is for one visitor, whose session is a new one")
        before = dict(ann.cookies)
        ann.post("/login", {self.application.field: self.token(ann).text, "text": "Ann Own"})
        expect(ann.cookies != before, ann.cookies, "another session")
        for path in ["/", "/contact", "/login", "/nowhere"]:
            reply = ann.get(path)
            expect(not reply.is_hit or reply.status == 404, reply, "her own page")
            has(self.browser().get(path), without=["Ann Own"])
        fixed = self.browser()
        fixed.cookies = dict(before)
        has(fixed.get("/"), without=["Ann Own"])
        has(fixed.get("/contact?x=1"), without=["Ann Own"])
