"""WordPress, as its users use it."""

import io
import json
import re
import shutil
import zipfile
from pathlib import Path

from tried.browser import Browser
from tried.expect import expect, has, hit_on_second_visit, page, personal, picture

SOURCE = Path("/usr/share/wordpress")
PACKAGES = {SOURCE / "index.php": "wordpress", SOURCE / "wp-content/themes/twentytwentythree": "wordpress-theme-twentytwentythree"}
CONFIGURATION = """<?php
define('DB_NAME', '@NAME@');
define('DB_USER', '@NAME@');
define('DB_PASSWORD', '@PASSWORD@');
define('DB_HOST', 'localhost:@SOCKET@');
define('WP_HTTP_BLOCK_EXTERNAL', true);
define('AUTOMATIC_UPDATER_DISABLED', true);
$table_prefix = 'wp_';
if (!defined('ABSPATH')) {
    define('ABSPATH', __DIR__ . '/');
}
require_once ABSPATH . 'wp-settings.php';
"""
PASSWORD = "for-this-trial-17"


def place(source, site, account):
    """Puts the files where a user does."""
    shutil.copytree(source, site, dirs_exist_ok=True)
    text = CONFIGURATION
    for word, value in {"NAME": account.name, "PASSWORD": account.password, "SOCKET": account.socket}.items():
        text = text.replace(f"@{word}@", str(value))
    (site / "wp-config.php").write_text(text)


def trial(port, site, account, step):
    admin, visitor, other, user = (Browser(port) for _ in range(4))
    step("install by the form")
    has(visitor.get("/"), "install.php")
    has(admin.get("/wp-admin/install.php"), "WordPress")
    has(admin.post("/wp-admin/install.php?step=2", {
        "weblog_title": "The trial", "user_name": "admin", "admin_email": "admin@example.com", "blog_public": "1",
        "admin_password": PASSWORD, "admin_password2": PASSWORD, "pw_weak": "1"}), "wp-login.php")
    step("sign in")
    sign_in(admin, "admin", PASSWORD)
    step("every page of the dashboard's menu")
    dashboard = personal(admin, "/wp-admin/", "Dashboard", "Howdy, <span class=\"display-name\">admin")
    pages = sorted(set(re.findall(r"href='([a-z-]+\.php(?:\?[^'#]*)?)'", dashboard.text)))
    expect(len(pages) > 15, dashboard, "a menu")
    for name in pages:
        has(personal(admin, f"/wp-admin/{name.replace('&amp;', '&')}"), without=["Fatal error", "critical error"])
    step("styles and scripts of the dashboard")
    for path in set(re.findall(r"(?:href|src)='http://[^/]+(/wp-(?:admin|includes)/[^']+)'", dashboard.text)):
        expect(admin.get(path.replace("&#038;", "&").replace("&amp;", "&")).status == 200, admin.get(path), "200")
    step("permalinks")
    settings = page(admin, "/wp-admin/options-permalink.php", without=["/index.php/%year%", "/index.php/sample-post"])
    admin.submit(settings, "permalink_structure", {"permalink_structure": "/%year%/%monthnum%/%postname%/", "selection": "/%year%/%monthnum%/%postname%/"})
    step("write, by the REST API that the editor uses")
    nonce = admin.get("/wp-admin/admin-ajax.php?action=rest-nonce").text
    rest = {"X-WP-Nonce": nonce, "Content-Type": "application/json"}

    def call(method, path, values):
        return admin.request(method, f"/wp-json/wp/v2/{path}", json.dumps(values), rest)
    made = call("POST", "posts", {"title": "Heron by the lake", "content": "A grey bird.", "status": "publish"})
    expect(made.status == 201, made, "201")
    post = json.loads(made.text)
    path = admin.inside(post["link"])
    expect(re.fullmatch(r"/\d{4}/\d\d/heron-by-the-lake/", path), made, "a permalink without index.php")
    page(admin, f"/wp-admin/post.php?post={post['id']}&action=edit", "Heron by the lake")
    step("permalink, feed, search, archive, site map, REST: two visitors, and the second has a hit")
    for target in [path, "/", f"{path}feed/", "/feed/", "/?s=heron", path[:9], "/wp-sitemap.xml", "/wp-json/wp/v2/posts", "/?p=1", "/robots.txt",
                   "/wp-includes/css/dist/block-library/style.min.css"]:
        hit_on_second_visit(visitor, other, target)
    has(visitor.get(path), "A grey bird.", without=["Howdy", "wp-admin-bar"])
    has(visitor.get("/?s=heron"), "Heron by the lake")
    has(visitor.get("/feed/"), "<rss", "Heron by the lake")
    expect(visitor.get("/favicon.ico").status == 200, visitor.get("/favicon.ico"), "an icon")
    missing = visitor.get("/nothing/of/that/name/")
    expect(missing.status == 404 and "<html" in missing.text, missing, "WordPress's own 404")
    step("edit")
    expect(call("PUT", f"posts/{post['id']}", {"content": "A white bird."}).status == 200, made, "200")
    has(personal(admin, path), "A white bird.", "wp-admin-bar")
    step("upload a picture, by the REST API and by the form")
    sent = admin.request("POST", "/wp-json/wp/v2/media", picture(900), {
        "X-WP-Nonce": nonce, "Content-Type": "image/png", "Content-Disposition": 'attachment; filename="heron.png"'})
    expect(sent.status == 201, sent, "201")
    media = json.loads(sent.text)
    for target in {admin.inside(media["source_url"]), *(admin.inside(it["source_url"]) for it in media["media_details"]["sizes"].values())}:
        reply = hit_on_second_visit(visitor, other, target)
        expect(reply.fields["Content-Type"] == "image/png", reply, "a picture")
    form = page(admin, "/wp-admin/media-new.php?browser-uploader")
    admin.submit(form, "file-form", {"html-upload": "Upload"}, file=("async-upload", "egret.png", picture(), "image/png"))
    expect(visitor.get(f"{target.rpartition('/')[0]}/egret.png").body == picture(), form, "the picture that was sent")
    hostile = admin.submit(form, "file-form", {"html-upload": "Upload"}, file=("async-upload", "x.php", b"<?php echo 'ran';", "image/png"))
    expect(not list(site.rglob("x.php")), hostile, "no such upload")
    step("a large upload")
    large = b"\x89PNG\r\n\x1a\n" + bytes(7 << 20)
    admin.submit(form, "file-form", {"html-upload": "Upload"}, file=("async-upload", "large.mp3", b"ID3" + large, "audio/mpeg"))
    kept = next(site.rglob("large.mp3"), None)
    expect(kept and kept.stat().st_size == len(large) + 3, form, "all of the file")
    step("a second user has nothing of the first, and a visitor nothing of both")
    new = page(admin, "/wp-admin/user-new.php")
    admin.submit(new, "createuser", {"user_login": "guest", "email": "guest@example.com", "pass1": PASSWORD, "pass2": PASSWORD, "role": "subscriber", "createuser": "Add"})
    sign_in(user, "guest", PASSWORD)
    for target in ["/", path, "/wp-admin/profile.php"]:
        has(personal(user, target), "guest", without=['display-name">admin', "admin@example.com"])
        if target != "/wp-admin/profile.php":
            has(visitor.get(target), without=["guest", "wp-admin-bar"])
    expect("wp-login.php" in visitor.get("/wp-admin/profile.php", follow=False).fields.get("Location", ""), visitor, "a redirect to the form")
    step("drafts and private posts")
    for status in ["draft", "private"]:
        hidden = json.loads(call("POST", "posts", {"title": f"Hidden {status}", "content": "Not for all.", "status": status}).text)
        page(admin, f"/?p={hidden['id']}&preview=true", "Not for all.")
        expect(visitor.get(f"/?p={hidden['id']}").status == 404, visitor, "404")
    step("a post with a password")
    locked = json.loads(call("POST", "posts", {"title": "Locked", "content": "The nest is here.", "status": "publish", "password": "reed"}).text)
    target = admin.inside(locked["link"])
    hit_on_second_visit(visitor, other, target)
    other.post("/wp-login.php?action=postpass", {"post_password": "reed"}, {"Referer": f"http://127.0.0.1:{port}{target}"})
    has(personal(other, target), "The nest is here.")
    has(visitor.get(target), without=["The nest is here."])
    step("comments")
    user.submit(page(user, path), "commentform", {"comment": "I saw it too."})
    has(visitor.get(path), without=["I saw it too."])
    admin.submit(page(admin, path), "commentform", {"comment": "So did I."})
    has(visitor.get(path), "So did I.")
    step("install a plugin from a file, and switch it on")
    form = page(admin, "/wp-admin/plugin-install.php?tab=upload")
    done = has(admin.submit(form, "pluginzip", {}, file=("pluginzip", "trial.zip", plugin(), "application/zip")), "installed successfully")
    activate = re.search(r'href="(plugins\.php\?action=activate[^"]+)"', done.text)
    admin.get("/wp-admin/" + activate[1].replace("&amp;", "&"))
    expect("trial-plugin" in admin.get("/?p=1").text, done, "what the plugin prints")
    step("XML-RPC, and scheduled tasks")
    reply = visitor.request("POST", "/xmlrpc.php", "<?xml version='1.0'?><methodCall><methodName>demo.sayHello</methodName></methodCall>", {"Content-Type": "text/xml"})
    has(reply, "Hello!")
    expect(visitor.get("/xmlrpc.php").status == 405, visitor, "405")
    expect(visitor.get("/wp-cron.php?doing_wp_cron").status == 200, visitor, "200")
    step("the site sees itself")
    health = admin.request("GET", "/wp-json/wp-site-health/v1/tests/loopback-requests?_locale=user", None, {"X-WP-Nonce": nonce})
    has(health, '"status":"good"')
    step("sign out")
    out = re.search(r'href="http://[^/]+(/wp-login\.php\?action=logout[^"]+)"', admin.get("/").text)
    admin.get(out[1].replace("&#038;", "&").replace("&amp;", "&"))
    has(admin.get("/"), without=["wp-admin-bar"])


def sign_in(browser, name, password):
    form = page(browser, "/wp-login.php")
    browser.submit(form, "log", {"log": name, "pwd": password})
    has(personal(browser, "/wp-admin/profile.php"), name)


def plugin():
    """One that prints a comment into each page, and has a style sheet."""
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        archive.writestr("trial/trial.php", "<?php\n/* Plugin Name: Trial */\nadd_action('wp_head', fn() => print('<!-- trial-plugin -->'));\n")
        archive.writestr("trial/trial.css", "body { color: black }")
    return file.getvalue()
