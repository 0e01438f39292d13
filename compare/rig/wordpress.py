"""A real WordPress from Debian's packages: MariaDB, PHP, and nginx in front of it, set up from nothing in the rig's directory."""

import getpass
import grp
import json
import os
import shutil
import subprocess
import tempfile
import time
import urllib.parse
import urllib.request
from dataclasses import dataclass
from pathlib import Path

from rig import machine
from rig.applications import Application
from rig.errors import RigError
from rig.process import START_LIMIT_SECONDS, Process
from rig.servers import COMPARE, Server, filled, run

SOURCE = Path("/usr/share/wordpress")
# Some commands of PHP are there without the rest.
SERVERS = {"mariadbd": "mariadb-server", "/usr/share/doc/php-fpm": "php-fpm", "/usr/share/doc/php-mysql": "php-mysql"}
PACKAGES = {
    **SERVERS, SOURCE / "index.php": "wordpress", SOURCE / "wp-content/themes/twentytwentythree": "wordpress-theme-twentytwentythree",
    "/usr/sbin/nginx": "nginx-light"}
# What the form asks for that a new WordPress shows in the browser.
INSTALLATION = {
    "weblog_title": "Measured", "user_name": "admin", "admin_email": "admin@example.com", "blog_public": "0",
    "admin_password": "for-this-measurement", "admin_password2": "for-this-measurement", "pw_weak": "1"}
PASSWORD = "for-this-measurement"
WORKERS = 10
INSTALL_LIMIT_SECONDS = 120
WAIT_STEP_SECONDS = 0.1


@dataclass(frozen=True)
class Account:
    """A database with a user of the same name."""
    name: str
    password: str
    socket: Path


class Database:
    """A running MariaDB."""

    def __init__(self, socket):
        self.socket = socket

    def client(self):
        return ["mariadb", "--no-defaults", f"--socket={self.socket}", "--user=root"]

    def made_for(self, name):
        """A new database."""
        run([*self.client(), "-e", f"create database {name}; create user {name}@localhost identified by '{PASSWORD}'; grant all on {name}.* to {name}@localhost;"])
        return Account(name, PASSWORD, self.socket)


class WordPress(Application):
    """It counts by the lines of php-fpm's log, whichever server asks it. `log` is that of its web server."""

    workers = WORKERS

    def __init__(self, server, home):
        super().__init__(server)
        self.log, self.site, self.socket, self.counted = home / "requests.log", home / "site", home / "php.sock", 0

    def counts(self):
        status = json.loads(self.get("/_origin/status?json&full"))
        # A worker with a connection that is kept waits for the head of a request.
        busy = [worker for worker in status["processes"] if worker["state"] not in ("Idle", "Reading headers")]
        return {"requests": self.lines() - self.counted, "in_flight": len(busy) + status["listen queue"]}

    def forget(self):
        self.counted = self.lines()

    def lines(self):
        return (self.socket.parent / "php-requests.log").read_bytes().count(b"\n")

    def change_every_second(self):
        """From now on the front page is another one every second."""
        plugins = self.site / "wp-content/mu-plugins"
        plugins.mkdir(exist_ok=True)
        shutil.copy(COMPARE / "wordpress/changing.php", plugins)


def wordpress(rig, cores):
    """Starts everything, and installs the site as a browser would."""
    machine.need_packages(PACKAGES)
    home = Path(tempfile.mkdtemp(prefix="wordpress-", dir=rig.directory))
    home.chmod(0o755)
    account = database(rig, home, cores).made_for("wordpress")
    shutil.copytree(SOURCE, home / "site")  # links are followed, so that nothing outside is written
    (home / "site/wp-config.php").write_text(filled(COMPARE / "wordpress/wp-config.php", database=account.socket))
    php(rig, home, cores)
    server = rig.start(rig.stack, "wordpress", cores, lambda own, port: [
        "nginx", "-p", own, "-c", configured(own, "nginx.conf", user=getpass.getuser(), dir=own, log=home / "requests.log", port=port, site=home / "site",
                                             socket=home / "php.sock", status=home / "status.sock")])
    install(server)
    return WordPress(server, home)


def database(rig, home, cores):
    user, data, socket = getpass.getuser(), home / "database", home / "mariadb.sock"
    run(["mariadb-install-db", "--no-defaults", f"--user={user}", f"--datadir={data}", "--auth-root-authentication-method=normal", "--skip-test-db"])
    command = ["mariadbd", "--no-defaults", f"--user={user}", f"--datadir={data}", f"--socket={socket}", "--skip-networking"]
    process = rig.stack.enter_context(Process("mariadb", command, cores, home / "mariadb.log"))
    rig.note("mariadb", command)
    started = Database(socket)
    wait_for(process, lambda: subprocess.run([*started.client(), "-e", "select 1"], capture_output=True).returncode == 0)
    return started


def php(rig, home, cores):
    found = sorted(Path("/usr/sbin").glob("php-fpm*"))
    if not found:
        raise RigError("PHP's process manager is missing; please install php-fpm")
    path = configured(home, "php-fpm.conf", user=getpass.getuser(), group=grp.getgrgid(os.getgid()).gr_name, dir=home, socket=home / "php.sock", workers=WORKERS,
                      database=home / "mariadb.sock")
    command = [found[-1], "--nodaemonize", "--allow-to-run-as-root", "--fpm-config", path]
    process = rig.stack.enter_context(Process("php-fpm", command, cores, home / "php-fpm.log"))
    rig.note("php", command)
    wait_for(process, (home / "php.sock").exists)
    return home / "php.sock"


def configured(home, template, **words):
    path = home / template
    path.write_text(filled(COMPARE / "wordpress" / template, **words))
    return path


def wait_for(process, is_ready):
    deadline = time.monotonic() + START_LIMIT_SECONDS
    while not is_ready():
        if process.child.poll() is not None or time.monotonic() > deadline:
            raise RigError(f"{process.name} does not start:\n{process.last_words()}")
        time.sleep(WAIT_STEP_SECONDS)


def install(server: Server):
    form = urllib.parse.urlencode(INSTALLATION).encode()
    try:
        with urllib.request.urlopen(f"{server.url}/wp-admin/install.php?step=2", form, INSTALL_LIMIT_SECONDS) as answer:
            text = answer.read().decode(errors="replace")
    except OSError as error:
        raise RigError(f"WordPress could not be installed: {error}\n{server.process.last_words()}") from error
    if "wp-login.php" not in text:
        raise RigError(f"WordPress could not be installed:\n{text[-2000:]}")
