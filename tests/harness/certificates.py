"""A certificate authority for tests of TLS; keys live as long as the test process."""

from __future__ import annotations

import datetime
import ipaddress
import ssl
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Final

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

if TYPE_CHECKING:
    from collections.abc import Sequence

_KEY_BEGINS: Final = b"-----BEGIN PRIVATE KEY-----"


class Authority:
    """`pem` is its certificate; it signs certificates of TLS servers and of users of an API server.

    `saved` is what an earlier one's `save` gave: the same authority in another process.
    """

    def __init__(self, saved: bytes | None = None) -> None:
        if saved is not None:
            self._restore(saved)
        else:
            self._key = ec.generate_private_key(ec.SECP256R1())
            self._name = _name("mcpgroup tests")
            self._certificate = self._sign(
                self._name,
                self._key,
                x509.BasicConstraints(ca=True, path_length=0),
                x509.KeyUsage(
                    digital_signature=True,
                    content_commitment=False,
                    key_encipherment=False,
                    data_encipherment=False,
                    key_agreement=False,
                    key_cert_sign=True,
                    crl_sign=True,
                    encipher_only=False,
                    decipher_only=False,
                ),
            )
        self.pem = self._certificate.public_bytes(serialization.Encoding.PEM)

    def save(self) -> bytes:
        """Certificate and key, PEM."""
        return _pem(self._certificate, self._key)

    def server(self, *hosts: str) -> bytes:
        """Certificate and key, PEM, of a TLS server with these names and IP addresses."""
        names: list[x509.GeneralName] = []
        for host in hosts:
            try:
                names.append(x509.IPAddress(ipaddress.ip_address(host)))
            except ValueError:
                names.append(x509.DNSName(host))
        return self._issue(_name(hosts[0]), x509.SubjectAlternativeName(names))

    def user(self, name: str, groups: Sequence[str] = ()) -> bytes:
        """Certificate and key, PEM, of a user as an API server reads them."""
        return self._issue(
            _name(name, groups), x509.ExtendedKeyUsage([ExtendedKeyUsageOID.CLIENT_AUTH])
        )

    def server_context(self, host: str) -> ssl.SSLContext:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "server.pem"
            path.write_bytes(self.server(host))
            context.load_cert_chain(path)
        return context

    def _restore(self, saved: bytes) -> None:
        key = serialization.load_pem_private_key(saved[saved.index(_KEY_BEGINS) :], None)
        assert isinstance(key, ec.EllipticCurvePrivateKey)
        self._key = key
        self._certificate = x509.load_pem_x509_certificate(saved)
        self._name = self._certificate.subject

    def _issue(self, name: x509.Name, *extensions: x509.ExtensionType) -> bytes:
        key = ec.generate_private_key(ec.SECP256R1())
        return _pem(self._sign(name, key, *extensions), key)

    def _sign(
        self, name: x509.Name, key: ec.EllipticCurvePrivateKey, *extensions: x509.ExtensionType
    ) -> x509.Certificate:
        now = datetime.datetime.now(datetime.UTC)
        builder = (
            x509.CertificateBuilder()
            .subject_name(name)
            .issuer_name(self._name)
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - datetime.timedelta(days=1))
            .not_valid_after(now + datetime.timedelta(days=1))
            .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), False)
            .add_extension(
                x509.AuthorityKeyIdentifier.from_issuer_public_key(self._key.public_key()), False
            )
        )
        for extension in extensions:
            critical = isinstance(extension, x509.BasicConstraints | x509.KeyUsage)
            builder = builder.add_extension(extension, critical)
        return builder.sign(self._key, hashes.SHA256())


def signing_key() -> bytes:
    """A key, PEM, that an API server signs service account tokens with, and verifies them."""
    return ec.generate_private_key(ec.SECP256R1()).private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.TraditionalOpenSSL,
        serialization.NoEncryption(),
    )


def _name(common: str, organisations: Sequence[str] = ()) -> x509.Name:
    parts = [x509.NameAttribute(NameOID.ORGANIZATION_NAME, name) for name in organisations]
    return x509.Name([*parts, x509.NameAttribute(NameOID.COMMON_NAME, common)])


def _pem(certificate: x509.Certificate, key: ec.EllipticCurvePrivateKey) -> bytes:
    return certificate.public_bytes(serialization.Encoding.PEM) + key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )
