"""A certificate authority of a test's own: certificates for this machine, as PEM files."""

import datetime
import ipaddress
from pathlib import Path

import pytest


class Authority:
    """Signs certificates, and can be believed by its file."""

    def __init__(self, folder: Path) -> None:
        pytest.importorskip("cryptography", reason="cryptography is not installed: pip install 'rankcore[ray]'")
        self.folder = folder
        self._key, self.certfile = self._write("authority", None)

    def sign(self, name: str, password: str | None = None) -> tuple[str, str]:
        """The files of a certificate for 127.0.0.1 and localhost, and of its key."""
        self._write(name, password)
        return str(self.folder / f"{name}.pem"), str(self.folder / f"{name}.key")

    def _write(self, name: str, password: str | None):
        from cryptography import x509
        from cryptography.hazmat.primitives import hashes, serialization
        from cryptography.hazmat.primitives.asymmetric import ec

        key = ec.generate_private_key(ec.SECP256R1())
        is_own = name == "authority"
        issuer = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "authority")])
        now = datetime.datetime.now(datetime.UTC)
        names = [x509.DNSName("localhost"), x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]
        certificate = (
            x509.CertificateBuilder()
            .subject_name(x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, name)]))
            .issuer_name(issuer)
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - datetime.timedelta(days=1))
            .not_valid_after(now + datetime.timedelta(days=1))
            .add_extension(x509.SubjectAlternativeName(names), critical=False)
            .add_extension(x509.BasicConstraints(ca=is_own, path_length=None), critical=True)
            .sign(key if is_own else self._key, hashes.SHA256())
        )
        hidden = serialization.BestAvailableEncryption(password.encode()) if password else serialization.NoEncryption()
        private = key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, hidden)
        (self.folder / f"{name}.key").write_bytes(private)
        (self.folder / f"{name}.pem").write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
        return key, str(self.folder / f"{name}.pem")
