"""A company's sigstore, on this machine: its services over HTTP, as sigstore's own client asks them.

The forms are those of Fulcio's `api/v2/signingCert`, of Rekor's `api/v1/log/entries` and `api/v2/log/entries`, of
RFC 3161, and of what a GitHub job asks for its token. What a real one would refuse is refused: a token that is over, or
of another issuer or audience, a request that its key did not sign, an entry whose signature is wrong or there already.
"""

from __future__ import annotations

import base64
import binascii
import datetime as dt
import hashlib
import json
import shutil
import subprocess
import tempfile
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import jwt
from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.hazmat.primitives.asymmetric.utils import Prehashed
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from tests.hub.own_sigstore import GITHUB, OwnSigstore, canonical, hashedrekord, new_key, pem, utf8

FULCIO, TOKEN, STAMPS = "/api/v2/signingCert", "/token/request", "/api/v1/timestamp"
REKOR = {1: "/api/v1/log/entries", 2: "/api/v2/log/entries"}
HOST = "https://github.com"
_OID = "1.3.6.1.4.1.57264.1."

_OLD = {"1": "iss", "2": "event_name", "3": "sha", "4": "workflow", "5": "repository", "6": "ref"}
"""Fulcio's first extensions, whose values are bare text, by the claims of the token that they are of."""

_NEW = {
    "8": "{iss}",
    "9": "{server}/{job_workflow_ref}",
    "10": "{job_workflow_sha}",
    "11": "{runner_environment}",
    "12": "{server}/{repository}",
    "13": "{sha}",
    "14": "{ref}",
    "15": "{repository_id}",
    "16": "{server}/{repository_owner}",
    "17": "{repository_owner_id}",
    "18": "{server}/{workflow_ref}",
    "19": "{workflow_sha}",
    "20": "{event_name}",
    "21": "{server}/{repository}/actions/runs/{run_id}/attempts/{run_attempt}",
    "22": "{repository_visibility}",
}
"""Its later ones, in DER: `docs/oid-info.md` of Fulcio, and its rule for GitHub's issuer."""


class RefusedError(Exception):
    def __init__(self, status: int, code: int, message: str) -> None:
        super().__init__(message)
        self.status, self.code = status, code


@dataclass
class ServedSigstore:
    """rekor: the version of the log. stamped: whether there is an authority of time stamps; version 2 needs one.

    faults: what paths answer instead, a status and a body. over: whether tokens are over when they are given.
    certified: the workflow that certificates are of, whatever the token says; None is the token's.
    server, tokens: the GitHub whose jobs sign, and the issuer of its tokens.
    other: the claims of a job that is not GitHub's. named: whose its certificates are.
    """

    folder: Path
    rekor: int = 1
    stamped: bool = False
    own: OwnSigstore = field(default_factory=OwnSigstore)
    issuer: rsa.RSAPrivateKey = field(default_factory=lambda: rsa.generate_private_key(65537, 2048))
    faults: dict[str, tuple[int, bytes]] = field(default_factory=dict)
    over: bool = False
    certified: str | None = None
    other: dict[str, str] = field(default_factory=dict)
    named: str = ""
    entries: list[bytes] = field(default_factory=list)
    asked: list[str] = field(default_factory=list)
    url: str = ""
    repository: str = "org/kernels"
    workflow: str = "release.yml@refs/heads/main"
    server: str = HOST
    tokens: str = GITHUB

    @property
    def signer(self) -> str:
        """The address of the workflow that signs."""
        return f"{self.server}/{self.repository}/.github/workflows/{self.workflow}"

    @property
    def variables(self) -> dict[str, str]:
        """What a job of GitHub with `id-token: write` has in its environment; any other, what one of GitLab has."""
        if self.other:
            now = int(dt.datetime.now(dt.timezone.utc).timestamp())
            claims = {"aud": "sigstore", "iat": now, "exp": now + 300, **self.other}
            token = jwt.encode(claims, self.issuer, "RS256", {"kid": "own"})
            return {"GITLAB_CI": "true", "SIGSTORE_ID_TOKEN": token}
        return {
            "GITHUB_ACTIONS": "true",
            "GITHUB_SERVER_URL": self.server,
            "ACTIONS_ID_TOKEN_REQUEST_URL": f"{self.url}{TOKEN}?api-version=2.0",
            "ACTIONS_ID_TOKEN_REQUEST_TOKEN": "of-the-job",
        }

    def config(self) -> Path:
        """sigstore's ClientTrustConfig, which who runs it gives to users; it is written once."""
        file = self.folder / "sigstore.json"
        if file.exists():
            return file

        def service(address: str, version: int) -> list[dict[str, Any]]:
            known = {"start": (self.own.now - dt.timedelta(days=1)).isoformat().replace("+00:00", "Z")}
            return [{"url": address, "majorApiVersion": version, "validFor": known, "operator": "own"}]

        signing = {
            "mediaType": "application/vnd.dev.sigstore.signingconfig.v0.2+json",
            "caUrls": service(self.url, 1),
            "rekorTlogUrls": service(self.url, self.rekor),
            "rekorTlogConfig": {"selector": "ANY"},
            "tsaUrls": service(f"{self.url}{STAMPS}", 1) if self.stamped else [],
            "tsaConfig": {"selector": "ANY"},
        }
        stamps = self.stamp_chain if self.stamped else []
        value = {
            "mediaType": "application/vnd.dev.sigstore.clienttrustconfig.v0.1+json",
            "trustedRoot": self.own.trust_root(stamps, log=self.url, authority=self.url),
            "signingConfig": signing,
        }
        file.write_text(json.dumps(value), encoding="utf-8")
        return file

    def policy(self) -> Path:
        """One that allows the workflow, and has its keys from the configuration."""
        lines = [
            f'[[workflow]]\nrepository = "{self.repository}"\nworkflow = "{self.workflow}"\nissuer = "{self.tokens}"\n',
            f'[sigstore]\ntrust-root = "{self.config()}"\n',
        ]
        (self.folder / "policy.toml").write_text("".join(lines), encoding="utf-8")
        return self.folder / "policy.toml"

    def answer(self, path: str, query: Mapping[str, list[str]], headers: Mapping[str, str], body: bytes) -> Any:  # noqa: ANN401
        """JSON, or bytes of a time stamp. Raises RefusedError."""
        if path == TOKEN:
            return self._token(query, headers)
        if path == FULCIO:
            return self._certificate(json.loads(body), headers)
        if path == REKOR[self.rekor]:
            return self._entry(json.loads(body))
        if path == STAMPS and self.stamped:
            return self._stamp(body)
        raise RefusedError(404, 5, "Not Found")

    def _token(self, query: Mapping[str, list[str]], headers: Mapping[str, str]) -> dict[str, Any]:
        if headers.get("Authorization") != "bearer of-the-job":
            raise RefusedError(401, 16, "the job's token is not known")
        now = int(dt.datetime.now(dt.timezone.utc).timestamp()) - (3600 if self.over else 0)
        owner, ref = self.repository.partition("/")[0], self.workflow.partition("@")[2]
        claims = {
            "iss": self.tokens,
            "sub": f"repo:{self.repository}:ref:{ref}",
            "aud": query["audience"][0],
            "iat": now,
            "nbf": now - 300,
            "exp": now + 300,
            "jti": "1",
            "actor": "author",
            "event_name": "push",
            "job_workflow_ref": f"{self.repository}/.github/workflows/{self.workflow}",
            "job_workflow_sha": "0" * 40,
            "ref": ref,
            "repository": self.repository,
            "repository_id": "1",
            "repository_owner": owner,
            "repository_owner_id": "2",
            "repository_visibility": "private",
            "run_attempt": "1",
            "run_id": "3",
            "runner_environment": "github-hosted",
            "sha": "0" * 40,
            "workflow": "release",
            "workflow_ref": f"{self.repository}/.github/workflows/{self.workflow}",
            "workflow_sha": "0" * 40,
        }
        return {"count": 1, "value": jwt.encode(claims, self.issuer, "RS256", {"kid": "own"})}

    def _certificate(self, body: Mapping[str, Any], headers: Mapping[str, str]) -> dict[str, Any]:
        token = headers.get("Authorization", "").removeprefix("Bearer ")
        key = self.issuer.public_key()
        try:
            claims = jwt.decode(token, key, ["RS256"], audience="sigstore", issuer=self.other.get("iss", self.tokens))
        except jwt.InvalidTokenError as error:
            raise RefusedError(401, 16, "There was an error processing the identity token") from error
        asked = x509.load_pem_x509_csr(base64.b64decode(body["certificateSigningRequest"]))
        if not asked.is_signature_valid:
            raise RefusedError(400, 3, "The signature supplied in the request could not be verified")
        if self.certified:
            claims["job_workflow_ref"] = self.certified
        old, new = ({"1": "iss"}, {"8": "{iss}"}) if self.other else (_OLD, _NEW)
        told = {f"{_OID}{number}": str(claims[claim]).encode() for number, claim in old.items()}
        told |= {
            f"{_OID}{number}": utf8(form.format_map({**claims, "server": self.server})) for number, form in new.items()
        }
        public = asked.public_key()
        assert isinstance(public, ec.EllipticCurvePublicKey)
        made = self.own.certify(public, self.named or f"{self.server}/{claims['job_workflow_ref']}", told)
        chain = {"certificates": [pem(made).decode(), pem(self.own.root()).decode()]}
        return {"signedCertificateEmbeddedSct": {"chain": chain}}

    def _entry(self, asked: Mapping[str, Any]) -> dict[str, Any]:
        body = self._first(asked) if self.rekor == 1 else self._second(asked)
        if body in self.entries:
            raise RefusedError(409, 409, "an equivalent entry already exists in the transparency log")
        self.entries.append(body)
        entry = self.own.logged(self.entries)
        if self.rekor == 2:
            return {name: value for name, value in entry.items() if name not in {"integratedTime", "inclusionPromise"}}
        proof = entry["inclusionProof"]
        known = hashlib.sha256(b"\0" + body).hexdigest()
        return {
            f"{1:016x}{known}": {
                "body": entry["canonicalizedBody"],
                "integratedTime": int(entry["integratedTime"]),
                "logID": base64.b64decode(entry["logId"]["keyId"]).hex(),
                "logIndex": int(entry["logIndex"]),
                "verification": {
                    "inclusionProof": {
                        "checkpoint": proof["checkpoint"]["envelope"],
                        "hashes": [base64.b64decode(each).hex() for each in proof["hashes"]],
                        "logIndex": int(proof["logIndex"]),
                        "rootHash": base64.b64decode(proof["rootHash"]).hex(),
                        "treeSize": int(proof["treeSize"]),
                    },
                    "signedEntryTimestamp": entry["inclusionPromise"]["signedEntryTimestamp"],
                },
            }
        }

    def _first(self, asked: Mapping[str, Any]) -> bytes:
        spec = asked["spec"]
        certificate = base64.b64decode(spec["signature"]["publicKey"]["content"])
        digest, signature = spec["data"]["hash"]["value"], spec["signature"]["content"]
        _verify(x509.load_pem_x509_certificate(certificate), signature, bytes.fromhex(digest))
        return hashedrekord(digest, signature, certificate)

    def _second(self, asked: Mapping[str, Any]) -> bytes:
        request = asked["hashedRekordRequestV002"]
        raw = base64.b64decode(request["signature"]["verifier"]["x509Certificate"]["rawBytes"])
        digest = base64.b64decode(request["digest"])
        _verify(x509.load_der_x509_certificate(raw), request["signature"]["content"], digest)
        data = {"algorithm": "SHA2_256", "digest": request["digest"]}
        spec = {"hashedRekordV002": {"data": data, "signature": request["signature"]}}
        return canonical({"apiVersion": "0.0.2", "kind": "hashedrekord", "spec": spec})

    def start_stamping(self) -> None:
        """A key and a certificate for nothing but time stamps."""
        key, usage = new_key(), x509.ExtendedKeyUsage([ExtendedKeyUsageOID.TIME_STAMPING])
        name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "own time")])
        made = (
            x509.CertificateBuilder(self.own.name, name, key.public_key(), 4)
            .not_valid_before(self.own.now - dt.timedelta(days=1))
            .not_valid_after(self.own.now + dt.timedelta(days=1))
            .add_extension(usage, critical=True)
            .sign(self.own.authority, hashes.SHA256())
        )
        self.stamp_chain = [made, self.own.root()]
        form = serialization.PrivateFormat.PKCS8
        secret = key.private_bytes(serialization.Encoding.PEM, form, serialization.NoEncryption())
        (self.folder / "time.key").write_bytes(secret)
        (self.folder / "time.pem").write_bytes(pem(made))
        (self.folder / "time.serial").write_text("01\n", encoding="utf-8")
        lines = {
            "serial": self.folder / "time.serial",
            "signer_cert": self.folder / "time.pem",
            "signer_key": self.folder / "time.key",
            "signer_digest": "sha256",
            "default_policy": "1.2.3.4.1",
            "digests": "sha256",
            "ess_cert_id_alg": "sha256",
        }
        told = "".join(f"{name} = {value}\n" for name, value in lines.items())
        (self.folder / "time.cnf").write_text(f"[own]\n{told}", encoding="utf-8")

    def _stamp(self, asked: bytes) -> bytes:
        with tempfile.TemporaryDirectory() as folder:
            query, reply = Path(folder, "query"), Path(folder, "reply")
            query.write_bytes(asked)
            command = ("openssl", "ts", "-reply", "-config", self.folder / "time.cnf", "-section", "own")
            done = subprocess.run(
                [*command, "-queryfile", query, "-out", reply], capture_output=True, text=True, check=False
            )
            if done.returncode:
                raise RefusedError(400, 400, done.stderr)
            return reply.read_bytes()


def _verify(certificate: x509.Certificate, signature: str, digest: bytes) -> None:
    key = certificate.public_key()
    assert isinstance(key, ec.EllipticCurvePublicKey)
    try:
        key.verify(base64.b64decode(signature), digest, ec.ECDSA(Prehashed(hashes.SHA256())))
    except (InvalidSignature, binascii.Error) as error:
        raise RefusedError(400, 400, "error processing entry: invalid signature when validating ASN.1") from error


@contextmanager
def serve_sigstore(folder: Path, rekor: int = 1, *, stamped: bool = False) -> Iterator[ServedSigstore]:
    """Its services, at one address of this machine. Time stamps are openssl's."""
    assert not stamped or shutil.which("openssl")
    served, lock = ServedSigstore(folder, rekor, stamped), threading.Lock()
    if stamped:
        served.start_stamping()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            where = urlsplit(self.path)
            length = int(self.headers.get("Content-Length") or 0)
            body = self.rfile.read(length)
            with lock:
                served.asked.append(f"{self.command} {where.path}")
                self._send(*self._answer(where.path, parse_qs(where.query), body))

        do_POST = do_GET  # noqa: N815 - as it is called there

        def _answer(self, path: str, query: Mapping[str, list[str]], body: bytes) -> tuple[int, bytes]:
            if path in served.faults:
                return served.faults[path]
            try:
                found = served.answer(path, query, dict(self.headers), body)
            except RefusedError as error:
                told = {"code": error.code, "message": str(error), "details": []}
                return error.status, json.dumps(told).encode()
            status = 200 if self.command == "GET" else 201
            return status, found if isinstance(found, bytes) else json.dumps(found).encode()

        def _send(self, status: int, body: bytes) -> None:
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *words: object) -> None:  # noqa: A002 - as it is called there
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    served.url = f"http://127.0.0.1:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield served
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
