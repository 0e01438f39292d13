"""WordPress with the plugin that tags and purges, and the guide's pages that visitors who are signed in share."""

import json
import re
import shutil
import time

from rig.peers import ROOT
from tried import wordpress
from tried.browser import Browser
from tried.expect import expect, has, page, personal

SOURCE, PACKAGES, PASSWORD = wordpress.SOURCE, wordpress.PACKAGES, wordpress.PASSWORD
GUIDE = ROOT / "docs/guides/wordpress.md"
# A form as plugins have it: its nonce is of one visitor.
CONTACT = """<?php
add_filter('comment_flood_filter', '__return_false');
add_shortcode('contact', function () {
    return '<form id="contact" method="post" action="/"><input name="message">' . wp_nonce_field('contact', 'contact-nonce', false, false) . '</form>';
});
add_action('init', function () {
    if (isset($_POST['contact-nonce'])) {
        $is_own = wp_verify_nonce($_POST['contact-nonce'], 'contact');
        exit($is_own ? 'Thanks, ' . (wp_get_current_user()->user_login ?: 'stranger') : 'Not your form.');
    }
});
"""


def block(language, word):
    """The block of the guide with this word in it: what is tried is what users copy."""
    found = [text for text in re.findall(rf"```{language}\n(.*?)```", GUIDE.read_text(), re.DOTALL) if word in text]
    assert len(found) == 1, f"{len(found)} blocks of {GUIDE.name} with {word}"
    return found[0]


def configuration(site, socket, port, workers):
    routes = block("toml", "routes.holes").partition("[[routes]]")[2]
    return f"""
listen = "127.0.0.1:{port}"
admin = "off"
origin = "fastcgi://unix:{socket}"
php_root = "{site}"
max_concurrent = {workers}
ttl = "10m"
purge_from = ["127.0.0.1"]
purge_path = "/purge"
ignore_cookies = ["wordpress_test_cookie"]
[[routes]]{routes}"""


def place(source, site, account):
    wordpress.place(source, site, account)
    file = site / "wp-config.php"
    file.write_text(file.read_text().replace("<?php", "<?php\ndefine('MICROCACHE_URL', file_get_contents(__DIR__ . '/microcache-url'));\ndefine('DISABLE_WP_CRON', true);", 1))
    plugins = site / "wp-content/mu-plugins"
    plugins.mkdir()
    shutil.copy(ROOT / "packaging/wordpress/microcache.php", plugins)
    (plugins / "personal.php").write_text(block("php", "personal-bar"))
    (plugins / "contact.php").write_text(CONTACT)


def trial(port, site, account, step):
    admin = Browser(port)
    url = site / "microcache-url"
    url.write_text(f"http://127.0.0.1:{port}/")
    step("install, and sign in")
    admin.post("/wp-admin/install.php?step=2", {
        "weblog_title": "The trial", "user_name": "admin", "admin_email": "admin@example.com", "blog_public": "1",
        "admin_password": PASSWORD, "admin_password2": PASSWORD, "pw_weak": "1"})
    wordpress.sign_in(admin, "admin", PASSWORD)
    settings = page(admin, "/wp-admin/options-permalink.php")
    admin.submit(settings, "permalink_structure", {"permalink_structure": "/%year%/%monthnum%/%postname%/", "selection": "/%year%/%monthnum%/%postname%/"})
    rest = {"X-WP-Nonce": admin.get("/wp-admin/admin-ajax.php?action=rest-nonce").text, "Content-Type": "application/json"}

    def call(path, method="POST", **values):
        reply = admin.request(method, f"/wp-json/wp/v2/{path}", json.dumps(values) if values else None, rest)
        expect(reply.status in (200, 201), reply, f"{method} {path}")
        return json.loads(reply.text)
    users = {name: call("users", username=name, email=f"{name}@example.com", password=PASSWORD, roles=[role])["id"]
             for name, role in [("ann", "subscriber"), ("bob", "subscriber"), ("writer", "author")]}
    tags_and_purges(Browser(port), admin, call, users, url, step)
    shared_pages(port, admin, call, step)


def tags_and_purges(visitor, admin, call, users, url, step):
    birds, stones = (call("categories", name=name)["id"] for name in ["Birds", "Stones"])
    made = {title: call("posts", title=title, content=f"Of {title}.", status="publish", categories=[category], author=author, date=date)
            for title, category, author, date in [("Heron", birds, 1, "2024-03-05T10:00:00"), ("Basalt", stones, users["writer"], "2023-07-09T10:00:00")]}
    about = call("pages", title="About", content="Us.", status="publish")
    heron, basalt = (admin.inside(made[title]["link"]) for title in ["Heron", "Basalt"])
    lists = ["/", "/feed/", "/wp-json/wp/v2/posts", "/wp-sitemap-posts-post-1.xml"]
    of_heron = ["/category/birds/", "/category/birds/feed/", "/author/admin/", "/2024/", "/2024/03/"]
    of_basalt = ["/category/stones/", "/author/writer/", "/2023/"]
    searches = ["/?s=heron", "/?s=granite"]
    comments = ["/comments/feed/", f"{basalt}feed/"]
    pages = [*lists, *of_heron, *of_basalt, *searches, *comments, heron, basalt, "/about/"]

    def purged(change):
        """The pages that a change concerns, as the next visitor sees it."""
        for path in pages * 2:
            reply = page(visitor, path)
        expect(reply.is_hit, reply, "a hit on the second visit")
        change()
        return {path for path in pages if not visitor.get(path).is_hit}

    def check(words, change, wanted, others=()):
        step(words)
        found = purged(change)
        expect(set(wanted) <= found <= set(wanted) | set(others), found, f"purged: {wanted}\nperhaps: {others}\nmissing: {set(wanted) - found}\ntoo many: {found - set(wanted) - set(others)}")
    check("a new post: its lists, and no others", lambda: call("posts", title="Egret", content="White.", status="publish", categories=[birds], author=1, date="2024-04-01T10:00:00"),
          [*lists, *of_heron[:4], *searches])
    check("an edit: the post, the pages that show it, and searches", lambda: call(f"posts/{made['Heron']['id']}", content="Of a grey heron."), [*lists[:3], *of_heron, *searches, heron], [lists[3]])
    has(visitor.get("/"), "Of a grey heron.")
    check("a draft, and its edit: nothing", lambda: call(f"posts/{call('posts', title='Later', content='No.', status='draft')['id']}", content="Not yet."), [], [lists[2]])  # the URL of the POST
    check("a comment: the post, what shows it, and comments", lambda: call("comments", post=made["Basalt"]["id"], content="Hard."), [basalt, *comments], [*lists, *of_basalt])
    check("another category: the lists of both", lambda: call(f"posts/{made['Basalt']['id']}", categories=[birds]), [*lists, *of_basalt, *of_heron[:2], *searches, basalt], comments)
    call(f"posts/{made['Basalt']['id']}", categories=[stones])
    check("a category's name: where it stands", lambda: call(f"categories/{stones}", name="Rocks"), [of_basalt[0], basalt], [*lists, *of_basalt, *comments])
    check("an author's name: where it stands", lambda: call(f"users/{users['writer']}", name="Wilma"), [of_basalt[1], basalt], [*lists, *of_basalt, *comments])
    check("a page's title: the menu of every page", lambda: call(f"pages/{about['id']}", title="About us"), ["/about/", "/", heron, basalt, of_heron[0]], pages)
    check("a post is taken back", lambda: call(f"posts/{made['Heron']['id']}", status="private"), [*lists, *of_heron, *searches, heron], [comments[0]])
    expect(visitor.get(heron).status == 404, visitor.get(heron), "404")
    step("the cache cannot be reached: the page is saved at once, and purged with the next one")
    page(visitor, basalt)
    own, begun = url.read_text(), time.monotonic()
    url.write_text("http://127.0.0.1:1/")
    call(f"posts/{made['Basalt']['id']}", content="Of a black stone.")
    expect(time.monotonic() - begun < 5, visitor, "a save in time")
    has(page(visitor, basalt), without=["black stone"])
    url.write_text(own)
    call(f"posts/{made['Heron']['id']}", status="publish")
    has(page(visitor, basalt), "black stone")
    step("GET /purge/… as nginx-helper sends it")
    for path in [basalt, "/?s=granite"]:
        page(visitor, path)
        expect(visitor.get(f"/purge{path}", {"X-Forwarded-For": "192.0.2.1"}).status == 403, path, "403 for a visitor")
        expect(page(visitor, path).is_hit, path, "a hit still")
        expect(visitor.get(f"/purge{path}", {"User-Agent": "WordPress/6.1; http://127.0.0.1"}).status == 200, path, "200")
        expect(not page(visitor, path).is_hit, path, "a new page")


def shared_pages(port, admin, call, step):
    """A signed-in visitor gets the strangers' page from memory, and in it what is the visitor's own."""
    ann, bob, stranger, shy = (Browser(port) for _ in range(4))
    path = admin.inside(call("posts", title="Form", content="A form: [contact]", status="publish")["link"])
    step("strangers share a page with a form, without its nonce")
    page(stranger, path)
    shell = has(page(stranger, path), 'id="contact-nonce"', "include.js", without=["wpadminbar"])
    expect(shell.is_hit and not re.search(r'contact-nonce"[^>]* value="\w', shell.text), shell, "a hit without a nonce")
    step("so do visitors who are signed in, each with a bar of their own")
    wordpress.sign_in(ann, "ann", PASSWORD)
    wordpress.sign_in(bob, "bob", PASSWORD)
    for target in [path, "/", "/2023/07/basalt/"]:
        page(stranger, target)
        for visitor, name, foreign in [(ann, "ann", "bob"), (bob, "bob", "ann"), (ann, "ann", "bob")]:
            reply = has(page(visitor, target), "wpadminbar", f'display-name">{name}', without=[f'display-name">{foreign}', f"{foreign}@example.com"])
            expect(reply.is_hit and "private" in reply.fields["Cache-Control"], reply, f"a private hit on {target}")
        has(page(stranger, target), without=["wpadminbar", 'display-name">'])
    for visitor in [ann, bob, stranger]:
        expect(page(visitor, "/_personal/bar").is_hit, page(visitor, "/_personal/bar"), "the part from memory, too")
    step("the form works with the token that the browser fetches, and with no other")
    tokens = {name: page(visitor, "/_personal/nonce").text for name, visitor in [("ann", ann), ("bob", bob), ("stranger", stranger)]}
    expect(len(set(tokens.values())) == 3 and all(re.fullmatch(r"\w{10}", it) for it in tokens.values()), tokens, "three nonces")
    for name, visitor in [("ann", ann), ("bob", bob), ("stranger", stranger)]:
        for owner, token in tokens.items():
            has(visitor.post("/", {"message": "x", "contact-nonce": token}), f"Thanks, {name}" if owner == name else "Not your form.")
        expect(page(visitor, path).is_hit, page(visitor, path), "a hit after it")
    step("a comment of a signed-in visitor, and a stranger's that waits")
    ann.submit(page(ann, path), "commentform", {"comment": "Mine.", "author": "Mallory", "email": "m@example.com"})
    shy.submit(page(shy, path), "commentform", {"comment": "Waiting.", "author": "Shy", "email": "shy@example.com", "wp-comment-cookies-consent": "yes"})
    has(personal(shy, path), "shy@example.com", "Waiting.")
    waiting = {it["author_name"]: it["author"] for it in call("comments?status=hold", "GET")}
    expect(waiting.get("Shy") == 0 and waiting.get("ann", 0) > 0, waiting, "a comment of each")
    for visitor in [stranger, ann]:
        has(page(visitor, path), without=["Waiting.", "Mine.", "@example.com"])
    step("editors have pages of their own, with previews of drafts")
    has(personal(admin, path), "Howdy", "Edit Post")
    draft = call("posts", title="Secret", content="Not for all.", status="draft")["id"]
    has(personal(admin, f"/?p={draft}&preview=true"), "Not for all.")
    for visitor in [ann, stranger]:
        expect("Not for all." not in visitor.get(f"/?p={draft}&preview=true").text, visitor, "no preview")
    step("a post with a password opens for one visitor")
    locked = admin.inside(call("posts", title="Locked", content="The nest is here.", status="publish", password="reed")["link"])
    page(ann, locked)
    ann.post("/wp-login.php?action=postpass", {"post_password": "reed"}, {"Referer": f"http://127.0.0.1:{port}{locked}"})
    has(personal(ann, locked), "The nest is here.")
    for visitor in [bob, stranger]:
        has(page(visitor, locked), without=["The nest is here."])
    step("REST with cookies, XML-RPC and scheduled tasks stay the visitor's own")
    nonce = page(ann, "/wp-admin/admin-ajax.php?action=rest-nonce").text
    for target in ["/wp-json/wp/v2/users/me", "/?rest_route=/wp/v2/users/me"]:
        reply = ann.get(target, {"X-WP-Nonce": nonce})
        expect(json.loads(reply.text).get("name") == "ann" and not reply.is_hit, reply, "ann's own")
        expect(bob.get(target).status == 401 and stranger.get(target).status == 401, reply, "401 for others")
    has(ann.request("POST", "/xmlrpc.php", "<?xml version='1.0'?><methodCall><methodName>demo.sayHello</methodName></methodCall>", {"Content-Type": "text/xml"}), "Hello!")
    expect(page(stranger, "/wp-cron.php?doing_wp_cron").text == "", stranger, "nothing")
    step("forged and broken cookies bring nothing of others")
    session = next(f"{name}={value}" for name, value in ann.cookies.items() if name.startswith("wordpress_logged_in_"))
    for cookie in ["wordpress_logged_in_x=ann", session.replace("=ann", "=bob"), session[:-1], f"{session}; editor=1", f"{session}, {session.replace('=ann', '=bob')}"]:
        for target in [path, "/_personal/bar", "/"]:
            has(Browser(port).get(target, {"Cookie": cookie}), without=['display-name">bob'] + ([] if session in cookie else ['display-name">ann']))
    for target in [path, "/_personal/bar", "/"]:
        has(page(stranger, target), without=["wpadminbar", 'display-name">'])
    step("signed out")
    out = re.search(r"href='http://[^/]+(/wp-login\.php\?action=logout[^']+)'", page(ann, "/").text)
    ann.get(out[1].replace("&#038;", "&").replace("&amp;", "&"))
    has(page(ann, "/"), without=["wpadminbar"])
