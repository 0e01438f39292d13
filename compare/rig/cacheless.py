"""The peers without a cache. They serve the bodies as files out of memory, which stand for their hits, and is less work than a cache has; Caddy also proxies."""

import getpass

from rig.servers import OTHER_FILES, configured

H2O_TLS = """  ssl:
    certificate-file: {0}/certificate.pem
    key-file: {0}/key.pem
    minimum-version: TLSv1.2"""
CADDY_TLS = "tls {0}/certificate.pem {0}/key.pem"
CADDY_FILES = "root * {}\n\tfile_server"
CADDY_PROXY = "reverse_proxy 127.0.0.1:{} {{\n\t\ttransport http {{\n\t\t\tkeepalive 1h\n\t\t\tkeepalive_idle_conns_per_host 1024\n\t\t}}\n\t}}"


def h2o(rig, _stack, home, port, threads):
    return ["h2o", "-c", configured("h2o.conf", home, user=getpass.getuser(), threads=threads, connections=rig.connections + OTHER_FILES, dir=home, port=port,
                                    secrets=H2O_TLS.format(rig.directory) if rig.secure else "", files=rig.files())]


def caddy_files(rig, _stack, home, port, threads):
    return caddy(rig, home, port, CADDY_FILES.format(rig.files()))


def caddy_proxy(rig, _stack, home, port, threads):
    return caddy(rig, home, port, CADDY_PROXY.format(rig.origin.port))


def caddy(rig, home, port, work):
    """It has as many threads at work as it may use cores."""
    site = f"{'https' if rig.secure else 'http'}://:{port}"
    secrets = CADDY_TLS.format(rig.directory) if rig.secure else ""
    return ["caddy", "run", "--adapter", "caddyfile", "--config", configured("Caddyfile", home, dir=home, site=site, secrets=secrets, work=work)]
