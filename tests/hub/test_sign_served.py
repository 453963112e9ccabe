"""`publish --sign` in a fresh process: sigstore's own client, HTTP, certificates of minutes, and a log with proofs."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import Ran
from tests.hub.conftest import CPU, CUDA, OWNER, REPO, Serve, Served, Verb

pytest.importorskip("sigstore", reason="an extra: it is what signs")

from tests.hub.served_sigstore import FULCIO, HOST, REKOR, STAMPS, TOKEN, ServedSigstore, serve_sigstore

Start = Callable[..., ServedSigstore]
Publish = Callable[..., Ran]

SERVICES = {"rekor 1": (1, False), "rekor 1 and time stamps": (1, True), "rekor 2 and time stamps": (2, True)}
"""The second is what the public sigstore has."""


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    """Start a sigstore that ends with the test."""
    with ExitStack() as stack:

        def call(rekor: int = 1, *, stamped: bool = False) -> ServedSigstore:
            if stamped and shutil.which("openssl") is None:
                pytest.skip("openssl is not installed: it gives the time stamps")
            return stack.enter_context(serve_sigstore(tmp_path, rekor, stamped=stamped))

        yield call


@pytest.fixture(params=SERVICES)
def own(start: Start, request: pytest.FixtureRequest) -> ServedSigstore:
    """Of each kind."""
    rekor, stamped = SERVICES[request.param]
    return start(rekor, stamped=stamped)


@pytest.fixture
def publish(verb: Verb, project: Path) -> Publish:
    """As a job of GitHub whose sigstore is this one."""

    def call(hub: Served, own: ServedSigstore, *words: str | Path, **changes: str) -> Ran:
        options = ("--project", project, "--sign", "--sign-config", own.config(), "--json", "--no-read-back", *words)
        return verb(hub, "publish", *options, **own.variables, **changes)

    return call


def published(ran: Ran) -> dict[str, Any]:
    assert ran.code == 0, ran.err
    (found,) = json.loads(ran.out)
    assert isinstance(found, dict)
    return found


def is_on(hub: Served) -> bool:
    """Whether anything of it is there, be it an empty repository."""
    return hub.ask("GET", f"/api/kernels/{REPO}", token=OWNER).status != 404


def test_what_a_job_signs_is_verified(
    serve: Serve, own: ServedSigstore, publish: Publish, verb: Verb, tmp_path: Path
) -> None:
    """By an audit under a policy, by `verify-signature`, and by the same job, which signs nothing twice."""
    hub = serve()
    done = published(publish(hub, own))
    commit = done["commit"]
    assert {path for path in done["added"] if path.endswith(".sigstore")} == {
        f"build/{tag}/metadata.json.sigstore" for tag in (CPU, CUDA)
    }
    assert len(own.entries) == 2
    assert own.asked.count(f"POST {STAMPS}") == (2 if own.stamped else 0)
    ran = verb(hub, "verify-signature", f"{REPO}@{commit}", "--policy", own.policy(), "--json")
    assert ran.code == 0, ran.err
    assert {(each["status"], each["signer"]) for each in json.loads(ran.out)} == {("good", own.signer)}
    lock = tmp_path / "kernels.lock"
    assert verb(hub, "lock", f"{REPO}@{commit}", "--trust", "org", "--output", lock).code == 0
    assert verb(hub, "prefetch", "--lock", lock).code == 0
    ran = verb(hub, "audit", "--lock", lock, "--policy", own.policy())
    assert ran.code == 0, ran.err
    assert f"; signed by {own.signer}; " in ran.out
    again = published(publish(hub, own))
    assert (again["status"], again["commit"], len(own.entries)) == ("no_changes", commit, 2)


GITLAB = "gitlab.example.org/org/kernels//.gitlab-ci.yml@refs/heads/"
CIRCLE = ("https://circleci.com/api/v2/projects/p/pipeline-definitions/", "oidc.circleci.com/")
ELSEWHERE = {
    "gitlab": ({"sub": "project_path:org/kernels", "ci_config_ref_uri": f"{GITLAB}main"}, f"https://{GITLAB}main"),
    "buildkite": ({"sub": "x", "organization_slug": "o", "pipeline_slug": "p"}, "https://buildkite.com/o/p"),
    "circleci": (
        {"sub": "x", f"{CIRCLE[1]}project-id": "p", f"{CIRCLE[1]}pipeline-definition-id": "d"},
        f"{CIRCLE[0]}d",
    ),
    "a name of its own": ({"sub": "https://ci.example.org/jobs/1"}, "https://ci.example.org/jobs/1"),
    "an address of mail": (
        {"iss": "https://accounts.google.com", "sub": "7", "email": "ci@example.org"},
        "ci@example.org",
    ),
}
"""Jobs that are not GitHub's: what their credential says, and whose certificate they get for it, as Fulcio names it."""


@pytest.mark.parametrize(
    ("server", "tokens", "repository"),
    [
        ("https://git.example.org", "https://git.example.org/_services/token", "org/kernels"),
        ("https://org.example.com", "https://token.actions.org.example.com", "https://org.example.com/org/kernels"),
    ],
    ids=["a server of one's own", "a cloud of one's own"],
)
def test_a_job_of_a_company_s_own_github_signs_as_itself(  # noqa: PLR0913, PLR0917 - fixtures and cases
    serve: Serve, start: Start, publish: Publish, verb: Verb, server: str, tokens: str, repository: str
) -> None:
    """It was taken for a job of github.com, and its certificate for another workflow's."""
    own, hub = start(), serve()
    own.server, own.tokens = server, tokens
    commit = published(publish(hub, own))["commit"]
    assert len(own.entries) == 2
    policy = own.policy()
    policy.write_text(policy.read_text().replace(f'"{own.repository}"', f'"{repository}"'), encoding="utf-8")
    ran = verb(hub, "verify-signature", f"{REPO}@{commit}", "--policy", policy, "--json")
    assert ran.code == 0, ran.err
    assert {(each["status"], each["signer"]) for each in json.loads(ran.out)} == {("good", own.signer)}
    again = published(publish(hub, own))
    assert (again["status"], again["commit"], len(own.entries)) == ("no_changes", commit, 2)


@pytest.mark.parametrize("where", ELSEWHERE)
def test_a_job_of_another_ci_signs_nothing_twice_either(
    serve: Serve, start: Start, publish: Publish, where: str
) -> None:
    """The name of its certificate was not known, so each `publish` made a commit and an entry of the log."""
    hub, own = serve(), start()
    claims, own.named = ELSEWHERE[where]
    own.other = {"iss": "https://ci.example.org", **claims}
    first = published(publish(hub, own))
    again = published(publish(hub, own))
    assert (again["status"], again["commit"], len(own.entries)) == ("no_changes", first["commit"], 2)
    if where == "gitlab":
        own.other["ci_config_ref_uri"], own.named = f"{GITLAB}feature", f"https://{GITLAB}feature"
        assert len(published(publish(hub, own))["changed"]) == 2
        assert len(own.entries) == 4


def test_a_certificate_of_a_name_that_the_credential_does_not_tell_is_refused(
    serve: Serve, start: Start, publish: Publish
) -> None:
    """It could be anybody's, and whether it had signed before would never be known."""
    hub, own = serve(), start()
    own.other, own.named = {"iss": "https://ci.example.org", "sub": "job"}, "https://ci.example.org/somebody"
    ran = publish(hub, own)
    assert ran.code == 1, ran.err
    assert "it is of https://ci.example.org/somebody, and by its credential this job is job" in ran.err
    assert "--sign-key FILE" in ran.err
    assert not is_on(hub)


def test_the_stock_client_s_own_code_takes_it(
    serve: Serve, own: ServedSigstore, publish: Publish, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whole variants, digest and all. It knows the public keys alone, so its verifier is the one thing put in."""
    verify = pytest.importorskip("kernels.verify")
    from sigstore.models import ClientTrustConfig  # noqa: PLC0415
    from sigstore.verify import Verifier  # noqa: PLC0415

    hub = serve()
    commit = published(publish(hub, own))["commit"]
    folder = Path(hub.api().snapshot_download(REPO, repo_type="kernel", revision=commit, cache_dir=tmp_path / "stock"))
    root = ClientTrustConfig.from_json(own.config().read_text()).trusted_root
    monkeypatch.setattr(verify.Verifier, "production", lambda: Verifier(trusted_root=root))
    for tag in (CPU, CUDA):
        mine = verify.GitHubWorkflowPolicy(repo_id=own.repository, signer_uris=[own.signer])
        assert isinstance(verify.verify_variant(folder / "build" / tag, [mine]), verify.VerificationResult.Success)
        other = verify.GitHubWorkflowPolicy(repo_id=own.repository, signer_uris=[f"{own.signer}x"])
        found = verify.verify_variant(folder / "build" / tag, [other])
        assert isinstance(found, verify.VerificationResult.SignatureVerificationFailure)


def test_what_is_signed_is_loaded_back(serve: Serve, start: Start, project: Path, verb: Verb) -> None:
    """And by `release`, with the configuration from the environment."""
    pytest.importorskip("torch", reason="what is published is loaded back")
    hub, own = serve(), start()
    named = {"HUBKERNELS_SIGN_CONFIG": str(own.config()), **own.variables}
    ran = verb(hub, "release", "--project", project, "--sign", "--json", **named)
    assert ran.code == 0, ran.err
    (done,) = json.loads(ran.out)["published"]
    assert done["read_back"][0]["variant"] == CPU
    assert len(own.entries) == 2


def faulty(own: ServedSigstore, what: str) -> None:
    """A sigstore where one thing is wrong."""
    if what == "authority is broken":
        own.faults[FULCIO] = (500, b'{"code": 13, "message": "error signing", "details": []}')
    elif what == "authority refuses":
        own.faults[FULCIO] = (400, b'{"code": 3, "message": "error processing the identity token", "details": []}')
    elif what == "log refuses":
        own.faults[REKOR[own.rekor]] = (400, b'{"code": 400, "message": "entry not allowed"}')
    elif what == "log is behind a broken gateway":
        own.faults[REKOR[own.rekor]] = (502, b"<html>Bad Gateway</html>")
    elif what == "token is over":
        own.over = True
    elif what == "token is not given":
        own.faults[TOKEN] = (403, b'{"message": "no"}')
    elif what == "no time stamp":
        own.faults[STAMPS] = (503, b"")
    elif what == "another certificate":
        own.certified = own.signer.removeprefix(f"{HOST}/").replace("release.yml", "other.yml")
    elif what == "another authority":
        own.own = type(own.own)()


FAULTS = {
    "authority is broken": (3, "did not sign: 500 error signing", FULCIO, "run it again later"),
    "authority refuses": (3, "did not sign: 400 error processing the identity token", FULCIO, "take the issuer"),
    "log refuses": (3, "did not sign: 400 entry not allowed", REKOR[1], "--sign-config names another"),
    "log is behind a broken gateway": (3, "did not sign: 502 Bad Gateway", REKOR[1], "run it again later"),
    "token is over": (3, "credential cannot be used: Signature has expired", "", "start the job again"),
    "token is not given": (3, "credential is not given: GitHub: OIDC token request failed (code=403", "", "id-token"),
    "another certificate": (
        1,
        "it is of another workflow: https://github.com/org/kernels/.git",
        "sigstore.json",
        "Ask who",
    ),
    "another authority": (1, "what sigstore gave does not verify: ", "sigstore.json", "Ask who"),
}


def test_a_log_without_a_time_is_told_before_it_is_published(serve: Serve, start: Start, publish: Publish) -> None:
    """sigstore's client only warns that nobody stamped it, and what it makes then nobody takes."""
    hub, own = serve(), start(2, stamped=True)
    faulty(own, "no time stamp")
    ran = publish(hub, own)
    assert ran.code == 1
    assert f"Unable to use {own.url}{STAMPS}" in ran.err
    assert "what sigstore gave does not verify: bundle must contain an inclusion promise or signed time" in ran.err
    assert not is_on(hub)


@pytest.mark.parametrize("what", FAULTS)
def test_what_goes_wrong_is_told_and_nothing_is_published(
    serve: Serve, start: Start, publish: Publish, what: str
) -> None:
    """What, where, what next; not even an empty repository is made."""
    hub, own = serve(), start()
    own.config()
    faulty(own, what)
    code, told, where, hint = FAULTS[what]
    ran = publish(hub, own)
    assert ran.code == code, ran.err
    assert told in ran.err
    assert where in ran.err
    assert hint in ran.err
    assert "Traceback" not in ran.err
    assert "of-the-job" not in ran.err
    assert not is_on(hub)


@pytest.mark.parametrize(
    ("content", "told"),
    [
        (None, (3, "No such file")),
        ("{}", (2, "the sigstore configuration cannot be read")),
        ("x", (2, "the sigstore configuration cannot be read")),
    ],
)
def test_a_configuration_that_is_none_is_named(
    serve: Serve, publish: Publish, start: Start, content: str | None, told: tuple[int, str]
) -> None:
    own = start()
    file = own.folder / "company.json"
    if content is not None:
        file.write_text(content, encoding="utf-8")
    ran = publish(serve(), own, "--sign-config", file)
    assert ran.code == told[0], ran.err
    assert told[1] in ran.err
    assert str(file) in ran.err
    assert not own.asked


def test_a_configuration_is_of_keyless_signing(serve: Serve, project: Path, verb: Verb, tmp_path: Path) -> None:
    ran = verb(serve(), "publish", "--project", project, "--sign-config", tmp_path / "sigstore.json")
    assert ran.code == 2
    assert "--sign-config is of --sign" in ran.err
