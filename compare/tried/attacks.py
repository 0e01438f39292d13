"""An attacker who has read what others found: sources, backups, uploads that run, fields that become variables."""

import json
import socket

from tried.browser import Browser
from tried.expect import expect

SECRET = "secret-of-the-trial"
RAN = "the-upload-ran"
# Files that applications, editors and administrators leave behind.
LEFT = ["wp-config.php~", "wp-config.php.bak", "wp-config.php.save", "wp-config.txt.php.old", ".wp-config.php.swp", "#wp-config.php#", "wp-config.php.1", "wp-config.php.txt",
        "LocalSettings.php~", "LocalSettings.php.bak", "settings.php.orig", ".user.ini", "php.ini", ".htaccess", ".htpasswd", ".env", ".env.local", ".git/config", ".svn/wc.db",
        "composer.json", "composer.lock", "package.json", "package-lock.json", "dump.sql", "dump.sql.gz", "backup.sql.zip", "debug.log", "error_log", "vendor/composer/installed.json",
        "x.inc", "x.phtml", "x.phar", "x.php5", "x.php7", "x.PHP", "x.pHp", "x.module", "x.php.", "x.php ", "x.yml", "x.twig", "web.config", ".DS_Store"]
# Names that PHP or a web server might run.
UPLOADED = ["x.php", "x.PHP", "x.php5", "x.phtml", "x.phar", "x.php.jpg", "x.jpg.php", "x.php;.jpg"]
PATHS = ["/index.php%00.jpg", "/%2e%2e/%2e%2e/etc/passwd", "/..%2f..%2fetc/passwd", "/index.php/../{config}", "/%2e/{config}", "//{config}~", "/{config}/", "/{config}%20", "/{config}::$DATA",
         "/{config}%00", "/.%00/{config}~", "/x/..;/{config}~", "\\{config}~", "/{config}%7e", "/%7b{config}~"]


def trial(port, site, _account, step):
    visitor = Browser(port)
    config = next(name for name in ["wp-config.php", "LocalSettings.php", "sites/default/settings.php"] if (site / name).exists())
    step("sources, backups and hidden files are not sent")
    for name in LEFT:
        file = site / name
        file.parent.mkdir(parents=True, exist_ok=True)
        if not file.exists():
            file.write_text(f"<?php /* {SECRET} */ echo '{RAN}';")
        for path in [f"/{name}", f"/./{name}", f"//{name}", f"/{name}?x=y.css", "/" + "".join(f"%{ord(letter):02x}" for letter in name), f"/index.php/../{name}"]:
            kept_secret(visitor, path)
    (site / config).with_name((site / config).name + "~").write_text(f"<?php /* {SECRET} */")
    step("paths that two programs may read in two ways")
    for path in PATHS:
        kept_secret(visitor, path.format(config=config))
    step("uploads do not run")
    uploads = next(it for it in ["/wp-content/uploads", "/images", "/sites/default/files"] if (site / it[1:]).exists())
    for name in UPLOADED:
        (site / uploads[1:] / name).write_text("<?php echo 'the-upload-', 'ran';")
        for end in ["", "/", "/x.css", "?x=.css"]:
            for path in [f"{uploads}/{name}{end}", f"{uploads}/{name}{end}".replace(".php", ".%70hp"), f"/{uploads}/{name}{end}", f"/x/..{uploads}/{name}{end}"]:
                kept_secret(visitor, path)
    step("the directories of libraries run nothing")
    (site / "vendor/phpunit").mkdir(parents=True, exist_ok=True)
    (site / "vendor/phpunit/eval-stdin.php").write_text("<?php echo 'the-upload-', 'ran';")
    kept_secret(visitor, "/vendor/phpunit/eval-stdin.php")
    step("fields do not become other variables")
    (site / "trial-variables.php").write_text("<?php header('Cache-Control: no-store'); echo json_encode($_SERVER), ini_get('auto_prepend_file'), '|', strlen(file_get_contents('php://input'));")
    hostile = {"Proxy": "http://evil", "PHP_VALUE": "auto_prepend_file=/etc/passwd", "PHP-VALUE": "auto_prepend_file=/etc/passwd", "Script-Filename": "/etc/passwd",
               "SCRIPT_FILENAME": "/etc/passwd", "Content.Length": "5", "HTTPS": "on", "Https": "on", "Remote-Addr": "6.6.6.6", "Document_Root": "/", "X-Original-Url": "/admin"}
    reply = visitor.get("/trial-variables.php", hostile)
    seen = json.JSONDecoder().raw_decode(reply.text)[0]
    expect(seen["SCRIPT_FILENAME"] == f"{site}/trial-variables.php" and seen["DOCUMENT_ROOT"] == str(site), reply, "the script")
    expect("HTTP_PROXY" not in seen and "HTTPS" not in seen and "PHP_VALUE" not in seen and seen["REMOTE_ADDR"] == "127.0.0.1", reply, "no variable from a field")
    expect("CONTENT_LENGTH" not in seen or seen["CONTENT_LENGTH"] in ("", "0"), reply, "no length")
    expect(not reply.text.split("}")[-1].startswith("/etc"), reply, "PHP's settings as they were")
    step("large heads are refused or arrive whole")
    for size in [8000, 70_000, 2_000_000]:
        try:
            reply = visitor.get("/trial-variables.php", {"X-Large": "x" * size})
        except OSError:
            continue  # closed while it was sent
        expect(reply.status in (431, 400) or "x" * size in reply.text, reply, "431, or all of it")
    step("a slow upload, and one that ends early, occupy nothing")
    slow = []
    for _ in range(12):
        connection = socket.create_connection(("127.0.0.1", port))
        connection.sendall(b"POST /trial-variables.php HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 1000\r\n\r\nfirst")
        slow.append(connection)
    expect(visitor.get("/trial-variables.php").status == 200, visitor, "200 meanwhile")
    for connection in slow[:6]:
        connection.sendall(b"x" * 995)
        answer = connection.makefile("rb").readline()
        expect(b" 200 " in answer, answer, "200")
    for connection in slow:
        connection.close()
    expect(visitor.get("/trial-variables.php").status == 200, visitor, "200 afterwards")
    (site / "trial-variables.php").unlink()


def kept_secret(visitor, path):
    reply = visitor.get(path, follow=False)
    expect(SECRET not in reply.text and RAN not in reply.text, reply, f"nothing of the file from {path}")
    return reply
