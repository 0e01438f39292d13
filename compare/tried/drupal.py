"""Drupal 7, as its users use it. Debian does not have it."""

import re
import shutil

from tried.browser import Browser
from tried.expect import expect, has, hit_on_second_visit, page, personal, picture

PACKAGES = {"/usr/share/doc/php-gd": "php-gd", "/usr/share/doc/php-xml": "php-xml"}
PASSWORD = "for-this-trial-17"
MOST_PAGES = 200


def place(source, site, account):
    shutil.copytree(source, site, dirs_exist_ok=True)
    shutil.copy(site / "sites/default/default.settings.php", site / "sites/default/settings.php")
    (site / "sites/default/files").mkdir(exist_ok=True)


def trial(port, site, account, step):
    admin, visitor, other, user = (Browser(port) for _ in range(4))
    step("install by the form")
    install(admin, account)
    step("sign in")
    has(admin.get("/"), "Log out", without=["Fatal error"])
    step("every page of the administration")
    menu = admin.get("/?q=admin")
    for path in sorted(set(re.findall(r'href="(/(?:\?q=)?admin/[^"#]+)"', menu.text))):
        if "run-cron" not in path and "logout" not in path:
            has(personal(admin, path.replace("&amp;", "&")), without=["Fatal error"])
    step("clean URLs, and a page cache that says for how long")
    admin.submit(page(admin, "/admin/config/search/clean-urls"), "clean_url", {"clean_url": "1", "op": "Save configuration"}) \
        if 'name="clean_url"' in admin.get("/admin/config/search/clean-urls").text else None
    admin.submit(page(admin, "/admin/config/development/performance"), "cache", {"cache": "1", "page_cache_maximum_age": "60", "op": "Save configuration"})
    step("write")
    form = page(admin, "/node/add/article")
    made = admin.submit(form, "article-node-form", {"title": "Heron by the lake", "body[und][0][value]": "A grey bird.", "promote": "1", "status": "1", "op": "Save"},
                        file=("files[field_image_und_0]", "heron.png", picture(900), "image/png"))
    has(made, "A grey bird.")
    step("page, front page, feed: two visitors, and the second has a hit")
    for target in ["/node/1", "/", "/rss.xml", "/?q=node/1", "/node", "/misc/drupal.js"]:
        hit_on_second_visit(visitor, other, target)
    shown = page(visitor, "/node/1", "A grey bird.", without=["Log out"])
    pictures = sorted(set(re.findall(r'src="http://[^/]+(/sites/default/files/[^"]+)"', shown.text)))
    expect(pictures, shown, "a picture")
    step("a picture of another size is made when it is first asked for")
    for target in pictures:
        reply = page(other, target.replace("&amp;", "&"))
        expect(reply.fields["Content-Type"] == "image/png", reply, "a picture")
    expect(list((site / "sites/default/files/styles").rglob("*.png")), shown, "it is kept")
    step("search")
    admin.get(re.search(r'href="(/admin/reports/status/run-cron[^"]*)"', admin.get("/admin/reports/status").text)[1].replace("&amp;", "&"))
    has(page(admin, "/search/node/heron"), "Heron by the lake")
    expect(visitor.get("/nothing/of/that/name").status == 404, visitor, "404")
    step("a second user has nothing of the first, and a visitor nothing of both")
    form = page(admin, "/admin/people/create")
    made = admin.submit(form, "user-register-form", {"name": "guest", "mail": "guest@example.com", "pass[pass1]": PASSWORD, "pass[pass2]": PASSWORD, "op": "Create new account"})
    has(made, "Created a new user account")
    user.submit(page(user, "/user/login"), "user-login", {"name": "guest", "pass": PASSWORD, "op": "Log in"})
    for target in ["/node/1", "/user"]:
        has(personal(user, target), "Log out", without=["admin@example.com"])
    has(visitor.get("/node/1"), without=["Log out"])
    step("edit, and a comment")
    admin.submit(page(admin, "/node/1/edit"), "article-node-form", {"body[und][0][value]": "A white bird.", "op": "Save"})
    has(personal(admin, "/node/1"), "A white bird.")
    user.submit(page(user, "/node/1"), "comment-form", {"comment_body[und][0][value]": "I saw it.", "op": "Save"})
    has(personal(user, "/node/1"), "I saw it.")
    step("sign out")
    admin.get("/user/logout")
    has(admin.get("/"), without=["Log out"])


def install(browser, account):
    reply = browser.get("/install.php")
    values = {
        "profile": "standard", "locale": "en", "driver": "mysql", "mysql[database]": account.name, "mysql[username]": account.name,
        "mysql[password]": account.password, "site_name": "The trial", "site_mail": "admin@example.com", "account[name]": "keeper",
        "account[mail]": "admin@example.com", "account[pass][pass1]": PASSWORD, "account[pass][pass2]": PASSWORD,
        "update_status_module[1]": "", "update_status_module[2]": ""}
    for _ in range(MOST_PAGES):
        refresh = re.search(r'<meta http-equiv="Refresh" content="0; URL=([^"]+)"', reply.text)
        if refresh:
            reply = browser.get(browser.inside("/" + refresh[1].replace("&amp;", "&").split("/", 3)[-1]))
            continue
        if "Congratulations, you installed" in reply.text:
            return
        form = re.search(r'<form[^>]* id="(install-[^"]+|[^"]+)"', reply.text)
        expect(form, reply, "a form")
        names = re.findall(r'name="([^"]+)"', reply.text)
        given = {name: value for name, value in values.items() if name in names and value}
        button = re.search(r'<input type="submit" id="edit-(?:submit|save)" name="op" value="([^"]+)"', reply.text)
        reply = browser.submit(reply, form[1], {**given, **({"op": button[1]} if button else {})})
    raise AssertionError(f"the installer does not end: {reply!r}")
