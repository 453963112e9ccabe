"""Keys that sign without a network: ECDSA on P-256 over SHA-256, or Ed25519; the forms that cosign reads, too."""

from __future__ import annotations

import base64
import hashlib
import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from hubkernels.errors import CheckFailedError, EnvironmentLacksError, InputError, Problem
from hubkernels.host.files import disk_errors, read_errors, read_regular
from hubkernels.hub.sign_bundle import SignatureBundle, read_bundle, write_bundle

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePrivateKey, EllipticCurvePublicKey
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

    Private = EllipticCurvePrivateKey | Ed25519PrivateKey
    Public = EllipticCurvePublicKey | Ed25519PublicKey

KeyType = Literal["ecdsa-p256", "ed25519"]
PASSWORD = "HUBKERNELS_SIGN_PASSWORD"  # noqa: S105 - the name of a variable
_PRIVATE_MODE = 0o600
_OTHERS = 0o077
_KINDS = "an ECDSA key on P-256 or an Ed25519 key, in PEM"


@dataclass(frozen=True)
class PublicKey:
    """der: SubjectPublicKeyInfo. hint: base64 of its SHA-256, by which bundles name it."""

    der: bytes

    @property
    def hint(self) -> str:
        return base64.b64encode(hashlib.sha256(self.der).digest()).decode()

    def signed(self, content: bytes, bundle: SignatureBundle) -> bool:
        """Whether this key made the bundle's signature over the content."""
        from cryptography.exceptions import InvalidSignature  # noqa: PLC0415 - an extra, and slow
        from cryptography.hazmat.primitives import hashes  # noqa: PLC0415
        from cryptography.hazmat.primitives.asymmetric import ec  # noqa: PLC0415
        from cryptography.hazmat.primitives.serialization import load_der_public_key  # noqa: PLC0415

        key = _known_public(load_der_public_key(self.der))
        try:
            if isinstance(key, ec.EllipticCurvePublicKey):
                key.verify(bundle.signature, content, ec.ECDSA(hashes.SHA256()))
            else:
                key.verify(bundle.signature, content)
        except InvalidSignature:
            return False
        return True


@dataclass(frozen=True)
class KeySigner:
    """Signs with a private key. der: PKCS #8, in memory alone."""

    der: bytes = field(repr=False)
    public: PublicKey

    def sign(self, content: bytes) -> bytes:
        """The bundle over a file's content."""
        from cryptography.hazmat.primitives import hashes  # noqa: PLC0415 - an extra, and slow
        from cryptography.hazmat.primitives.asymmetric import ec  # noqa: PLC0415
        from cryptography.hazmat.primitives.serialization import load_der_private_key  # noqa: PLC0415

        key = _known_private(load_der_private_key(self.der, None))
        if isinstance(key, ec.EllipticCurvePrivateKey):
            signature = key.sign(content, ec.ECDSA(hashes.SHA256()))
        else:
            signature = key.sign(content)
        return write_bundle(content, signature, self.public.hint)

    def made(self, content: bytes, bundle: bytes) -> bool:
        """Whether a bundle is a good signature of this signer's over the content."""
        try:
            return self.public.signed(content, read_bundle(bundle))
        except CheckFailedError:
            return False


def make_key(file: Path, kind: KeyType, password: str | None) -> Path:
    """Write a private key that its owner alone may read, and beside it the public one, whose path is told.

    Raises InputError where either is there: a key that is written over is lost.
    """
    require_cryptography()
    from cryptography.hazmat.primitives import serialization  # noqa: PLC0415 - an extra, and slow
    from cryptography.hazmat.primitives.asymmetric import ec, ed25519  # noqa: PLC0415

    beside = file.parent / f"{file.name}.pub"
    if os.path.lexists(beside):
        raise _taken(beside)
    key: Private = ec.generate_private_key(ec.SECP256R1())
    if kind == "ed25519":
        key = ed25519.Ed25519PrivateKey.generate()
    locked: serialization.KeySerializationEncryption = serialization.NoEncryption()
    if password:
        locked = serialization.BestAvailableEncryption(os.fsencode(password))
    pem = serialization.Encoding.PEM
    private = key.private_bytes(pem, serialization.PrivateFormat.PKCS8, locked)
    public = key.public_key().public_bytes(pem, serialization.PublicFormat.SubjectPublicKeyInfo)
    _write_new(file, private, _PRIVATE_MODE)
    _write_new(beside, public, 0o644)
    return beside


def _write_new(path: Path, content: bytes, mode: int) -> None:
    """Where two write at once, one of them is told that the file is there."""
    with disk_errors(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)
        except FileExistsError as error:
            raise _taken(path) from error
        try:
            with os.fdopen(handle, "wb") as file:
                file.write(content)
        except BaseException:
            path.unlink()
            raise


def _taken(path: Path) -> InputError:
    return InputError(Problem(f"{path} is there, and no key is written over", hint="name another file"))


def read_signer(file: Path, password: str | None) -> KeySigner:
    """The signer of a private key's file. Raises InputError where others may read it, and for what is no such key."""
    require_cryptography()
    from cryptography.hazmat.primitives import serialization  # noqa: PLC0415 - an extra, and slow

    with read_errors(file):
        content = read_regular(file)
        if file.stat().st_mode & _OTHERS:
            raise InputError(Problem("others may read the private key", str(file), f"chmod 600 {file}"))
    try:
        key = _known_private(serialization.load_pem_private_key(content, os.fsencode(password) if password else None))
    except TypeError as error:  # what cryptography says of a password that is missing, or one too many
        asked = f"the key has a password: set {PASSWORD}" if not password else f"the key has none: unset {PASSWORD}"
        raise InputError(Problem("the private key cannot be read", str(file), asked)) from error
    except ValueError as error:
        hint = f"is {PASSWORD} right? It has to be {_KINDS}: `kernel-builder keygen`"
        raise InputError(Problem("the private key cannot be read", str(file), hint)) from error
    der = serialization.Encoding.DER
    private = key.private_bytes(der, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    public = key.public_key().public_bytes(der, serialization.PublicFormat.SubjectPublicKeyInfo)
    return KeySigner(private, PublicKey(public))


def read_public(pem: bytes) -> PublicKey:
    """Raises ValueError for what is no public key of a kind that signs here."""
    require_cryptography()
    from cryptography.exceptions import UnsupportedAlgorithm  # noqa: PLC0415 - an extra, and slow
    from cryptography.hazmat.primitives import serialization  # noqa: PLC0415

    try:
        key = _known_public(serialization.load_pem_public_key(pem))
    except UnsupportedAlgorithm as error:
        raise ValueError(str(error)) from error
    form = serialization.PublicFormat.SubjectPublicKeyInfo
    return PublicKey(key.public_bytes(serialization.Encoding.DER, form))


def require_cryptography() -> None:
    """Raises EnvironmentLacksError where what signs and verifies is not installed."""
    try:
        import cryptography  # noqa: F401, PLC0415 - an extra
    except ImportError as error:
        hint = "pip install 'hubkernels[client]'"
        raise EnvironmentLacksError(
            Problem("signatures need cryptography, which comes with sigstore", hint=hint)
        ) from error


def _known_private(key: object) -> Private:
    from cryptography.hazmat.primitives.asymmetric import ec, ed25519  # noqa: PLC0415 - an extra, and slow

    if isinstance(key, ed25519.Ed25519PrivateKey):
        return key
    if isinstance(key, ec.EllipticCurvePrivateKey) and isinstance(key.curve, ec.SECP256R1):
        return key
    raise ValueError(_KINDS)


def _known_public(key: object) -> Public:
    from cryptography.hazmat.primitives.asymmetric import ec, ed25519  # noqa: PLC0415 - an extra, and slow

    if isinstance(key, ed25519.Ed25519PublicKey):
        return key
    if isinstance(key, ec.EllipticCurvePublicKey) and isinstance(key.curve, ec.SECP256R1):
        return key
    raise ValueError(_KINDS)
