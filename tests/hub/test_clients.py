"""What `huggingface_hub` does with a Hub, it does with this one."""

from __future__ import annotations

import json
import os
import stat
from pathlib import Path
from typing import Any

import pytest
from dulwich.objects import ShaFile
from huggingface_hub import (
    CommitOperationAdd,
    CommitOperationCopy,
    CommitOperationDelete,
    hf_hub_download,
    snapshot_download,
)
from huggingface_hub.errors import (
    BadRequestError,
    HfHubHTTPError,
    RemoteEntryNotFoundError,
    RepositoryNotFoundError,
    RevisionNotFoundError,
)

from hubkernels.hub.local import describe
from hubkernels.hub.local.accounts import Accounts, parse_tokens
from hubkernels.hub.local.asked import Limits
from hubkernels.hub.local.objects import ObjectStore
from hubkernels.hub.local.serve import serve as serve_hub
from tests.hub.conftest import CI, GRANTS, LATE, OTHER, READER, Client, Serve, Served, run

REPO = "org/my-kernel"
JSON = {"Content_Type": "application/json"}


def commit(hub: Served, *operations: CommitOperationAdd | CommitOperationDelete, **how: Any) -> str:  # noqa: ANN401
    """Commit to v1; tells the head."""
    settings = {"commit_message": "Publish", "repo_type": "kernel", "revision": "v1", **how}
    done = hub.api(CI).create_commit(REPO, list(operations), **settings)
    return str(done.oid)


def add(path: str, content: bytes) -> CommitOperationAdd:
    return CommitOperationAdd(path, content)


def paths(hub: Served, revision: str = "v1") -> list[str]:
    return [
        entry.path for entry in hub.api().list_repo_tree(REPO, revision=revision, recursive=True, repo_type="kernel")
    ]


def test_a_new_repository_has_a_branch_and_a_commit(serve: Serve) -> None:
    hub = serve()
    assert str(hub.api().create_repo(REPO, repo_type="kernel")) == f"{hub.url}/kernels/{REPO}"
    refs = hub.api().list_repo_refs(REPO, repo_type="kernel", include_pull_requests=True)
    assert [(ref.name, ref.ref) for ref in refs.branches] == [("main", "refs/heads/main")]
    assert (refs.tags, refs.pull_requests) == ([], [])
    info = hub.api().repo_info(REPO, repo_type="kernel")
    assert (info.id, info.sha, info.private) == (REPO, refs.branches[0].target_commit, False)
    hub.check()


def test_a_repository_that_is_there_is_not_made_again(hub: Served) -> None:
    with pytest.raises(HfHubHTTPError, match="409"):
        hub.api().create_repo(REPO, repo_type="kernel")
    url = hub.api(CI).create_repo(REPO, repo_type="kernel", exist_ok=True)
    assert url.repo_id == REPO


@pytest.mark.parametrize("spelling", ["org/my_kernel", "Org/My-Kernel", "ORG/my_kernel"])
def test_every_spelling_of_a_name_is_one_repository(hub: Served, spelling: str) -> None:
    assert hub.api().create_repo(spelling, repo_type="kernel", exist_ok=True).repo_id == REPO
    info = hub.api().repo_info(spelling, repo_type="kernel")
    assert info.id == REPO
    assert run("git", "ls-remote", "--exit-code", f"{hub.url}/kernels/{spelling}").returncode == 0


def test_kernels_and_models_are_apart(hub: Served) -> None:
    with pytest.raises(RepositoryNotFoundError):
        hub.api().model_info(REPO)
    assert str(hub.api().create_repo(REPO)) == f"{hub.url}/{REPO}"
    assert [file.rfilename for file in hub.api().model_info(REPO).siblings or ()] == [".gitattributes"]
    assert [model.id for model in hub.api().list_models(author="org")] == [REPO]
    with pytest.raises(HfHubHTTPError, match="this Hub keeps kernels and models, and no dataset"):
        hub.api().create_repo("org/data", repo_type="dataset")
    hub.check(f"models/{REPO}")


def test_a_commit_is_what_was_committed(hub: Served, tmp_path: Path) -> None:
    big = os.urandom(3_000_000)
    head = commit(hub, add("build/v/a.so", big), add("build/v/é b#?%.py", b"x = 1\n"), add("empty", b""))
    assert paths(hub) == [".gitattributes", "build", "build/v", "build/v/a.so", "build/v/é b#?%.py", "empty"]
    for path, content in (("build/v/a.so", big), ("build/v/é b#?%.py", b"x = 1\n"), ("empty", b"")):
        found = hf_hub_download(
            REPO, path, revision="v1", repo_type="kernel", endpoint=hub.url, cache_dir=tmp_path / "cache"
        )
        assert Path(found).read_bytes() == content
        assert head in found
    commits = hub.api().list_repo_commits(REPO, revision="v1", repo_type="kernel")
    assert [(each.title, each.authors) for each in commits] == [("Publish", ["ci"]), ("initial commit", ["owner"])]
    assert commits[0].commit_id == head
    assert [each.commit_id for each in hub.api().list_repo_commits(REPO, repo_type="kernel")] == [commits[1].commit_id]
    hub.check()


def test_a_message_of_several_lines_is_title_and_text(hub: Served) -> None:
    commit(hub, add("a", b"1"), commit_message="Title ü", commit_description="First.\n\nSecond.")
    found = hub.api().list_repo_commits(REPO, revision="v1", repo_type="kernel")[0]
    assert (found.title, found.message) == ("Title ü", "First.\n\nSecond.")


def test_a_snapshot_is_the_whole_revision(hub: Served, tmp_path: Path) -> None:
    files = {f"build/v{number % 3}/f{number}.py": str(number).encode() for number in range(40)}
    head = commit(hub, *(add(path, content) for path, content in files.items()))
    folder = Path(
        snapshot_download(REPO, revision=head, repo_type="kernel", endpoint=hub.url, cache_dir=tmp_path / "cache")
    )
    found = {path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    assert found == {**files, ".gitattributes": b"* -text\n"}


def test_a_commit_that_changes_nothing_is_none(hub: Served) -> None:
    head = commit(hub, add("a", b"1"), add("b/c", b"2"))
    assert commit(hub, add("a", b"1")) == head
    assert commit(hub, add("b/c", b"2"), add("a", b"1"), parent_commit=head) == head
    again = [{"key": "header", "value": {"summary": "again"}}, {"key": "file", "value": {"path": "a", "content": "1"}}]
    assert send(hub, *again) == head


def send(hub: Served, *lines: object, query: str = "") -> str:
    """A commit as it goes over the wire: the client itself leaves out what is there already."""
    body = "\n".join(map(json.dumps, lines)).encode()
    answer = hub.ask("POST", f"/api/kernels/{REPO}/commit/v1{query}", body, CI)
    assert answer.status == 200, answer.body
    return str(answer.json()["commitOid"])


def test_files_and_folders_are_deleted(hub: Served) -> None:
    commit(hub, add("build/a/x", b"1"), add("build/a/y", b"2"), add("build/b/z", b"3"))
    commit(hub, CommitOperationDelete("build/a/x"), CommitOperationDelete("build/b/"))
    assert paths(hub) == [".gitattributes", "build", "build/a", "build/a/y"]
    commit(hub, CommitOperationDelete("build/"), CommitOperationDelete(".gitattributes"))
    assert paths(hub) == []
    hub.check()
    for gone in ("build/a/y", "build/"):
        with pytest.raises(RemoteEntryNotFoundError, match="to delete"):
            commit(hub, CommitOperationDelete(gone))


def test_a_file_takes_the_place_of_a_folder_only_where_that_is_deleted(hub: Served) -> None:
    commit(hub, add("a/b", b"1"), add("c", b"2"))
    with pytest.raises(BadRequestError, match="a is a folder and cannot become a file"):
        commit(hub, add("a", b"1"))
    with pytest.raises(BadRequestError, match="c is a file and cannot become a folder"):
        commit(hub, add("c/d", b"1"))
    commit(hub, CommitOperationDelete("a/"), CommitOperationDelete("c"), add("a", b"1"), add("c/d", b"2"))
    assert paths(hub) == [".gitattributes", "a", "c", "c/d"]
    hub.check()


def test_a_copy_is_made_within_the_repository(hub: Served) -> None:
    commit(hub, add("a", b"content"))
    copies = [CommitOperationCopy("a", "b/c", src_revision="v1")]
    hub.api().create_commit(REPO, copies, commit_message="Copy", revision="v1", repo_type="kernel")
    assert "b/c" in paths(hub)


def test_the_second_of_two_commits_on_one_parent_is_refused(hub: Served) -> None:
    first = commit(hub, add("a", b"1"))
    second = commit(hub, add("a", b"2"), parent_commit=first)
    with pytest.raises(HfHubHTTPError, match=f"412.*\n.*\n.*the head any more, which is {second}"):
        commit(hub, add("a", b"3"), parent_commit=first)
    commit(hub, add("a", b"3"), parent_commit=second[:7])
    with pytest.raises(RevisionNotFoundError):
        commit(hub, add("a", b"4"), parent_commit="0" * 40)


def test_a_commit_goes_to_a_branch(hub: Served) -> None:
    head = commit(hub, add("a", b"1"))
    hub.api().create_tag(REPO, tag="t", revision="v1", repo_type="kernel")
    for revision in ("v2", "t", head, "refs/tags/t"):
        with pytest.raises(RevisionNotFoundError):
            commit(hub, add("a", b"2"), revision=revision)


def test_a_pull_request_is_a_ref_of_its_own(hub: Served) -> None:
    before = commit(hub, add("a", b"1"))
    api = hub.api(OTHER)
    done = api.create_commit(
        REPO, [add("a", b"2")], commit_message="Better", revision="v1", repo_type="kernel", create_pr=True
    )
    assert (done.pr_num, done.pr_revision, done.pr_url) == (1, "refs/pr/1", f"{hub.url}/kernels/{REPO}/discussions/1")
    refs = hub.api().list_repo_refs(REPO, repo_type="kernel", include_pull_requests=True)
    assert [(ref.ref, ref.target_commit) for ref in refs.pull_requests or ()] == [("refs/pr/1", done.oid)]
    assert hub.api().repo_info(REPO, revision="v1", repo_type="kernel").sha == before
    commit(hub, add("b", b"3"), revision="refs/pr/1", parent_commit=done.oid)
    assert paths(hub, "refs/pr/1") == [".gitattributes", "a", "b"]
    again = send(hub, {"key": "header", "value": {"summary": "x", "parentCommit": before}}, query="?create_pr=1")
    assert hub.api().repo_info(REPO, revision="refs/pr/2", repo_type="kernel").sha == again
    hub.check()


def test_branches_and_tags_come_and_go(hub: Served) -> None:
    api = hub.api(CI)
    head = commit(hub, add("a", b"1"))
    api.create_branch(REPO, branch="feature/x", revision=head, repo_type="kernel")
    api.create_branch(REPO, branch="feature/x", exist_ok=True, repo_type="kernel")
    api.create_tag(REPO, tag="r/1", revision="v1", tag_message="First", repo_type="kernel")
    api.create_tag(REPO, tag="light", revision="feature/x", repo_type="kernel")
    refs = api.list_repo_refs(REPO, repo_type="kernel")
    assert [ref.name for ref in refs.branches] == ["feature/x", "main", "v1"]
    assert {(ref.name, ref.target_commit) for ref in refs.tags} == {("r/1", head), ("light", head)}
    assert api.repo_info(REPO, revision="r/1", repo_type="kernel").sha == head
    assert api.file_exists(REPO, "a", revision="feature/x", repo_type="kernel")
    for name in ("feature", "feature/x/y", "r/1"):
        answer = hub.ask("POST", f"/api/kernels/{REPO}/branch/{name.replace('/', '%2F')}", b"{}", CI)
        assert answer.status == (409 if "feature" in name else 200)
    api.delete_branch(REPO, branch="feature/x", repo_type="kernel")
    api.create_branch(REPO, branch="feature", repo_type="kernel")
    api.delete_tag(REPO, tag="r/1", repo_type="kernel")
    with pytest.raises(RevisionNotFoundError):
        api.delete_tag(REPO, tag="r/1", repo_type="kernel")
    with pytest.raises(RevisionNotFoundError):
        api.create_branch(REPO, branch="x", revision="none", repo_type="kernel")
    with pytest.raises(HfHubHTTPError, match="403.*main"):
        api.delete_branch(REPO, branch="main", repo_type="kernel")
    hub.check("kernels/org/my-kernel", "--no-dangling")


def test_git_sees_what_was_written_and_the_hub_what_git_did(hub: Served) -> None:
    """As after `git gc` of an operator: refs and objects are packed then."""
    head = commit(hub, add("a", b"1" * 5000))
    hub.api().create_tag(REPO, tag="t", revision="v1", tag_message="x", repo_type="kernel")
    assert run("git", "-C", hub.git(), "gc", "-q", "--prune=now").returncode == 0
    assert not [path for path in (hub.git() / "objects").iterdir() if len(path.name) == 2]
    assert paths(hub) == [".gitattributes", "a"]
    assert hub.ask("GET", f"/kernels/{REPO}/resolve/t/a").body == b"1" * 5000
    hub.api().delete_tag(REPO, tag="t", repo_type="kernel")
    after = commit(hub, add("b", b"2"), parent_commit=head)
    hub.check("kernels/org/my-kernel", "--no-dangling")
    log = run("git", "-C", hub.git(), "log", "--format=%H %an %s", "v1").stdout.splitlines()
    assert [line.split()[0] for line in log][:2] == [after, head]
    assert "refs/tags/t" not in run("git", "-C", hub.git(), "for-each-ref").stdout


def test_paths_tell_of_files_and_folders(hub: Served) -> None:
    first = commit(hub, add("a/b", b"12"), add("c", b"345"), commit_message="First")
    second = commit(hub, add("c", b"3456"), commit_message="Second")
    found = hub.api().get_paths_info(
        REPO, ["a", "a/b", "c", "none", "a//b", "../x"], revision="v1", expand=True, repo_type="kernel"
    )
    told = {each.path: each.last_commit.oid for each in found if each.last_commit}
    assert told == {"a": first, "a/b": first, "c": second}
    assert {each.path: each.size for each in found if hasattr(each, "size")} == {"a/b": 2, "c": 4}


def test_last_commits_are_those_of_git(hub: Served) -> None:
    """Also where a file becomes a folder, two folders are one, and a file is what it was again."""
    gone = CommitOperationDelete
    commit(hub, add("a/b/c", b"1"), add("x/y", b"1"), add("z/b/c", b"1"), add("w", b"1"))
    commit(hub, gone("x/", is_folder=True), add("x", b"1"), add("w", b"2"))
    commit(hub, gone("x"), add("x/y", b"1"), add("a/b/d", b"2"), add("w", b"1"))
    commit(hub, add("z/b/d", b"2"), add("n", b"3"))
    wanted = ["", "a", "a/b", "a/b/c", "a/b/d", "x", "x/y", "z/b", "z/b/c", "w", "n"]
    asked = hub.ask("POST", f"/api/kernels/{REPO}/paths-info/v1", {"paths": wanted, "expand": True}, **JSON).json()
    told = {each["path"]: each["lastCommit"]["id"] for each in asked}
    for path in wanted:
        log = run("git", "-C", hub.git(), "log", "-1", "--format=%H", "v1", "--", path or ".").stdout.strip()
        assert told[path] == log, path


def counted(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The commits, trees and tags that are read from now on."""
    read: list[str] = []
    real = ObjectStore.__getitem__

    def reads(store: ObjectStore, oid: str) -> ShaFile:
        read.append(oid)
        return real(store, oid)

    monkeypatch.setattr(ObjectStore, "__getitem__", reads)
    return read


def test_last_commits_are_looked_for_in_few_reads(hub: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each path was looked for from the top in each commit: 50 paths and 1000 commits kept a thread for minutes."""
    commit(hub, *(add(f"d/e/f{number}", b"1") for number in range(50)))
    for number in range(10):
        commit(hub, add("other", str(number).encode()))
    read = counted(monkeypatch)
    where, wanted = f"/api/kernels/{REPO}/paths-info/v1", [f"d/e/f{number}" for number in range(50)]
    first = f"/api/kernels/{REPO}/tree/v1/d%2Fe?expand=1"
    assert all(each["lastCommit"] for each in hub.ask("GET", first).json())
    assert len(read) < 12 * 6
    refused = hub.ask("POST", where, {"paths": [*wanted, "d"], "expand": True}, **JSON)
    assert (refused.status, "50 paths at most" in refused.json()["error"]) == (413, True)
    assert len(hub.ask("POST", where, {"paths": [*wanted, "d"]}, **JSON).json()) == 51
    monkeypatch.setattr(describe, "COMMITS_MOST", 10)
    told = hub.ask("POST", where, {"paths": ["d", "other"], "expand": True}, **JSON).json()
    assert {each["path"]: "lastCommit" in each for each in told} == {"d": False, "other": True}
    paths = hub.api().get_paths_info(REPO, ["d"], revision="v1", expand=True, repo_type="kernel")
    assert [each.last_commit for each in paths] == [None], "which the client takes"


def test_listings_come_in_pages(serve: Serve) -> None:
    hub = serve(limits=Limits(page=7))
    hub.api().create_repo(REPO, repo_type="kernel")
    hub.api().create_branch(REPO, branch="v1", repo_type="kernel")
    wanted = [f"d/f{number:03}" for number in range(50)]
    for start in range(0, 50, 5):
        commit(hub, *(add(path, path.encode()) for path in wanted[start : start + 5]))
    assert paths(hub) == [".gitattributes", "d", *wanted]
    inside = hub.api().list_repo_tree(REPO, "d", revision="v1", expand=True, repo_type="kernel")
    assert [entry.path for entry in inside if entry.last_commit] == wanted
    assert len(hub.api().list_repo_commits(REPO, revision="v1", repo_type="kernel")) == 11


def test_a_page_after_a_commit_is_of_the_revision_that_was_asked_for(serve: Serve) -> None:
    hub = serve(limits=Limits(page=2))
    hub.api().create_repo(REPO, repo_type="kernel")
    hub.api().create_branch(REPO, branch="v1", repo_type="kernel")
    commit(hub, add("a", b"1"), add("b", b"2"), add("c", b"3"))
    entries = iter(hub.api().list_repo_tree(REPO, revision="v1", repo_type="kernel"))
    found = [next(entries).path]
    commit(hub, CommitOperationDelete("b"), add("aa", b"4"))
    assert [*found, *(entry.path for entry in entries)] == [".gitattributes", "a", "b", "c"]


@pytest.mark.parametrize("lfs", ["never", "always"])
def test_a_folder_is_uploaded(serve: Serve, client: Client, tmp_path: Path, lfs: str) -> None:
    """With Xet on, the client makes several commits of it."""
    hub = serve(lfs=lfs, limits=Limits(multipart=1 << 20, part=300_000))
    folder = tmp_path / "folder"
    (folder / "build/v").mkdir(parents=True)
    for number in range(300):
        (folder / f"build/v/f{number}.py").write_text(f"x = {number}\n")
    (folder / "build/v/a.so").write_bytes(os.urandom(2_500_000))
    (folder / "build/v/b.so").write_bytes(os.urandom(500_000))
    (folder / "README.md").write_text("---\nlicense: apache-2.0\n---\n# Card\n")
    program = """
import sys
from huggingface_hub import HfApi, snapshot_download
api = HfApi()
api.create_repo("org/my-kernel", repo_type="kernel")
for _ in range(2):
    api.upload_folder(repo_id="org/my-kernel", folder_path=sys.argv[1], repo_type="kernel", ignore_patterns="*.pyc")
print(len(api.list_repo_commits("org/my-kernel", repo_type="kernel")))
print(snapshot_download("org/my-kernel", repo_type="kernel"))
"""
    variables = {} if lfs == "never" else {"HF_HUB_DISABLE_XET": "1"}
    commits, copy = client(hub, program, folder, **variables).split()
    assert int(commits) == (2 if lfs == "always" else 3)
    found = {path.relative_to(copy).as_posix(): path.read_bytes() for path in Path(copy).rglob("*") if path.is_file()}
    wanted = {path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    assert {name: content for name, content in found.items() if name != ".gitattributes"} == wanted
    stored = [path for path in (hub.git() / "lfs").rglob("*") if path.is_file()]
    assert len(stored) == (0 if lfs == "never" else 2)
    assert not [path for path in hub.running.hub.scratch.rglob("*") if path.is_file()]
    hub.check()


def test_the_hub_s_own_command_uploads_and_downloads(hub: Served, client: Client, tmp_path: Path) -> None:
    (tmp_path / "folder/build").mkdir(parents=True)
    (tmp_path / "folder/build/a.py").write_text("x = 1\n")
    main = "import sys; from huggingface_hub.cli.hf import main; sys.argv[0] = 'hf'; main()"
    kind = ("--repo-type", "kernel")
    client(hub, main, "upload", REPO, tmp_path / "folder", ".", *kind, "--revision", "v1", token=CI)
    client(hub, main, "download", REPO, *kind, "--revision", "v1", "--local-dir", tmp_path / "copy", token="")
    assert (tmp_path / "copy/build/a.py").read_text() == "x = 1\n"


def test_a_large_file_is_told_of_as_one(serve: Serve, client: Client) -> None:
    hub = serve(lfs="always")
    program = """
from huggingface_hub import CommitOperationAdd as Add, CommitOperationCopy as Copy, HfApi
api = HfApi()
api.create_repo("org/my-kernel", repo_type="kernel")
api.create_commit("org/my-kernel", [Add("a.so", b"content"), Add("b.py", b"1")], commit_message="1", repo_type="kernel")
api.create_commit("org/my-kernel", [Copy("a.so", "c.so")], commit_message="2", repo_type="kernel")
for file in api.list_repo_tree("org/my-kernel", repo_type="kernel"):
    print(file.path, file.size, file.lfs.sha256 if file.lfs else "-")
api.create_commit("org/my-kernel", [Add("a.so", b"content")], commit_message="3", repo_type="kernel")
print(len(api.list_repo_commits("org/my-kernel", repo_type="kernel")))
"""
    sha256 = "ed7002b439e9ac845f22357d822bac1444730fbdb6016d3ec9432297b9ec9f73"
    lines = client(hub, program, HF_HUB_DISABLE_XET="1").splitlines()
    assert lines[1:] == [f"a.so 7 {sha256}", "b.py 1 -", f"c.so 7 {sha256}", "3"]
    assert run("git", "-C", hub.git(), "show", "main:a.so").stdout.splitlines()[1] == f"oid sha256:{sha256}"


def test_a_model_is_kept_as_a_kernel_is(serve: Serve, client: Client, tmp_path: Path) -> None:
    hub = serve(lfs="always")
    program = """
import sys
from huggingface_hub import CommitOperationAdd as Add, HfApi, hf_hub_download
api = HfApi()
api.create_repo("org/my-model", private=True)
api.create_commit("org/my-model", [Add("a.safetensors", b"content"), Add("b", b"1")], commit_message="1")
print(open(hf_hub_download("org/my-model", "a.safetensors"), "rb").read(), api.model_info("org/my-model").private)
api.update_repo_settings("org/my-model", private=False)
"""
    assert client(hub, program, HF_HUB_DISABLE_XET="1").splitlines()[-1] == "b'content' True"
    assert run("git", "clone", "-q", f"{hub.url}/org/my-model", tmp_path / "copy").returncode == 0
    assert (tmp_path / "copy/a.safetensors").read_text().startswith("version https://git-lfs.github.com")
    hub.check("models/org/my-model")


def test_a_repository_is_cloned_and_fetched(hub: Served, tmp_path: Path) -> None:
    head = commit(hub, add("build/a.so", os.urandom(100_000)), add("NOTES.md", b"# Card\r\n"))
    for suffix in ("", ".git"):
        url, copy = f"{hub.url}/kernels/org/my_kernel{suffix}", tmp_path / f"copy{suffix}"
        done = run("git", "clone", "-q", "-b", "v1", url, copy)
        assert (done.returncode, done.stderr) == (0, "")
        assert run("git", "-C", copy, "rev-parse", "HEAD").stdout.strip() == head
        assert (copy / "NOTES.md").read_bytes() == b"# Card\r\n"
    later = commit(hub, add("NOTES.md", b"# Another\n"))
    assert run("git", "-C", copy, "pull", "-q").stderr == ""
    assert run("git", "-C", copy, "rev-parse", "HEAD").stdout.strip() == later
    assert run("git", "clone", "-q", "--depth", "1", f"{hub.url}/kernels/{REPO}", tmp_path / "shallow").returncode == 0
    assert run("git", "clone", "-q", hub.git(), tmp_path / "from-the-folder").returncode == 0
    (copy / "new").write_text("x")
    run("git", "-C", copy, "add", "new")
    run("git", "-C", copy, "-c", "user.name=x", "-c", "user.email=x@y", "commit", "-qm", "x")
    pushed = run("git", "-C", copy, "push")
    assert pushed.returncode != 0
    assert "403" in pushed.stderr


def test_a_private_repository_is_cloned_with_a_token(hub: Served, tmp_path: Path) -> None:
    hub.api().create_repo("org/secret", repo_type="kernel", private=True)
    plain = f"{hub.url}/kernels/org/secret"
    assert run("git", "clone", "-q", plain, tmp_path / "a").returncode != 0
    for token, worked in ((READER, True), (OTHER, False), (LATE, False)):
        url = plain.replace("://", f"://user:{token}@")
        assert (run("git", "clone", "-q", url, tmp_path / token).returncode == 0) is worked


def test_a_repository_is_deleted_and_made_anew(hub: Served) -> None:
    commit(hub, add("a", b"1"))
    hub.api().delete_repo(REPO, repo_type="kernel")
    with pytest.raises(RepositoryNotFoundError):
        hub.api().repo_info(REPO, repo_type="kernel")
    with pytest.raises(RepositoryNotFoundError):
        hub.api().delete_repo(REPO, repo_type="kernel")
    hub.api().delete_repo(REPO, repo_type="kernel", missing_ok=True)
    assert not hub.git().exists()
    hub.api().create_repo("org/my_kernel", repo_type="kernel")
    assert len(hub.api().list_repo_commits(REPO, repo_type="kernel")) == 1


def test_what_is_there_is_there_after_a_restart(serve: Serve, tmp_path: Path) -> None:

    with serve_hub(tmp_path / "hub", Accounts(parse_tokens(GRANTS, "test"))) as running:
        hub = Served(running)
        hub.api().create_repo("org/secret", repo_type="kernel", private=True)
        hub.api().create_repo(REPO, repo_type="kernel")
        hub.api().create_branch(REPO, branch="v1", repo_type="kernel")
        head = commit(hub, add("a", b"1"))
    again = serve()
    assert again.api(token=None).repo_info(REPO, revision="v1", repo_type="kernel").sha == head
    with pytest.raises(RepositoryNotFoundError):
        again.api(token=None).repo_info("org/secret", repo_type="kernel")
    assert again.api(READER).repo_info("org/secret", repo_type="kernel").private


def test_programs_stay_programs(hub: Served) -> None:
    """What git says is executable, a commit of new content keeps."""
    commit(hub, add("run.sh", b"#!/bin/sh\n"))
    tree = run("git", "-C", hub.git(), "ls-tree", "v1", "run.sh").stdout.split()
    made = f"100755 blob {tree[2]}\trun.sh\n"
    new = run("bash", "-c", f"printf '{made}' | git -C {hub.git()} mktree").stdout.strip()
    words = ("-c", "user.name=x", "-c", "user.email=x@y", "commit-tree", "-p", "v1", "-m", "x", new)
    made = run("git", "-C", hub.git(), *words).stdout.strip()
    run("git", "-C", hub.git(), "update-ref", "refs/heads/v1", made)
    commit(hub, add("run.sh", b"#!/bin/bash\n"))
    assert run("git", "-C", hub.git(), "ls-tree", "v1", "run.sh").stdout.startswith("100755")
    assert stat.S_IMODE(hub.git().stat().st_mode) == 0o755
