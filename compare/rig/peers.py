"""The source of the peers' programs: the system of Debian's testing suite that `make peers` has set up in a folder, or else this machine."""

import os
import tempfile
from pathlib import Path

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "target" / "peers"
SUITE = "testing"
# The two sources, in the words of the report.
SET_UP, INSTALLED = "make peers", "this machine"
NGINX_MODULES = Path("/usr/lib/nginx/modules")
# The packages of that system. Of several in one line the first that the suite has is taken: Varnish goes on as Vinyl Cache.
PACKAGES = [
    ["nginx"], ["libnginx-mod-nchan"], ["libnginx-mod-http-ndk"], ["libnginx-mod-http-memc"], ["libnginx-mod-http-srcache-filter"],
    ["haproxy"], ["vinyl-cache", "varnish"], ["caddy"], ["squid"], ["apache2-bin"]]
# The commands that print a version, by peer; nchan is a module, whose version is its package's.
VERSIONS = {
    "nginx": ["nginx", "-v"], "haproxy": ["haproxy", "-v"], "varnish": ["varnishd", "-V"], "caddy": ["caddy", "version"], "squid": ["squid", "-v"],
    "apache": ["apache2", "-v"], "nchan": ["dpkg-query", "-f", "libnginx-mod-nchan ${Version}\n", "-W", "libnginx-mod-nchan"]}
PROGRAMS = {words[0] for words in VERSIONS.values()}
# The program sees this machine's devices, processes and temporary files under the same names. The shell and chroot become the program: its process is the one
# that was started. The mounts are in a namespace of their own, and end with it.
WAY_IN = 'for path in /dev /proc /sys "$1"; do mkdir -p "$0$path"; mount --rbind "$path" "$0$path"; done; shift; exec chroot "$0" "$@"'

_chosen = FOLDER if FOLDER.is_dir() else None


def take_installed():
    """Leaves the folder alone from now on."""
    global _chosen
    _chosen = None


def need_root():
    """Whether the programs in the folder are to be run, which only root can do."""
    return _chosen is not None and os.geteuid() != 0


def has(path):
    """Whether the folder has this program, or this module of nginx, and is to be used."""
    return _chosen is not None and (path in PROGRAMS or NGINX_MODULES in Path(path).parents)


def command(words):
    """The command for a program of the peers in the folder that is used; other programs are always this machine's."""
    return inside(_chosen, words) if has(words[0]) else words


def inside(folder, words):
    """A command that runs a program of the system in a folder, as root."""
    return ["unshare", "--mount", "sh", "-ec", WAY_IN, folder, tempfile.gettempdir(), *words]


def source(words):
    return SET_UP if has(words[0]) else INSTALLED
