"""MediaWiki, as its users use it."""

import json
import re
import shutil
import urllib.parse
from pathlib import Path

from tried.browser import Browser
from tried.expect import expect, has, hit_on_second_visit, page, picture

SOURCE = Path("/usr/share/mediawiki")
PACKAGES = {SOURCE / "index.php": "mediawiki", "/usr/share/doc/php-intl": "php-intl", "/usr/share/doc/php-xml": "php-xml", "/usr/share/doc/php-gd": "php-gd"}
PASSWORD = "for-this-trial-17"
# What a user adds to the settings.
SHORT = """
$wgArticlePath = '/wiki/$1';
$wgEnableUploads = true;
$wgMainCacheType = CACHE_ACCEL;
$wgUseCdn = true;
$wgCdnServers = ['127.0.0.1:@PORT@'];
"""
MOST_PAGES = 20


def place(source, site, account):
    """Puts the files where a user does. Debian's links lead out of the directory, so they are followed."""
    shutil.copytree(source, site, dirs_exist_ok=True, ignore_dangling_symlinks=True)
    for name in ["images", "cache"]:
        (site / name).mkdir(exist_ok=True)


def trial(port, site, account, step):
    admin, visitor, other, user = (Browser(port) for _ in range(4))
    step("install by the form")
    has(visitor.get("/"), "mw-config")
    settings = install(admin, account)
    (site / "LocalSettings.php").write_text(settings.text + SHORT.replace("@PORT@", str(port)))
    visitor = Browser(port)
    step("sign in")
    sign_in(admin, "Keeper", PASSWORD)
    step("edit")
    save(admin, "Heron", "A grey bird. [[Egret]] [[Category:Birds]]")
    step("short URLs, feeds, search, API: two visitors, and the second has a hit or what the wiki wants")
    has(visitor.get("/wiki/Heron"), "A grey bird.", without=["pt-logout"])
    style = re.search(r'href="(/load\.php\?[^"]+only=styles[^"]*)"', visitor.get("/wiki/Heron").text)
    hit_on_second_visit(visitor, other, style[1].replace("&amp;", "&"))
    hit_on_second_visit(visitor, other, "/wiki/Heron")
    for target, word in [("/wiki/Heron", "A grey bird."), ("/index.php?title=Heron&action=history", "Keeper"), ("/index.php/Heron", "A grey bird."),
                         ("/index.php?search=grey+bird&fulltext=1", "Heron"), ("/wiki/Special:RecentChanges", "Heron"), ("/wiki/Category:Birds", "Heron"),
                         ("/index.php?title=Special:RecentChanges&feed=atom", "<feed"), ("/api.php?action=query&titles=Heron&format=json", "pageid"),
                         ("/rest.php/v1/page/Heron", "A grey bird."), ("/rest.php/v1/search/page?q=grey", "Heron"), ("/opensearch_desc.php", "OpenSearchDescription"),
                         ("/index.php?title=Heron&action=raw", "A grey bird.")]:
        page(visitor, target, word)
        page(other, target, word, without=["pt-logout"])
    missing = visitor.get("/wiki/Nothing_of_that_name")
    expect(missing.status == 404 and "<html" in missing.text, missing, "the wiki's own 404")
    step("upload, thumbnail")
    form = page(admin, "/wiki/Special:Upload")
    described = {"wpDestFile": "Heron.png", "wpUploadDescription": "It is blue.", "wpIgnoreWarning": "1", "wpUpload": "Upload"}
    admin.submit(form, "wpUploadFile", described, file=("wpUploadFile", "Heron.png", picture(900), "image/png"))
    described = page(visitor, "/wiki/File:Heron.png", "It is blue.")
    sources = sorted(set(re.findall(r'(?:src|href)="(?:http://[^/"]+)?(/images/[^"]+\.png)"', described.text)))
    expect(sources, described, "a picture")
    for target in sources:
        reply = hit_on_second_visit(visitor, other, target)
        expect(reply.fields["Content-Type"] == "image/png", reply, "a picture")
    step("a deleted file is no longer there")
    token = json.loads(admin.get("/api.php?action=query&meta=tokens&format=json").text)["query"]["tokens"]["csrftoken"]
    admin.post("/api.php", {"action": "delete", "title": "File:Heron.png", "token": token, "format": "json"})
    deleted = [path for path in (site / "images/deleted").rglob("*.png")]
    expect(deleted, described, "the wiki keeps it")
    for path in deleted:
        reply = visitor.get(f"/{path.relative_to(site)}")
        expect(reply.status == 403, reply, "403")
    step("a second user has nothing of the first, and a visitor nothing of both")
    form = page(user, "/wiki/Special:CreateAccount")
    user.submit(form, "wpName", {"wpName": "Guest", "wpPassword": PASSWORD, "retype": PASSWORD, "wpCreateaccount": "Create"}) \
        if 'id="wpName2"' not in form.text else user.submit(form, "userlogin2", {"wpName": "Guest", "wpPassword": PASSWORD, "retype": PASSWORD})
    has(user.get("/wiki/Special:Preferences"), "Guest")
    for target in ["/wiki/Heron", "/wiki/Special:Preferences"]:
        has(user.get(target), "Guest", without=["User:Keeper\" class"])
        expect(not user.get(target).is_hit, user, "no hit")
    has(visitor.get("/wiki/Heron"), without=["pt-logout", "Guest"])
    step("an edit shows")
    save(admin, "Heron", "A white bird.")
    has(admin.get("/wiki/Heron"), "A white bird.")
    has(visitor.get("/wiki/Heron"), "A white bird.")
    step("sign out")
    token = json.loads(admin.get("/api.php?action=query&meta=tokens&format=json").text)["query"]["tokens"]["csrftoken"]
    admin.post("/api.php", {"action": "logout", "token": token, "format": "json"})
    has(admin.get("/wiki/Heron"), without=["pt-logout"])


def install(browser, account):
    """Goes through the pages of the installer, and returns the settings that it offers."""
    reply = browser.get("/mw-config/index.php")
    answers = {
        "mysql_wgDBserver": f"localhost:{account.socket}", "mysql_wgDBname": account.name, "mysql_wgDBuser": account.name,
        "mysql_wgDBpassword": account.password, "config__AdminName": "Keeper", "config__AdminPassword": PASSWORD,
        "config__AdminPasswordConfirm": PASSWORD, "config_wgSitename": "The trial", "config__SkipOptional": "skip", "config__Subscribe": ""}
    for _ in range(MOST_PAGES):
        if "localsettings=1" in reply.text:
            return has(browser.get("/mw-config/index.php?localsettings=1"), "$wgSitename")
        button = re.search(r'name="(submit-[a-z]+)"', reply.text)
        names = re.findall(r'name="([^"]+)"', reply.text)
        expect(button, reply, "a button")
        given = {name: value for name, value in answers.items() if name in names}
        buttons = re.findall(r'name="(submit-[a-z]+)"', reply.text)
        chosen = next(name for name in ["submit-continue", *buttons] if name in buttons)
        reply = browser.submit(reply, chosen, {**given, chosen: "Continue"})
    raise AssertionError(f"the installer does not end: {reply!r}")


def sign_in(browser, name, password):
    form = page(browser, "/wiki/Special:UserLogin")
    browser.submit(form, "wpName", {"wpName": name, "wpPassword": password})
    has(browser.get("/wiki/Special:Preferences"), name)


def save(browser, title, text):
    form = page(browser, f"/index.php?title={urllib.parse.quote(title)}&action=edit")
    has(browser.submit(form, "wpTextbox1", {"wpTextbox1": text, "wpSave": "Save"}), text.split(".")[0])
