"""A certificate authority of the tests, and what it signs."""

import ipaddress
import ssl
import tempfile
from datetime import UTC, datetime, timedelta
from functools import cache
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
)
from cryptography.x509.oid import NameOID

DAY = timedelta(days=1)


def _name(text):
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, text)])


def _san(host):
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        return x509.DNSName(host)


def _builder(subject, issuer, key, begins, ends):
    return (
        x509.CertificateBuilder()
        .subject_name(_name(subject))
        .issuer_name(_name(issuer))
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(begins)
        .not_valid_after(ends)
    )


@cache
def _authority():
    key = ec.generate_private_key(ec.SECP256R1())
    now = datetime.now(UTC)
    usage = x509.KeyUsage(
        digital_signature=True, key_cert_sign=True, crl_sign=True, content_commitment=False,
        key_encipherment=False, data_encipherment=False, key_agreement=False, encipher_only=False,
        decipher_only=False,
    )  # fmt: skip
    certificate = (
        _builder("test authority", "test authority", key, now - DAY, now + DAY)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .add_extension(usage, critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .sign(key, hashes.SHA256())
    )
    return key, certificate


def trusting_tls():
    """Return the context of a client that trusts the authority of the tests."""
    context = ssl.create_default_context()
    context.load_verify_locations(cadata=_authority()[1].public_bytes(Encoding.PEM).decode())
    return context


@cache
def server_tls(host, *, expired=False):
    """Return the context of a server with a certificate for a host."""
    authority, authority_certificate = _authority()
    key = ec.generate_private_key(ec.SECP256R1())
    now = datetime.now(UTC)
    ends = now - DAY / 2 if expired else now + DAY
    identifier = x509.AuthorityKeyIdentifier.from_issuer_public_key(authority.public_key())
    certificate = (
        _builder(host, "test authority", key, now - DAY, ends)
        .add_extension(x509.SubjectAlternativeName([_san(host)]), critical=False)
        .add_extension(identifier, critical=False)
        .sign(authority, hashes.SHA256())
    )
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    with tempfile.TemporaryDirectory() as directory:
        chain = Path(directory, "chain.pem")
        private = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
        public = [each.public_bytes(Encoding.PEM) for each in (certificate, authority_certificate)]
        chain.write_bytes(b"".join([private, *public]))
        context.load_cert_chain(chain)
    return context
