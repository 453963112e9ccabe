"""A sigstore of one's own, for tests: an authority, a certificate log and a signature log, all in memory.

It signs as the workflow that it is told, which the public one does for the workflow itself alone. `served_sigstore` has
its services over HTTP.
"""

from __future__ import annotations

import base64
import datetime as dt
import hashlib
import json
import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

GITHUB = "https://token.actions.githubusercontent.com"
_FULCIO = "1.3.6.1.4.1.57264.1"
_ISSUER, _ISSUER_V2, _SIGNER, _REPOSITORY = (f"{_FULCIO}.{number}" for number in (1, 8, 9, 12))
_SCT_LIST = "1.3.6.1.4.1.11129.2.4.2"
_ECDSA_SHA256 = b"\x04\x03"
_ORIGIN = "log.example.org"


def new_key() -> ec.EllipticCurvePrivateKey:
    return ec.generate_private_key(ec.SECP256R1())


def der_of(key: ec.EllipticCurvePrivateKey) -> bytes:
    form = serialization.PublicFormat.SubjectPublicKeyInfo
    return key.public_key().public_bytes(serialization.Encoding.DER, form)


def text(value: bytes) -> str:
    return base64.b64encode(value).decode()


def signed(key: ec.EllipticCurvePrivateKey, content: bytes) -> bytes:
    return key.sign(content, ec.ECDSA(hashes.SHA256()))


def utf8(value: str) -> bytes:
    """DER of a UTF8String."""
    content = value.encode()
    length = bytes([len(content)]) if len(content) < 0x80 else b"\x81" + bytes([len(content)])
    return b"\x0c" + length + content


@dataclass(frozen=True)
class OwnSigstore:
    """Whose certificates and log are good is told by `trust_root`."""

    authority: ec.EllipticCurvePrivateKey = field(default_factory=new_key)
    certificates: ec.EllipticCurvePrivateKey = field(default_factory=new_key)
    log: ec.EllipticCurvePrivateKey = field(default_factory=new_key)
    now: dt.datetime = field(default_factory=lambda: dt.datetime.now(dt.timezone.utc).replace(microsecond=0))
    name: x509.Name = field(default_factory=lambda: x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "own")]))

    def trust_root(self, stamps: Sequence[x509.Certificate] = (), **addresses: str) -> dict[str, Any]:
        """stamps: the chain of who gives time stamps. addresses: of the log and the authority, where there are any."""
        start = {"start": (self.now - dt.timedelta(days=1)).isoformat().replace("+00:00", "Z")}

        def log(key: ec.EllipticCurvePrivateKey) -> dict[str, Any]:
            public = {"rawBytes": text(der_of(key)), "keyDetails": "PKIX_ECDSA_P256_SHA_256", "validFor": start}
            known = {"keyId": text(hashlib.sha256(der_of(key)).digest())}
            return {
                "baseUrl": addresses.get("log", f"https://{_ORIGIN}"),
                "hashAlgorithm": "SHA2_256",
                "publicKey": public,
                "logId": known,
            }

        def authority(address: str, chain: Sequence[x509.Certificate]) -> dict[str, Any]:
            listed = [{"rawBytes": text(each.public_bytes(serialization.Encoding.DER))} for each in chain]
            subject = {"organization": "own", "commonName": "own"}
            return {"subject": subject, "uri": address, "certChain": {"certificates": listed}, "validFor": start}

        return {
            "mediaType": "application/vnd.dev.sigstore.trustedroot+json;version=0.1",
            "tlogs": [log(self.log)],
            "certificateAuthorities": [authority(addresses.get("authority", "https://ca.example.org"), [self.root()])],
            "ctlogs": [log(self.certificates)],
            "timestampAuthorities": [authority("https://time.example.org", stamps)] if stamps else [],
        }

    def sign(self, content: bytes, repository: str, workflow: str, issuer: str = GITHUB) -> bytes:
        """The bundle of a signature by a workflow: addresses of a repository, and of its file with a ref."""
        key = new_key()
        told = {
            _ISSUER: issuer.encode(),
            _ISSUER_V2: utf8(issuer),
            _SIGNER: utf8(workflow),
            _REPOSITORY: utf8(repository),
        }
        certificate = self.certify(key.public_key(), workflow, told)
        signature = signed(key, content)
        body = hashedrekord(hashlib.sha256(content).hexdigest(), text(signature), pem(certificate))
        message = {"algorithm": "SHA2_256", "digest": text(hashlib.sha256(content).digest())}
        raw = text(certificate.public_bytes(serialization.Encoding.DER))
        value = {
            "mediaType": "application/vnd.dev.sigstore.bundle.v0.3+json",
            "verificationMaterial": {
                "certificate": {"rawBytes": raw},
                "tlogEntries": [self.logged([body])],
            },
            "messageSignature": {"messageDigest": message, "signature": text(signature)},
        }
        return json.dumps(value).encode()

    def root(self) -> x509.Certificate:
        names = x509.CertificateBuilder().subject_name(self.name).issuer_name(self.name)
        key = self.authority.public_key()
        usage = x509.KeyUsage(
            digital_signature=False,
            content_commitment=False,
            key_encipherment=False,
            data_encipherment=False,
            key_agreement=False,
            key_cert_sign=True,
            crl_sign=True,
            encipher_only=False,
            decipher_only=False,
        )
        return (
            names.public_key(key)
            .serial_number(1)
            .not_valid_before(self.now - dt.timedelta(days=1))
            .not_valid_after(self.now + dt.timedelta(days=1))
            .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
            .add_extension(usage, critical=True)
            .add_extension(x509.SubjectKeyIdentifier.from_public_key(key), critical=False)
            .sign(self.authority, hashes.SHA256())
        )

    def certify(self, key: ec.EllipticCurvePublicKey, name: str, told: Mapping[str, bytes]) -> x509.Certificate:
        """A certificate of minutes. name: whose it is, an address of the web or of mail. told: extensions.

        First as the certificate log sees it, then with what the log says to that.
        """
        now = dt.datetime.now(dt.timezone.utc).replace(microsecond=0)
        builder = self._leaf(key, name, told, now)
        before = builder.sign(self.authority, hashes.SHA256()).tbs_certificate_bytes
        moment = struct.pack("!Q", int(now.timestamp() * 1000))
        entry = hashlib.sha256(der_of(self.authority)).digest() + struct.pack("!I", len(before))[1:] + before
        signature = signed(self.certificates, b"\0\0" + moment + b"\0\1" + entry + b"\0\0")
        known = hashlib.sha256(der_of(self.certificates)).digest()
        stamp = b"\0" + known + moment + b"\0\0" + _ECDSA_SHA256 + struct.pack("!H", len(signature)) + signature
        stamps = struct.pack("!HH", len(stamp) + 2, len(stamp)) + stamp
        length = bytes([len(stamps)]) if len(stamps) < 0x80 else b"\x81" + bytes([len(stamps)])
        listed = x509.UnrecognizedExtension(x509.ObjectIdentifier(_SCT_LIST), b"\x04" + length + stamps)
        return builder.add_extension(listed, critical=False).sign(self.authority, hashes.SHA256())

    def _leaf(
        self, key: ec.EllipticCurvePublicKey, name: str, told: Mapping[str, bytes], now: dt.datetime
    ) -> x509.CertificateBuilder:
        usage = x509.KeyUsage(
            digital_signature=True,
            content_commitment=False,
            key_encipherment=False,
            data_encipherment=False,
            key_agreement=False,
            key_cert_sign=False,
            crl_sign=False,
            encipher_only=False,
            decipher_only=False,
        )
        whose = x509.UniformResourceIdentifier(name) if "://" in name else x509.RFC822Name(name)
        builder = (
            x509.CertificateBuilder()
            .subject_name(x509.Name([]))
            .issuer_name(self.name)
            .public_key(key)
            .serial_number(x509.random_serial_number())
            .not_valid_before(now)
            .not_valid_after(now + dt.timedelta(minutes=10))
            .add_extension(usage, critical=True)
            .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.CODE_SIGNING]), critical=False)
            .add_extension(x509.SubjectKeyIdentifier.from_public_key(key), critical=False)
            .add_extension(
                x509.AuthorityKeyIdentifier.from_issuer_public_key(self.authority.public_key()), critical=False
            )
            .add_extension(x509.SubjectAlternativeName([whose]), critical=True)
        )
        for oid, value in told.items():
            extension = x509.UnrecognizedExtension(x509.ObjectIdentifier(oid), value)
            builder = builder.add_extension(extension, critical=False)
        return builder

    def logged(self, bodies: Sequence[bytes]) -> dict[str, Any]:
        """The last entry of a log that has these, with the proof that it is in it."""
        known, index, root = hashlib.sha256(der_of(self.log)).digest(), len(bodies) - 1, tree_hash(bodies)
        moment = int(dt.datetime.now(dt.timezone.utc).timestamp())
        promised = {"body": text(bodies[-1]), "integratedTime": moment, "logID": known.hex(), "logIndex": index}
        header = f"{_ORIGIN}\n{len(bodies)}\n{text(root)}\n"
        note = text(known[:4] + signed(self.log, header.encode()))
        stated = json.loads(bodies[-1])
        return {
            "logIndex": str(index),
            "logId": {"keyId": text(known)},
            "kindVersion": {"kind": stated["kind"], "version": stated["apiVersion"]},
            "integratedTime": str(moment),
            "inclusionPromise": {"signedEntryTimestamp": text(signed(self.log, canonical(promised)))},
            "inclusionProof": {
                "logIndex": str(index),
                "rootHash": text(root),
                "treeSize": str(len(bodies)),
                "hashes": [text(each) for each in path_of_last(bodies)],
                "checkpoint": {"envelope": f"{header}\n\u2014 {_ORIGIN} {note}\n"},
            },
            "canonicalizedBody": text(bodies[-1]),
        }


def hashedrekord(digest: str, signature: str, certificate: bytes) -> bytes:
    """An entry of a log of the first version."""
    key = {"content": text(certificate)}
    data = {"hash": {"algorithm": "sha256", "value": digest}}
    spec = {"data": data, "signature": {"content": signature, "publicKey": key}}
    return canonical({"apiVersion": "0.0.1", "kind": "hashedrekord", "spec": spec})


def pem(certificate: x509.Certificate) -> bytes:
    return certificate.public_bytes(serialization.Encoding.PEM)


def tree_hash(bodies: Sequence[bytes]) -> bytes:
    """As in RFC 6962, 2.1."""
    if len(bodies) == 1:
        return hashlib.sha256(b"\0" + bodies[0]).digest()
    half = 1 << (len(bodies) - 1).bit_length() - 1
    return hashlib.sha256(b"\1" + tree_hash(bodies[:half]) + tree_hash(bodies[half:])).digest()


def path_of_last(bodies: Sequence[bytes]) -> list[bytes]:
    """As in RFC 6962, 2.1.1, from the leaf up."""
    if len(bodies) == 1:
        return []
    half = 1 << (len(bodies) - 1).bit_length() - 1
    return [*path_of_last(bodies[half:]), tree_hash(bodies[:half])]


def canonical(value: object) -> bytes:
    return json.dumps(value, sort_keys=True, separators=(",", ":")).encode()
