"""What a run with TLS needs: a certificate, and settings by which all do the same arithmetic."""

import subprocess

from rig.errors import RigError

# What everything offers that uses OpenSSL.
SETTINGS = """openssl_conf = programs
[programs]
ssl_conf = connections
[connections]
system_default = offered
[offered]
MinProtocol = TLSv1.3
Ciphersuites = TLS_AES_128_GCM_SHA256
Groups = X25519
"""


def make_certificate(directory):
    """Makes a certificate with an ECDSA key on P-256, and the settings; returns the file with the latter."""
    made = subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "2", "-subj", "/CN=localhost",
         "-addext", "subjectAltName=DNS:localhost,IP:127.0.0.1", "-keyout", directory / "key.pem", "-out", directory / "certificate.pem"],
        capture_output=True, text=True)
    if made.returncode:
        raise RigError(f"openssl req: {made.stderr}")
    # HAProxy wants both in one file.
    both = (directory / "certificate.pem").read_text() + (directory / "key.pem").read_text()
    (directory / "both.pem").write_text(both)
    (directory / "openssl.cnf").write_text(SETTINGS)
    return directory / "openssl.cnf"
