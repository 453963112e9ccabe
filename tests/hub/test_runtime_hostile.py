"""Hubs that do not mean well, that are busy, or that know no git: what our own loader makes of their answers."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from hubkernels.errors import CheckFailedError, EnvironmentLacksError, HubkernelsError, HubRefusedError
from hubkernels.runtime.gitpack import Object, read_pack
from hubkernels.runtime.pktline import line, pack_of
from tests.hub.conftest import Serve
from tests.hub.own_loader import LOAD, TABLE, Change, Machine, artifact, machine
from tests.unit.test_gitpack import delta, entry, packed
from tests.unit.test_proof import FILE, FOLDER, blob, commit, tree

pytest.importorskip("torch", reason="kernels are loaded into torch")
pytestmark = pytest.mark.torch

KINDS = {"commit": 1, "tree": 2, "blob": 3}


@pytest.fixture
def hub(serve: Serve, tmp_path: Path) -> Machine:
    return machine(serve, tmp_path / "machine")


def answer_of(objects: list[Object]) -> bytes:
    return banded(packed(*(entry(KINDS[each.kind], each.content) for each in objects)))


def banded(pack: bytes) -> bytes:
    parts = (pack[start : start + 60000] for start in range(0, len(pack), 60000))
    return line(b"NAK\n") + b"".join(line(b"\x01" + part) for part in parts) + b"0000"


def on_git(make: Callable[[bytes], bytes]) -> Change:
    def change(path: str, status: int, body: bytes) -> tuple[int, bytes, dict[str, str]] | None:
        return (status, make(body), {}) if path.endswith("git-upload-pack") else None

    return change


def changed(kind: str, content: bytes) -> Callable[[bytes], bytes]:
    """The pack with another content for each object of a kind."""

    def make(body: bytes) -> bytes:
        found = read_pack(pack_of(body)).values()
        return answer_of([Object(kind, content) if each.kind == kind else each for each in found])

    return make


ALLOWED = {"HUBKERNELS_ALLOW_UNPROVED": "1"}
NO_GIT: Change = lambda path, _status, _body: (403, b"no", {}) if path.endswith("git-upload-pack") else None  # noqa: E731


def flipped(pack: bytes) -> bytes:
    """Another last byte, whatever it is."""
    return pack[:-1] + bytes([pack[-1] ^ 1])


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (changed("commit", b"tree " + b"a" * 40 + b"\n"), "another commit"),
        (changed("tree", b""), "lacks the tree"),
        (lambda body: body[: len(body) // 2], "damaged"),
        (lambda body: banded(pack_of(body)[:-9]), "damaged"),
        (
            lambda body: banded(pack_of(body)[:-1] + bytes([pack_of(body)[-1] ^ 1])),
            "damaged: the pack does not have the checksum",
        ),
        (lambda _: banded(packed(entry(3, b"x" * 1000, size=1 << 50))), "damaged: an object of"),
        (lambda _: banded(packed(entry(7, delta(1, 1 << 50, b""), b"a" * 20))), "damaged"),
        (lambda _: b"", "damaged: the answer has no pack"),
    ],
)
def test_an_answer_that_is_not_the_commit_is_refused(
    hub: Machine, monkeypatch: pytest.MonkeyPatch, make: Callable[[bytes], bytes], words: str
) -> None:
    pin = hub.publish(40)
    hub.change.append(on_git(make))
    with hub.here(monkeypatch) as load, pytest.raises(CheckFailedError, match=words):
        load(revision=pin)
    assert not hub.cached(pin).exists()
    hub.change.clear()
    with hub.here(monkeypatch) as load:
        assert load(revision=pin).answer() == 40, "what was refused left nothing behind"


def test_a_file_with_other_bytes_is_refused_wherever_it_comes_from(
    hub: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    pin = hub.publish(40)

    def resolve(path: str, status: int, body: bytes) -> tuple[int, bytes, dict[str, str]] | None:
        return (status, body[:-1] + b"#", {}) if "/resolve/" in path else None

    for others in ([], [on_git(changed("blob", b"import os\n"))], [NO_GIT]):
        hub.change[:] = [resolve, *others]
        with (
            hub.here(monkeypatch, **ALLOWED) as load,
            pytest.raises(CheckFailedError, match="not what the commit names") as error,
        ):
            load(revision=pin)
        name = "data/table.bin" if not others else "metadata.json"
        assert name in str(error.value)
        assert not hub.cached(pin, name).exists()
        shutil.rmtree(hub.home)


@pytest.mark.parametrize("size", [1, len(TABLE) - 1, len(TABLE) + 1, 10**14])
def test_a_large_file_is_no_longer_than_its_pointer_says(
    hub: Machine, monkeypatch: pytest.MonkeyPatch, size: int
) -> None:
    import hashlib  # noqa: PLC0415 - here alone

    pin = hub.publish(40)
    sha = hashlib.sha256(TABLE).hexdigest()

    def listing(path: str, status: int, body: bytes) -> tuple[int, bytes, dict[str, str]] | None:
        if "/tree/" not in path:
            return None
        found = json.loads(body)
        for each in found:
            if each["path"].endswith("table.bin"):
                each["lfs"] = {"oid": sha, "size": size, "pointerSize": 130}
        return status, json.dumps(found).encode(), {}

    hub.change[:] = [NO_GIT, listing]
    with (
        hub.here(monkeypatch, **ALLOWED) as load,
        pytest.raises(HubkernelsError, match=r"more than the|not what the"),
    ):
        load(revision=pin)


@pytest.mark.parametrize("name", [b"../../../../evil.py", b"..", b".git", b"a\\b"])
def test_a_commit_with_a_path_that_leads_elsewhere_is_refused(
    hub: Machine, monkeypatch: pytest.MonkeyPatch, name: bytes
) -> None:
    hub.publish(40)
    evil = blob(b"raise SystemExit\n")
    variant = tree((FILE, name, evil))
    build = tree((FOLDER, b"torch-cpu", variant))
    root = tree((FOLDER, b"build", build))
    top = commit(root)
    hub.change.append(lambda path, _, __: (200, answer, TYPE) if path.endswith("git-upload-pack") else None)
    answer = answer_of([top, root, build, variant, evil])
    with hub.here(monkeypatch) as load, pytest.raises(CheckFailedError, match="file that no kernel may have"):
        load(revision=top.oid)
    assert not list(hub.home.parent.rglob("evil.py"))


TYPE = {"content-type": "application/x-git-upload-pack-result"}


def test_a_kernel_that_the_client_loads_is_proved_as_any_other(hub: Machine) -> None:
    """The client asked for its files again, and took what came."""
    base = hub.publish(40, repo="org/base")
    files = artifact("top", 0, **{"kernel-depends": [{"repo-id": "org/base", "revision": base}]})
    pin = hub.publish(0, repo="org/top", files=files)

    def evil(path: str, status: int, body: bytes) -> tuple[int, bytes, dict[str, str]] | None:
        return (status, body.replace(b"+ 0", b"+ 9"), {}) if "/org/top/resolve/" in path else None

    hub.change.append(evil)
    ran = hub.load(LOAD.format(how='revision=sys.argv[2], backend="cpu"'), "org/top", pin)
    assert ran.out == f"0 {len(TABLE)}\n", ran.err
    assert [path for path in hub.asked if "/org/top" in path] == [
        "POST /kernels/org/top.git/git-upload-pack",
        f"GET /kernels/org/top/resolve/{pin}/build/torch-cpu/data/table.bin",
    ]
    hub.cached(pin, "more.py", "org/top").resolve().write_bytes(b"print('evil')\ndef answer():\n    return 0\n")
    ran = hub.load(LOAD.format(how='revision=sys.argv[2], backend="cpu"'), "org/top", pin)
    assert ran.out == f"0 {len(TABLE)}\n", ran.err
    loaded = "import kernels\n" + LOAD.format(how='revision=sys.argv[2], backend="cpu"')
    loaded += "print([(each.repo_info.repo_id, each.repo_info.revision) for each in kernels.get_loaded_kernels()])\n"
    assert hub.load(loaded, "org/top", pin).out.endswith(f"{[('org/base', base), ('org/top', pin)]}\n")


def test_a_commit_in_capitals_is_pinned(hub: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    """The Hub was asked which commit that is, and believed."""
    pin, other = hub.publish(40), hub.publish(41)
    hub.change.append(lambda path, *_: (200, json.dumps({"sha": other}).encode(), {}) if "/revision/" in path else None)
    with hub.here(monkeypatch) as load:
        assert load(revision=pin.upper()).answer() == 40
        assert load(revision=pin) is load(revision=pin.upper())
    assert not [path for path in hub.asked if "/revision/" in path]


def test_the_beginning_of_a_commit_names_none_that_begins_otherwise(
    hub: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    pin, other = hub.publish(40), hub.publish(41)
    hub.change.append(lambda path, *_: (200, json.dumps({"sha": pin}).encode(), {}) if "/revision/" in path else None)
    with hub.here(monkeypatch) as load:
        assert load(revision=pin[:7]).answer() == 40
        assert load(revision=pin[:12].upper()).answer() == 40
        assert load(revision="v1").answer() == 40, "a branch is what the Hub says"
        with pytest.raises(HubRefusedError, match=f"the Hub says that {other[:7]} is {pin}"):
            load(revision=other[:7])


def test_a_hub_without_git_is_asked_by_its_api_where_that_is_allowed(
    hub: Machine, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    pin = hub.publish(40)
    hub.change.append(NO_GIT)
    with hub.here(monkeypatch, **ALLOWED) as load:
        assert load(revision=pin).answer() == 40
    assert "what the Hub lists is believed" in caplog.text
    names = {"overview", "git-upload-pack", "build", "metadata.json", "__init__.py", "table.bin", "more.py"}
    assert sorted(path.split("/")[-1] for path in hub.asked) == sorted(names)
    hub.log.clear()
    with hub.here(monkeypatch, HF_HUB_OFFLINE="1") as load:
        assert load(revision=pin).answer() == 40
    with hub.here(monkeypatch, **ALLOWED) as load:
        assert load(revision=pin).answer() == 40
    assert hub.asked == []
    table = hub.cached(pin, "data/table.bin").resolve()
    table.write_bytes(b"x" * len(TABLE))
    with hub.here(monkeypatch, HF_HUB_OFFLINE="1") as load, pytest.raises(CheckFailedError, match="table.bin is not"):
        load(revision=pin)


PAGE = {"content-type": "text/html"}


@pytest.mark.parametrize(
    "answer", [(403, b"no", {}), (404, b"", {}), (405, b"", {}), (501, b"", {}), (200, b"<html>", PAGE)]
)
def test_whoever_refuses_git_does_not_switch_the_proof_off(
    hub: Machine, monkeypatch: pytest.MonkeyPatch, answer: tuple[int, bytes, dict[str, str]]
) -> None:
    """One refused request, and whatever the Hub listed was loaded under the pin."""
    pin = hub.publish(40)
    hub.change.append(lambda path, *_: answer if path.endswith("git-upload-pack") else None)
    with hub.here(monkeypatch) as load, pytest.raises(HubRefusedError, match="nothing proves it") as caught:
        load(revision=pin)
    assert "HUBKERNELS_ALLOW_UNPROVED=1" in str(caught.value)
    assert not any("/tree/" in path or "/resolve/" in path for path in hub.asked)
    with hub.here(monkeypatch) as load:
        assert load(version=1).answer() == 40, "who names no commit believes the Hub"
    with hub.here(monkeypatch) as load, pytest.raises(HubRefusedError, match="nothing proves it"):
        load(revision=pin)
    hub.change.clear()
    with hub.here(monkeypatch) as load:
        assert load(revision=pin).answer() == 40
    assert list(hub.home.rglob(f"{pin}.objects")), "and the kernel that was believed is proved"


def test_a_damaged_proof_is_fetched_again_and_none_is_needed_offline(
    hub: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    pin = hub.publish(40)
    with hub.here(monkeypatch) as load:
        load(revision=pin)
    (proof,) = hub.home.rglob(f"{pin}.objects")
    whole = proof.read_bytes()
    for damaged in (whole[:-5], whole.replace(b"torch-cpu", b"torch-gpu"), b"", whole[:40] + b"#" + whole[41:]):
        proof.write_bytes(damaged)
        with hub.here(monkeypatch, HF_HUB_OFFLINE="1") as load:
            assert load(revision=pin).answer() == 40, "the names of the blobs and the digest are enough"
        hub.log.clear()
        with hub.here(monkeypatch) as load:
            assert load(revision=pin).answer() == 40
        assert len(hub.asked) == 1
        assert proof.read_bytes() == whole


def test_a_page_instead_of_a_pack_is_no_pack(hub: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    pin = hub.publish(40)
    hub.change.append(lambda path, *_: (200, b"<html>", PAGE) if path.endswith("git-upload-pack") else None)
    with hub.here(monkeypatch, **ALLOWED) as load:
        assert load(revision=pin).answer() == 40


@pytest.mark.parametrize("link", ["http://127.0.0.1:9/next", "http://h:abc/", "file:///etc/passwd", "{self}"])
def test_a_listing_does_not_lead_elsewhere_nor_on_for_ever(
    hub: Machine, monkeypatch: pytest.MonkeyPatch, link: str
) -> None:
    pin = hub.publish(40)
    following = link.replace("{self}", f"{hub.hub.url}/api/kernels/org/my-kernel/tree/{pin}/build")
    headers = {"link": f'<{following}>; rel="next"'}
    monkeypatch.setattr("hubkernels.runtime.fetch._ENTRIES_MOST", 100)
    hub.change[:] = [NO_GIT, lambda path, status, body: (status, body, headers) if "/tree/" in path else None]
    with (
        hub.here(monkeypatch, **ALLOWED) as load,
        pytest.raises(HubRefusedError, match="leads to another|more than 100"),
    ):
        load(revision=pin)


@pytest.mark.parametrize(
    "where",
    [
        *("file:///etc/passwd", "ftp://127.0.0.1/x", "{self}"),
        *("http://h:abc/", "http://h:99999999/", "http://[::1/", "/\u00e9"),
    ],
)
def test_a_redirection_leads_to_no_other_kind_of_place(
    hub: Machine, monkeypatch: pytest.MonkeyPatch, where: str
) -> None:
    pin = hub.publish(40)

    def away(path: str, _: int, body: bytes) -> tuple[int, bytes, dict[str, str]] | None:
        target = where.replace("{self}", f"{hub.hub.url}{path}")
        return (302, body, {"location": target}) if "/resolve/" in path else None

    hub.change.append(away)
    with (
        hub.here(monkeypatch) as load,
        pytest.raises(HubRefusedError, match="not followed|redirections|cannot be asked"),
    ):
        load(revision=pin)


def test_what_another_place_refuses_is_not_about_the_token_which_it_never_got(
    hub: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    pin = hub.publish(40)
    elsewhere = hub.hub.url.replace("127.0.0.1", "localhost")

    def away(path: str, _: int, body: bytes) -> tuple[int, bytes, dict[str, str]] | None:
        if path == "/elsewhere":
            return 401, b"", {}
        return (302, body, {"location": f"{elsewhere}/elsewhere"}) if "/resolve/" in path else None

    hub.change.append(away)
    with hub.here(monkeypatch) as load, pytest.raises(HubRefusedError, match=r"refused \(401\)") as caught:
        load(revision=pin)
    assert "What is not public takes a token" in str(caught.value.problems[0].hint)


@pytest.mark.parametrize("body", [b"", b"[]", b"null", b"{", b'{"branches": 5}', b'[{"path": 1}]', b"[" * 100_000])
def test_nonsense_is_refused_and_no_bug(hub: Machine, monkeypatch: pytest.MonkeyPatch, body: bytes) -> None:
    pin = hub.publish(40)
    hub.change[:] = [NO_GIT, lambda path, *_: (200, body, {}) if path.startswith("/api/kernels") else None]
    with hub.here(monkeypatch, **ALLOWED) as load:
        for how in ({"revision": pin}, {"version": 1}, {"revision": "main"}):
            with pytest.raises(HubkernelsError):
                load(**how)
    hub.change[:] = [lambda path, *_: (200, body, {}) if "/organizations/" in path else None]
    with hub.here(monkeypatch) as load, pytest.raises(ValueError, match="trusted"):
        load(revision=pin)


def test_a_busy_hub_is_asked_again_when_it_says(hub: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    pin = hub.publish(40)
    seen: dict[str, int] = {}

    def busy(path: str, _: int, __: bytes) -> tuple[int, bytes, dict[str, str]] | None:
        seen[path] = seen.get(path, 0) + 1
        status = {1: 429, 2: 503}.get(seen[path])
        return (status, b"", {"retry-after": "0"}) if status else None

    hub.change.append(busy)
    with hub.here(monkeypatch) as load:
        assert load(revision=pin).answer() == 40
    assert set(seen.values()) == {3}
    hub.change[:] = [lambda *_: (500, b"", {"retry-after": "0"})]
    with hub.here(monkeypatch) as load, pytest.raises(HubRefusedError, match=r"the Hub refused \(500\)"):
        load(version=1, trust_remote_code=True)


def test_an_answer_that_is_cut_off_is_asked_for_again(hub: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    pin = hub.publish(40)
    seen: set[str] = set()

    def cut(path: str, status: int, body: bytes) -> tuple[int, bytes, dict[str, str]] | None:
        if path in seen or not body:
            return None
        seen.add(path)
        return status, body[:-1], {"content-length": str(len(body))}

    hub.change.append(cut)
    monkeypatch.setattr("time.sleep", lambda _: None)
    with hub.here(monkeypatch) as load:
        assert load(revision=pin).answer() == 40
    assert len(hub.asked) == 6


@pytest.mark.parametrize("commit", ["../../../x", "", "a" * 39, None, 5, "A" * 40])
def test_a_version_that_is_no_commit_is_none(hub: Machine, monkeypatch: pytest.MonkeyPatch, commit: object) -> None:
    hub.publish(40)
    refs = json.dumps({"branches": [{"name": "v1", "targetCommit": commit}]}).encode()
    hub.change.append(lambda path, *_: (200, refs, {}) if path.endswith("/refs") else None)
    with hub.here(monkeypatch) as load, pytest.raises(ValueError, match="Version 1 not found"):
        load(version=1)


def test_where_nobody_answers_it_is_told(hub: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    with (
        hub.here(monkeypatch, HF_ENDPOINT="http://127.0.0.1:9") as load,
        pytest.raises(EnvironmentLacksError, match="the Hub cannot be reached"),
    ):
        load(revision="a" * 40, trust_remote_code=True)
