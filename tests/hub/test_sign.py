"""Signatures: keys, bundles, policies, and what publishing does with them, to a Hub of our own."""

from __future__ import annotations

import base64
import hashlib
import json
import os
import shutil
import stat
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from hubkernels.errors import EnvironmentLacksError, InputError
from hubkernels.model.digest import digest_folder
from tests.conftest import Cli
from tests.hub.conftest import CPU, CUDA, REPO, Serve, Served, Verb, commit_all, run

pytest.importorskip("sigstore", reason="an extra: keys and bundles are its dependencies'")

from tests.hub.own_sigstore import OwnSigstore

SIGNATURE = f"build/{CPU}/metadata.json.sigstore"


@pytest.fixture
def keys(tmp_path: Path, cli: Cli) -> Path:
    """Two keys, ours and another's, of both kinds, and a policy that allows ours."""
    folder = tmp_path / "keys"
    for name, kind in (("ours", "ecdsa-p256"), ("theirs", "ed25519")):
        assert cli("keygen", folder / name, "--type", kind).code == 0
    (folder / "policy.toml").write_text('[[key]]\nname = "release"\nfile = "ours.pub"\n', encoding="utf-8")
    return folder


@pytest.fixture
def variant(tmp_path: Path) -> Path:
    """The folder of a published variant, as far as signatures look at it."""
    folder = tmp_path / "variant"
    (folder / "data").mkdir(parents=True)
    (folder / "__init__.py").write_text("x = 1\n", encoding="utf-8")
    (folder / "data/table.bin").write_bytes(bytes(range(256)))
    files = digest_folder(folder)
    metadata = {
        "name": "my-table",
        "version": 1,
        "backend": {"type": "cpu"},
        "digest": {"algorithm": "sha256", "files": files},
    }
    (folder / "metadata.json").write_text(json.dumps(metadata), encoding="utf-8")
    return folder


def sign(variant: Path, key: Path, over: bytes | None = None) -> None:
    from hubkernels.hub.sign_key import read_signer  # noqa: PLC0415 - collected without sigstore, too

    content = (variant / "metadata.json").read_bytes() if over is None else over
    (variant / "metadata.json.sigstore").write_bytes(read_signer(key, None).sign(content))


def state(variant: Path, policy: Path) -> tuple[str, str | None, str | None]:
    from hubkernels.hub.sign_policy import read_policy  # noqa: PLC0415
    from hubkernels.hub.sign_state import signature_state  # noqa: PLC0415

    found = signature_state(variant, read_policy(policy))
    return found.status, found.signer, found.reason


def edit(file: Path, change: Callable[[dict[str, Any]], None]) -> None:
    value = json.loads(file.read_text())
    change(value)
    file.write_text(json.dumps(value), encoding="utf-8")


def test_a_private_key_is_its_owner_s_and_no_key_is_written_over(keys: Path, cli: Cli) -> None:
    assert stat.S_IMODE((keys / "ours").stat().st_mode) == 0o600
    before = (keys / "ours").read_bytes()
    for file in ("ours", "theirs"):
        ran = cli("keygen", keys / file)
        assert (ran.code, "no key is written over" in ran.err) == (2, True)
    assert (keys / "ours").read_bytes() == before
    (keys / "ours").unlink()
    assert cli("keygen", keys / "ours").code == 2, "the public one is still there"


def test_no_key_is_made_where_git_would_take_it_along(tmp_path: Path, cli: Cli) -> None:
    """Typed in a project it was an untracked file, `publish` refused, and the hint was to commit it."""
    assert run("git", "init", "--quiet", tmp_path).returncode == 0
    key = tmp_path / "keys/release.key"
    ran = cli("keygen", key)
    assert (ran.code, "git does not ignore it" in ran.err) == (2, True)
    assert "outside of it, as ~/.config/hubkernels/release.key; or name it in .gitignore" in ran.err
    assert not key.parent.exists()
    assert cli("init", tmp_path / "my-kernel").code == 0
    made = cli("keygen", tmp_path / "my-kernel/release.key")
    assert (made.code, "commit release.key.pub, or keep it elsewhere, before the next build" in made.out) == (0, True)
    assert "commit" not in cli("keygen", tmp_path.parent / f"{tmp_path.name}.key").out


def test_of_two_who_make_a_key_at_once_one_is_told(tmp_path: Path) -> None:
    from hubkernels.hub.sign_key import make_key, read_public, read_signer  # noqa: PLC0415

    class Meanwhile(str):  # the password is asked for when the key is made, and not yet written
        __slots__ = ()

        def encode(self, encoding: str = "utf-8", errors: str = "strict") -> bytes:
            make_key(tmp_path / "key", "ecdsa-p256", None)
            return super().encode(encoding, errors)

    with pytest.raises(InputError, match="no key is written over"):
        make_key(tmp_path / "key", "ecdsa-p256", Meanwhile("secret"))
    assert read_signer(tmp_path / "key", None).public == read_public((tmp_path / "key.pub").read_bytes())


def test_a_key_that_others_may_read_is_refused(keys: Path) -> None:
    from hubkernels.hub.sign_key import read_signer  # noqa: PLC0415

    (keys / "ours").chmod(0o640)
    with pytest.raises(InputError, match="others may read the private key"):
        read_signer(keys / "ours", None)


def test_a_key_with_a_password_needs_it(tmp_path: Path, cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    from hubkernels.hub.sign_key import read_signer  # noqa: PLC0415

    monkeypatch.setenv("HUBKERNELS_SIGN_PASSWORD", "secret")
    assert cli("keygen", tmp_path / "key").code == 0
    assert b"ENCRYPTED" in (tmp_path / "key").read_bytes()
    signer = read_signer(tmp_path / "key", "secret")
    assert signer.made(b"text", signer.sign(b"text"))
    with pytest.raises(InputError, match="set HUBKERNELS_SIGN_PASSWORD"):
        read_signer(tmp_path / "key", None)
    with pytest.raises(InputError, match="is HUBKERNELS_SIGN_PASSWORD right"):
        read_signer(tmp_path / "key", "other")


@pytest.mark.parametrize("pem", ["", "-----BEGIN PRIVATE KEY-----\n-----END PRIVATE KEY-----\n"])
def test_what_is_no_key_is_refused(tmp_path: Path, pem: str) -> None:
    from hubkernels.hub.sign_key import read_signer  # noqa: PLC0415

    (tmp_path / "key").write_text(pem, encoding="utf-8")
    (tmp_path / "key").chmod(0o600)
    with pytest.raises(InputError, match="the private key cannot be read"):
        read_signer(tmp_path / "key", None)


def test_a_bundle_is_in_sigstore_s_form(keys: Path, variant: Path) -> None:
    from sigstore_models.bundle.v1 import Bundle  # noqa: PLC0415

    sign(variant, keys / "ours")
    found = Bundle.from_json((variant / "metadata.json.sigstore").read_bytes())
    assert found.media_type == "application/vnd.dev.sigstore.bundle.v0.3+json"
    assert found.verification_material.public_key is not None
    assert found.message_signature is not None


def test_the_stock_client_calls_a_bundle_without_a_certificate_invalid(keys: Path, variant: Path) -> None:
    """It knows workflows alone, and says so without a network; where it learns of keys, this test is to be turned."""
    verify = pytest.importorskip("kernels.verify")
    sign(variant, keys / "ours")
    assert isinstance(verify.verify_variant(variant), verify.VerificationResult.SignatureBundleInvalid)


def test_openssl_agrees_with_a_signature(keys: Path, variant: Path, tmp_path: Path) -> None:
    if shutil.which("openssl") is None:
        pytest.skip("openssl is not installed")
    sign(variant, keys / "ours")
    bundle = json.loads((variant / "metadata.json.sigstore").read_text())
    (tmp_path / "signature").write_bytes(base64.b64decode(bundle["messageSignature"]["signature"]))
    words = ("-verify", keys / "ours.pub", "-signature", tmp_path / "signature", variant / "metadata.json")
    assert run("openssl", "dgst", "-sha256", *words).stdout == "Verified OK\n"


@pytest.mark.parametrize("key", ["ours", "theirs"])
def test_a_signature_by_a_key_of_the_policy_is_good(keys: Path, variant: Path, key: str) -> None:
    (keys / "policy.toml").write_text(f'[[key]]\nname = "release"\nfile = "{key}.pub"\n', encoding="utf-8")
    sign(variant, keys / key)
    assert state(variant, keys / "policy.toml") == ("good", "the key release", None)


def test_a_variant_without_a_signature_is_unsigned(keys: Path, variant: Path) -> None:
    assert state(variant, keys / "policy.toml")[0] == "unsigned"


def test_a_signature_by_another_key_is_refused(keys: Path, variant: Path) -> None:
    sign(variant, keys / "theirs")
    status, signer, reason = state(variant, keys / "policy.toml")
    assert (status, signer) == ("other signer", None)
    assert "the policy does not have the key" in str(reason)


def test_a_signature_by_another_that_names_our_key_is_refused(keys: Path, variant: Path) -> None:
    sign(variant, keys / "ours")
    hint = json.loads((variant / "metadata.json.sigstore").read_text())["verificationMaterial"]
    sign(variant, keys / "theirs")
    edit(variant / "metadata.json.sigstore", lambda bundle: bundle.update(verificationMaterial=hint))
    status, _, reason = state(variant, keys / "policy.toml")
    assert (status, reason) == ("invalid", "it names the key release, which did not sign this")


def test_a_bundle_of_another_file_is_refused(keys: Path, variant: Path) -> None:
    sign(variant, keys / "ours", over=b"another file")
    assert state(variant, keys / "policy.toml")[0] == "other content"
    signed = (variant / "metadata.json.sigstore").read_bytes()
    sign(variant, keys / "ours")
    right = json.loads((variant / "metadata.json.sigstore").read_text())["messageSignature"]["messageDigest"]
    (variant / "metadata.json.sigstore").write_bytes(signed)
    edit(variant / "metadata.json.sigstore", lambda bundle: bundle["messageSignature"].update(messageDigest=right))
    assert state(variant, keys / "policy.toml")[0] == "invalid", "the digest in a bundle proves nothing"


def test_metadata_that_changed_after_they_were_signed_are_refused(keys: Path, variant: Path) -> None:
    sign(variant, keys / "ours")
    (variant / "metadata.json").write_bytes((variant / "metadata.json").read_bytes() + b" ")
    status, _, reason = state(variant, keys / "policy.toml")
    assert status == "other content"
    assert "changed after it was signed" in str(reason)


def test_files_that_changed_after_they_were_signed_are_named(keys: Path, variant: Path) -> None:
    sign(variant, keys / "ours")
    (variant / "data/table.bin").write_bytes(bytes(256))
    (variant / "more.py").write_text("", encoding="utf-8")
    (variant / "__init__.py").unlink()
    assert state(variant, keys / "policy.toml") == (
        "files changed",
        "the key release",
        "__init__.py is missing, data/table.bin was changed, more.py is not signed",
    )


def test_what_no_digest_covers_and_python_would_import_is_not_signed(keys: Path, variant: Path, tmp_path: Path) -> None:
    """A link to a folder, and bytecode without a source; what Python itself writes is passed over."""
    sign(variant, keys / "ours")
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere/__init__.py").write_text("", encoding="utf-8")
    (variant / "__pycache__").mkdir()
    (variant / "__pycache__/op.cpython-311.pyc").write_bytes(b"1")
    assert state(variant, keys / "policy.toml")[0] == "good"
    (variant / "layers").symlink_to(tmp_path / "elsewhere")
    (variant / "data/__pycache__").symlink_to(tmp_path / "elsewhere")
    (variant / "op.pyc").write_bytes(b"1")
    (variant / "nowhere.py").symlink_to(tmp_path / "nothing")
    os.mkfifo(variant / "pipe")
    (variant / "more.py").write_text("", encoding="utf-8")
    assert state(variant, keys / "policy.toml") == (
        "files changed",
        "the key release",
        "data/__pycache__ is not signed, layers is not signed, more.py is not signed, nowhere.py is not signed, "
        "op.pyc is not signed, pipe is not signed",
    )


def test_signed_metadata_without_a_digest_vouch_for_no_file(keys: Path, variant: Path) -> None:
    (variant / "metadata.json").write_text("{}", encoding="utf-8")
    sign(variant, keys / "ours")
    assert state(variant, keys / "policy.toml")[0] == "files changed"


@pytest.mark.parametrize("content", ["", "[]", "{}", "null", '{"mediaType": 1}', "[" * 100_000])
def test_what_is_no_bundle_is_unreadable(keys: Path, variant: Path, content: str) -> None:
    (variant / "metadata.json.sigstore").write_text(content, encoding="utf-8")
    assert state(variant, keys / "policy.toml")[0] == "unreadable"


@pytest.mark.parametrize("raw", ["", "AAAA"])
def test_a_certificate_that_is_none_proves_nothing(keys: Path, variant: Path, raw: str) -> None:
    """Asked of sigstore, with the trust root that it brings: without a network."""
    sign(variant, keys / "ours")
    material = {"certificate": {"rawBytes": raw}, "tlogEntries": []}
    edit(variant / "metadata.json.sigstore", lambda bundle: bundle.update(verificationMaterial=material))
    assert state(variant, keys / "policy.toml")[0] == "invalid"


def test_without_a_policy_those_sign_whom_the_client_trusts() -> None:
    verify = pytest.importorskip("kernels.verify")
    from hubkernels.hub.sign_policy import read_policy  # noqa: PLC0415

    (trusted,) = verify.DEFAULT_POLICIES
    found = read_policy()
    assert not found.keys
    assert [workflow.signer for workflow in found.workflows] == trusted.signer_uris
    assert {workflow.repository for workflow in found.workflows} == {f"https://github.com/{trusted.repo_id}"}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "the policy allows nobody"),
        ("x = ", "the policy is no TOML"),
        ("[[keys]]\nfile = 'x'", "unknown table keys\n.*\n.*did you mean key"),
        ("[key]\nfile = 'x'", r"key has to be written \[\[key\]\]"),
        ("[[key]]\nname = 'x'", "needs either file or pem"),
        ("[[key]]\nfile = 'x'\npem = 'y'", "needs either file or pem"),
        ("[[key]]\nfile = 1", "file in .* has to be a text"),
        ("[[key]]\npem = 'x'\n[[key]]\npem = 'y'", "2 keys are called key"),
        ("[[key]]\nname = 'a'\npem = 'x'\n[[key]]\nname = 'a'\nfile = 'y'", "2 keys are called a"),
        ("[[key]]\npem = 'x'", "the policy names what is no public key"),
        ("[[workflow]]\nrepository = 'o/r'", "needs repository and workflow"),
        ("[[workflow]]\nrepository = 'o/r'\nworkflow = 'a.yaml'", "the workflow a.yaml has no ref"),
        ("[[workflow]]\nrepository = 'o/r'\nworkflow = 'a.yaml@refs/heads/main'\nisuer = 'x'", "unknown key isuer"),
        (
            "[[workflow]]\nrepository = 'o/r'\nworkflow = 'a.yaml@refs/heads/main'\nissuer = 'https://ci.example.org'",
            "the issuer https://ci.example.org does not tell where o/r is(.|\n)*https://HOST/o/r",
        ),
    ],
)
def test_a_policy_that_is_not_understood_is_refused(tmp_path: Path, text: str, message: str) -> None:
    from hubkernels.hub.sign_policy import read_policy  # noqa: PLC0415

    (tmp_path / "policy.toml").write_text(text, encoding="utf-8")
    with pytest.raises(InputError, match=message):
        read_policy(tmp_path / "policy.toml")


def test_the_names_of_workflows_are_addresses(tmp_path: Path) -> None:
    from hubkernels.hub.sign_policy import read_policy  # noqa: PLC0415

    text = """\
[[workflow]]
repository = "org/kernels"
workflow = ["a.yaml@refs/heads/main", "https://github.com/org/shared/.github/workflows/b.yaml@refs/tags/v1"]
[sigstore]
trust-root = "root.json"
"""
    (tmp_path / "policy.toml").write_text(text, encoding="utf-8")
    found = read_policy(tmp_path / "policy.toml")
    assert [workflow.signer for workflow in found.workflows] == [
        "https://github.com/org/kernels/.github/workflows/a.yaml@refs/heads/main",
        "https://github.com/org/shared/.github/workflows/b.yaml@refs/tags/v1",
    ]
    assert found.trust_root == tmp_path / "root.json"


@pytest.mark.parametrize(
    ("issuer", "server"),
    [
        ("https://token.actions.githubusercontent.com", "https://github.com"),
        ("https://token.actions.githubusercontent.com/company", "https://github.com"),
        ("https://git.example.org/_services/token", "https://git.example.org"),
    ],
)
def test_the_issuer_tells_whose_repository_a_short_name_is(tmp_path: Path, issuer: str, server: str) -> None:
    from hubkernels.hub.sign_policy import read_policy  # noqa: PLC0415
    from hubkernels.hub.sign_trust import server_of  # noqa: PLC0415

    assert server_of(f"{issuer}.evil") == (server if issuer.endswith("/company") else None), (
        "a name is not its beginning"
    )
    text = f'[[workflow]]\nrepository = "org/kernels"\nworkflow = "a.yaml@refs/heads/main"\nissuer = "{issuer}"\n'
    (tmp_path / "policy.toml").write_text(text, encoding="utf-8")
    (found,) = read_policy(tmp_path / "policy.toml").workflows
    assert found.repository == f"{server}/org/kernels"
    assert found.signer == f"{server}/org/kernels/.github/workflows/a.yaml@refs/heads/main"


def test_keyless_signing_says_what_is_missing_outside_ci(monkeypatch: pytest.MonkeyPatch) -> None:
    from hubkernels.hub.sign_keyless import ambient_signer  # noqa: PLC0415

    for name in ("GITHUB_ACTIONS", "GITLAB_CI", "BUILDKITE", "CIRCLECI"):
        monkeypatch.delenv(name, raising=False)
    with pytest.raises(EnvironmentLacksError, match=r"no ambient OIDC credential(.|\n)*id-token: write"):
        ambient_signer()


def test_keyless_signing_says_what_a_job_lacks(monkeypatch: pytest.MonkeyPatch) -> None:
    """A job of GitHub without the permission to ask for a token."""
    from hubkernels.hub.sign_keyless import ambient_signer  # noqa: PLC0415

    monkeypatch.setenv("GITHUB_ACTIONS", "true")
    monkeypatch.delenv("ACTIONS_ID_TOKEN_REQUEST_TOKEN", raising=False)
    with pytest.raises(EnvironmentLacksError, match=r"ambient credential(.|\n)*id-token: write"):
        ambient_signer()


# Workflows, of a sigstore of one's own: the same reader, with another trust root.

REPOSITORY = "https://github.com/org/kernels"
WORKFLOW = f"{REPOSITORY}/.github/workflows/release.yaml@refs/heads/main"


@pytest.fixture
def own(tmp_path: Path) -> OwnSigstore:
    """Beside it a policy, which allows one workflow that it signs as."""
    found = OwnSigstore()
    (tmp_path / "root.json").write_text(json.dumps(found.trust_root()), encoding="utf-8")
    policy = """\
[[workflow]]
repository = "org/kernels"
workflow = ["other.yaml@refs/heads/main", "release.yaml@refs/heads/main"]
[sigstore]
trust-root = "root.json"
"""
    (tmp_path / "policy.toml").write_text(policy, encoding="utf-8")
    return found


def sign_as(own: OwnSigstore, variant: Path, *who: str) -> None:
    content = (variant / "metadata.json").read_bytes()
    (variant / "metadata.json.sigstore").write_bytes(own.sign(content, *who))


def test_a_signature_by_a_workflow_of_the_policy_is_good(own: OwnSigstore, variant: Path, tmp_path: Path) -> None:
    sign_as(own, variant, REPOSITORY, WORKFLOW)
    assert state(variant, tmp_path / "policy.toml") == ("good", WORKFLOW, None)
    (variant / "__init__.py").write_text("x = 2\n", encoding="utf-8")
    assert state(variant, tmp_path / "policy.toml")[0] == "files changed"


@pytest.mark.parametrize(
    "who",
    [
        (REPOSITORY, WORKFLOW.replace("main", "feature")),
        (REPOSITORY, WORKFLOW.replace("release", "test")),
        (REPOSITORY.replace("org", "fork"), WORKFLOW),
        (REPOSITORY, WORKFLOW, "https://issuer.example.org"),
    ],
)
def test_a_signature_by_another_workflow_is_refused(
    own: OwnSigstore, variant: Path, tmp_path: Path, who: tuple[str, ...]
) -> None:
    sign_as(own, variant, *who)
    status, signer, reason = state(variant, tmp_path / "policy.toml")
    assert (status, signer) == ("other signer", None)
    assert reason == f"the policy does not allow {who[1]}"


def test_a_workflow_s_signature_of_another_file_is_refused(own: OwnSigstore, variant: Path, tmp_path: Path) -> None:
    sign_as(own, variant, REPOSITORY, WORKFLOW)
    content = (variant / "metadata.json").read_bytes()
    (variant / "metadata.json").write_bytes(content + b" ")
    assert state(variant, tmp_path / "policy.toml")[0] == "other content"
    digest = base64.b64encode(hashlib.sha256(content + b" ").digest()).decode()
    edit(
        variant / "metadata.json.sigstore",
        lambda bundle: bundle["messageSignature"]["messageDigest"].update(digest=digest),
    )
    assert state(variant, tmp_path / "policy.toml")[0] == "invalid"


def test_a_certificate_of_another_authority_is_refused(own: OwnSigstore, variant: Path, tmp_path: Path) -> None:
    sign_as(OwnSigstore(), variant, REPOSITORY, WORKFLOW)
    assert own.authority
    assert state(variant, tmp_path / "policy.toml")[0] == "invalid"


def test_without_a_trust_root_sigstore_s_own_counts_and_prints_nothing(
    own: OwnSigstore, variant: Path, tmp_path: Path
) -> None:
    """In a fresh process: pytest takes what is logged."""
    sign_as(own, variant, REPOSITORY, WORKFLOW)
    command = (sys.executable, "-m", "hubkernels.cli", "verify-signature", variant, "--policy")
    ran = run(*command, tmp_path / "policy.toml")
    assert (ran.returncode, ran.stderr) == (0, "")
    assert ran.stdout == f"variant  good  my-table 1 cpu  {WORKFLOW}\n"
    text = (tmp_path / "policy.toml").read_text().partition("[sigstore]")[0]
    (tmp_path / "public.toml").write_text(text, encoding="utf-8")
    ran = run(*command, tmp_path / "public.toml")
    assert ran.returncode == 1
    assert ran.stderr.startswith("error: invalid: ")
    assert len(ran.stderr.splitlines()) == 3


def test_a_trust_root_that_is_none_is_named(own: OwnSigstore, variant: Path, tmp_path: Path) -> None:
    sign_as(own, variant, REPOSITORY, WORKFLOW)
    (tmp_path / "root.json").write_text("{}", encoding="utf-8")
    with pytest.raises(InputError, match=r"the trust root cannot be read(.|\n)*root.json"):
        state(variant, tmp_path / "policy.toml")


def test_the_stock_client_s_policy_takes_what_ours_takes(own: OwnSigstore, tmp_path: Path) -> None:
    verify = pytest.importorskip("kernels.verify")
    from sigstore.models import Bundle, TrustedRoot  # noqa: PLC0415
    from sigstore.verify import Verifier  # noqa: PLC0415

    policy = verify.GitHubWorkflowPolicy(repo_id="org/kernels", signer_uris=[WORKFLOW])
    verifier = Verifier(trusted_root=TrustedRoot.from_file(str(tmp_path / "root.json")))
    verifier.verify_artifact(b"text", Bundle.from_json(own.sign(b"text", REPOSITORY, WORKFLOW)), policy)


def test_a_job_knows_its_own_signature(own: OwnSigstore, tmp_path: Path) -> None:
    """By the claims of its credential, so that it need not sign once more; another branch's is another's.

    Whatever the environment says of the server: this issuer's tokens are of github.com alone.
    """
    from hubkernels.hub.sign_keyless import KeylessSigner  # noqa: PLC0415

    def job(workflow: str) -> KeylessSigner:
        claims = {"iss": "https://token.actions.githubusercontent.com", "job_workflow_ref": workflow}
        body = base64.urlsafe_b64encode(json.dumps(claims).encode()).decode().rstrip("=")
        return KeylessSigner(f"e30.{body}.none", tmp_path / "root.json", server="https://git.example.org")

    bundle = own.sign(b"text", REPOSITORY, WORKFLOW)
    ref = WORKFLOW.removeprefix("https://github.com/")
    assert job(ref).made(b"text", bundle)
    assert not job(ref).made(b"other", bundle)
    assert not job(ref).made(b"text", b"{}")
    assert not job(ref.replace("main", "feature")).made(b"text", bundle)


# Publishing.


@pytest.fixture
def publish(verb: Verb, project: Path) -> Callable[..., dict[str, Any]]:
    def call(hub: Served, *words: str | Path, **changes: str) -> dict[str, Any]:
        ran = verb(hub, "publish", "--project", project, "--json", "--no-read-back", *words, **changes)
        assert ran.code == 0, ran.err
        (result,) = json.loads(ran.out)
        found: dict[str, Any] = result
        return found

    return call


Publish = Callable[..., dict[str, Any]]


def touched(result: dict[str, Any]) -> dict[str, set[str]]:
    """What became of the signatures."""
    kinds = ("added", "changed", "deleted")
    return {kind: found for kind in kinds if (found := {path for path in result[kind] if path.endswith(".sigstore")})}


BOTH = {f"build/{tag}/metadata.json.sigstore" for tag in (CPU, CUDA)}


def test_metadata_and_their_signatures_are_one_commit_and_then_none(
    serve: Serve, publish: Publish, verb: Verb, keys: Path
) -> None:
    hub = serve()
    first = publish(hub, "--sign-key", keys / "ours")
    assert touched(first) == {"added": BOTH}
    again = publish(hub, "--sign-key", keys / "ours")
    assert (again["status"], again["commit"]) == ("no_changes", first["commit"])
    again = publish(hub, HUBKERNELS_SIGN_KEY=str(keys / "ours"))
    assert (again["status"], again["commit"]) == ("no_changes", first["commit"])
    assert publish(hub)["status"] == "no_changes", "who does not sign takes no signature away"
    pin = f"{REPO}@{first['commit']}"
    ran = verb(hub, "verify-signature", pin, "--policy", keys / "policy.toml", "--json")
    assert ran.code == 0, ran.err
    assert {(each["variant"], each["status"], each["signer"]) for each in json.loads(ran.out)} == {
        (tag, "good", "the key release") for tag in (CPU, CUDA)
    }
    other = verb(hub, "verify-signature", pin)
    assert other.code == 1
    assert "the policy does not have the key" in other.err


def test_an_audit_tells_who_signed_and_fails_for_what_was_forged(
    serve: Serve, publish: Publish, verb: Verb, keys: Path, tmp_path: Path
) -> None:
    hub = serve()
    commit = publish(hub, "--sign-key", keys / "ours")["commit"]
    lock, policy = tmp_path / "kernels.lock", keys / "policy.toml"
    assert verb(hub, "lock", f"{REPO}@{commit}", "--trust", "org", "--output", lock).code == 0
    assert verb(hub, "prefetch", "--lock", lock).code == 0
    ran = verb(hub, "audit", "--lock", lock, "--policy", policy)
    assert ran.code == 0, ran.err
    assert "; signed by the key release; " in ran.out
    ran = verb(hub, "audit", "--lock", lock)
    assert ran.code == 0, ran.err
    assert "other signer: the policy does not have the key" in ran.out
    (bundle,) = (tmp_path / "hf").glob(f"hub/kernels--*/snapshots/{commit}/{SIGNATURE}")
    (cuda,) = (tmp_path / "hf").glob(f"hub/kernels--*/snapshots/{commit}/{SIGNATURE.replace(CPU, CUDA)}")
    bundle.resolve().write_bytes(cuda.read_bytes())
    ran = verb(hub, "audit", "--lock", lock, "--policy", policy)
    assert ran.code == 1
    assert "error: other content: " in ran.err
    assert f"/build/{CPU}\n  hint: do not load it; ask who published it" in ran.err


def test_a_signed_kernel_is_loaded_back(serve: Serve, verb: Verb, project: Path, keys: Path) -> None:
    pytest.importorskip("torch", reason="what is published is loaded back")
    ran = verb(serve(), "publish", "--project", project, "--sign-key", keys / "ours")
    assert ran.code == 0, ran.err
    assert f"read back  {CPU}" in ran.err


def test_what_is_there_unsigned_or_signed_by_another_is_signed(serve: Serve, publish: Publish, keys: Path) -> None:
    hub = serve()
    assert touched(publish(hub)) == {}
    second = publish(hub, "--sign-key", keys / "theirs", "--variant", CPU)
    assert (second["added"], second["changed"]) == ([SIGNATURE], [])
    preview = publish(hub, "--sign-key", keys / "ours", "--dry-run")
    assert (preview["status"], touched(preview)) == (
        "would_upload",
        {"changed": {SIGNATURE}, "added": BOTH - {SIGNATURE}},
    )
    third = publish(hub, "--sign-key", keys / "ours")
    assert (touched(third), third["previous"]) == (touched(preview), second["commit"])


def test_a_signature_of_metadata_that_change_goes_or_is_made_anew(
    serve: Serve, publish: Publish, project: Path, keys: Path, cli: Cli
) -> None:
    hub = serve()
    publish(hub, "--sign-key", keys / "ours")
    source = project / "torch-ext/my_table/op.py"
    for key, expected in (("ours", {"changed": BOTH}), (None, {"deleted": BOTH})):
        source.write_text(source.read_text() + "# changed\n", encoding="utf-8")
        commit_all(project)
        assert cli("build", "--project", project).code == 0
        assert touched(publish(hub, *(("--sign-key", keys / key) if key else ()))) == expected


def test_the_same_content_at_a_later_commit_keeps_its_signature(
    serve: Serve, publish: Publish, project: Path, keys: Path, cli: Cli
) -> None:
    hub = serve()
    first = publish(hub, "--sign-key", keys / "ours")
    (project / "README.md").write_text("# more\n", encoding="utf-8")
    commit_all(project)
    shutil.rmtree(project / "build")
    assert cli("build", "--project", project).code == 0
    assert publish(hub, "--sign-key", keys / "ours")["commit"] == first["commit"]
    second = publish(hub, "--sign-key", keys / "theirs")
    assert touched(second) == {"changed": BOTH}
    assert f"build/{CPU}/metadata.json" in second["changed"], "what is signed is what was built now"


def test_the_command_line_refuses_two_ways_to_sign(serve: Serve, verb: Verb, project: Path, keys: Path) -> None:
    ran = verb(serve(), "publish", "--project", project, "--sign", "--sign-key", keys / "ours")
    assert ran.code == 2
    assert "leave one of them out" in ran.err


@pytest.mark.parametrize("kernel", ["org/my-table", "org/my-table@v1", "nowhere", "org/my-table@" + "0" * 39])
def test_what_can_move_is_not_verified(serve: Serve, verb: Verb, kernel: str) -> None:
    assert verb(serve(), "verify-signature", kernel).code == 2


def test_bytecode_that_was_published_is_refused(serve: Serve, publish: Publish, verb: Verb, keys: Path) -> None:
    """Python may run it instead of the source, and no digest covers it."""
    hub = serve()
    publish(hub, "--sign-key", keys / "ours")
    path = f"build/{CPU}/__pycache__/op.cpython-311.pyc"
    made = hub.api().upload_file(
        path_or_fileobj=b"1", path_in_repo=path, repo_id=REPO, repo_type="kernel", revision="v1"
    )
    for command in (("verify-signature", "--policy", keys / "policy.toml"), ("verify",)):
        ran = verb(hub, *command, f"{REPO}@{made.oid}")
        assert ran.code == 1
        assert f"nobody can vouch: {path}" in ran.err


def test_a_published_file_that_changed_is_named(serve: Serve, publish: Publish, verb: Verb, keys: Path) -> None:
    hub = serve()
    publish(hub, "--sign-key", keys / "ours")
    made = hub.api().upload_file(
        path_or_fileobj=b"changed = True\n",
        path_in_repo=f"build/{CPU}/op.py",
        repo_id=REPO,
        repo_type="kernel",
        revision="v1",
    )
    ran = verb(hub, "verify-signature", f"{REPO}@{made.oid}", "--policy", keys / "policy.toml")
    assert ran.code == 1
    assert "files changed: op.py was changed" in ran.err
    assert f"--> {CPU}\n" in ran.err
    assert f"{CUDA}  good           my-table 1 cuda  the key release\n" in ran.out
