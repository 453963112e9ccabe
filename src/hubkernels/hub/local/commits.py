"""Commits: which files they may leave out, and the lines that they are made of."""

from __future__ import annotations

from contextlib import closing
from typing import Any

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from hubkernels.hub.local.answers import Json, Refusal
from hubkernels.hub.local.asked import Asked, Limits, Site, base_url, flag, json_body, objects, part
from hubkernels.hub.local.change import Change, Operation
from hubkernels.hub.local.content import Pointer, check_oid, read_pointer
from hubkernels.hub.local.describe import pointer_of
from hubkernels.hub.local.lfs_rules import Ignored, Large
from hubkernels.hub.local.names import check_path
from hubkernels.hub.local.ndjson import LONG, Lines, decoded
from hubkernels.hub.local.objects import Staging
from hubkernels.hub.local.repository import Repository

_REPO = "/api/{kind:kind}/{owner}/{name}"
_ATTRIBUTES_LINE, _ATTRIBUTES_BYTES = 2048, 1 << 20
_ATTRIBUTES = ".gitattributes"


class Commits:
    def __init__(self, site: Site) -> None:
        self.site = site

    def routes(self) -> list[Route]:
        return [
            Route(f"{_REPO}/preupload/{{revision}}", self.preupload, methods=["POST"]),
            Route(f"{_REPO}/commit/{{revision}}", self.commit, methods=["POST"]),
        ]

    async def preupload(self, request: Request) -> Response:
        asked = await json_body(request)
        return await run_in_threadpool(self._preupload, request, asked)

    def _preupload(self, request: Request, asked: dict[str, Any]) -> Response:
        git, files = self._writable(request).stored.git, objects(asked, "files")
        if len(files) > self.site.limits.files:
            raise Refusal(413, f"{self.site.limits.files} files at most are told of at once: ask several times")
        commit = git.commit_of(part(request, "revision"))
        ignore = asked.get("gitIgnore")
        ignored = Ignored(_text(git, commit, ".gitignore") if ignore is None else str(ignore))
        large = Large(_text(git, commit, _ATTRIBUTES) if self.site.hub.lfs else "")
        told = []
        for file in files:
            path, size = check_path(file.get("path")), file.get("size")
            if not isinstance(size, int):
                raise Refusal(400, f"the size of {path} is missing")
            told.append(
                {
                    "path": path,
                    "uploadMode": "lfs" if self.site.hub.lfs and large.has(path, size) else "regular",
                    "shouldIgnore": ignored.has(path),
                    "oid": _there(git, commit, path),
                }
            )
        return Json({"files": told, "commitOid": commit})

    def _writable(self, request: Request) -> Asked:
        """A pull request takes no role: whoever may read and has a token may propose."""
        if not flag(request.query_params, "create_pr"):
            return self.site.repository(request, "write")
        self.site.signed_in(request)
        return self.site.repository(request)

    async def commit(self, request: Request) -> Response:
        """The lines are taken as they arrive, so that memory holds none of the files."""
        found = await run_in_threadpool(self._writable, request)
        proposes = flag(request.query_params, "create_pr")
        incoming = Incoming(found.stored.git, part(request, "revision"), self.site.limits, proposes=proposes)
        with closing(incoming):
            async for piece in self.site.incoming(request):
                await run_in_threadpool(incoming.feed, piece)
            return await run_in_threadpool(self._finish, request, found, incoming)

    def _finish(self, request: Request, found: Asked, incoming: Incoming) -> Response:
        oid, number = incoming.finish(found.account.user if found.account else "anonymous")
        page = f"{base_url(request)}/{found.stored.repo.page}"
        told: dict[str, Any] = {"success": True, "commitOid": oid, "commitUrl": f"{page}/commit/{oid}"}
        if number is not None:
            told["pullRequestUrl"] = f"{page}/discussions/{number}"
        return Json(told)


class Incoming:
    """A commit while its lines arrive: files become objects that nobody sees, the rest a list of operations."""

    def __init__(self, git: Repository, revision: str, limits: Limits, *, proposes: bool) -> None:
        self.git = git
        self.revision = revision
        self.limits = limits
        self.proposes = proposes
        self.lines = Lines(git.objects.scratch, limits.file)
        self.staging = Staging(git.objects)
        self.header: dict[str, Any] | None = None
        self.operations: list[Operation] = []

    def close(self) -> None:
        self.lines.close()
        self.staging.close()

    def feed(self, piece: bytes) -> None:
        for value in self.lines.feed(piece):
            self._line(value)
            self.lines.forget_files()

    def finish(self, author: str) -> tuple[str, int | None]:
        """Make the commit; tells its id, and the number of a new pull request. Raises Refusal."""
        for value in self.lines.finish():
            self._line(value)
        if self.header is None:
            raise Refusal(400, "a commit begins with a line whose key is header")
        summary, description = (str(self.header.get(key) or "") for key in ("summary", "description"))
        change = Change(summary.strip(), description.strip(), author, self._parent(), self.operations)
        if self.proposes:
            return self.git.propose(self.revision, change, self.staging)
        return self.git.commit(self.revision, change, self.staging), None

    def _line(self, line: Any) -> None:  # noqa: ANN401 - any JSON
        key, value = (line.get("key"), line.get("value")) if isinstance(line, dict) else (None, None)
        if not isinstance(value, dict):
            raise Refusal(400, "a line of a commit is an object with a key and a value")
        if self.lines.has_long() and not (key == "file" and self.lines.file(value.get("content"))):
            raise Refusal(400, f"of a commit, the content of a file alone may have more than {LONG} bytes of text")
        if key == "header":
            self._begin(value)
        elif self.header is None:
            raise Refusal(400, "a commit begins with a line whose key is header")
        elif len(self.operations) >= self.limits.operations:
            raise Refusal(413, f"a commit has {self.limits.operations} operations at most: make several commits")
        else:
            self.operations.append(self._operation(str(key), value))

    def _begin(self, value: dict[str, Any]) -> None:
        """Refuse at once what could not be committed at the end."""
        self.header = value
        if not str(value.get("summary") or "").strip():
            raise Refusal(400, "a commit has a summary")
        if "\0" in f"{value.get('summary')}{value.get('description')}":
            raise Refusal(400, "the message of a commit has no NUL character")
        if self.proposes:
            self.git.commit_of(self.revision)
        else:
            self.git.check_parent(self.revision, self._parent())

    def _parent(self) -> str | None:
        parent = (self.header or {}).get("parentCommit")
        return str(parent).lower() if parent else None

    def _operation(self, key: str, value: dict[str, Any]) -> Operation:
        path = check_path(str(value.get("path", "")).rstrip("/") if key == "deletedFolder" else value.get("path"))
        if key == "file":
            return Operation(path, self._file(path, value))
        if key == "lfsFile":
            return Operation(path, self._large(path, value))
        if key in {"deletedFile", "deletedFolder"}:
            return Operation(path, None, folder=key == "deletedFolder")
        raise Refusal(400, f"{key[:80]!r} is no operation of a commit")

    def _file(self, path: str, value: dict[str, Any]) -> str:
        text, encoding = value.get("content"), str(value.get("encoding", "utf-8"))
        long = self.lines.file(text)
        if not isinstance(text, str) or encoding not in {"base64", "utf-8"} or (long and encoding != "base64"):
            raise Refusal(400, f"{path}: its content is a text, in base64 or, when short, as it is")
        if long:
            if path.rpartition("/")[2] == _ATTRIBUTES:
                raise Refusal(400, f"{path} is longer than git reads")
            return self.staging.add_file(long)
        content = decoded(text) if encoding == "base64" else _encoded(path, text)
        if len(content) > self.limits.file:
            raise Refusal(413, f"{path} has more than {self.limits.file} bytes, which is what this Hub takes of a file")
        if path.rpartition("/")[2] == _ATTRIBUTES:
            _check_attributes(path, content)
        pointer = read_pointer(content)
        if pointer and not self.git.content.has(pointer):
            what = f"{path} is the pointer of a large file, whose content {pointer.oid} was not uploaded"
            raise Refusal(400, f"{what} to this repository: send the file itself, which `git lfs pull` brings")
        return self.staging.add("blob", content)

    def _large(self, path: str, value: dict[str, Any]) -> str:
        """A pointer to what was uploaded before; a copy within the repository names no size."""
        oid = check_oid(value.get("oid"))
        size = self.git.content.size(oid)
        if size is None:
            raise Refusal(400, f"{path}: its content {oid} was not uploaded to this repository")
        if value.get("algo", "sha256") != "sha256" or value.get("size", size) != size:
            raise Refusal(400, f"{path}: its content {oid} has {size} bytes, not {value.get('size')!r}")
        return self.staging.add("blob", Pointer(oid, size).text())


def _encoded(path: str, text: str) -> bytes:
    try:
        return text.encode()
    except UnicodeEncodeError as error:
        raise Refusal(400, f"{path}: its content has half a character, which UTF-8 has not: send base64") from error


def _check_attributes(path: str, content: bytes) -> None:
    """`git fsck --strict` complains of others."""
    if len(content) > _ATTRIBUTES_BYTES or any(len(line) >= _ATTRIBUTES_LINE for line in content.split(b"\n")):
        raise Refusal(400, f"{path} has lines that are longer than git reads, which is {_ATTRIBUTES_LINE} bytes")


def _text(git: Repository, commit: str, path: str) -> str:
    blob = git.blob(commit, path)
    return blob.content().decode("utf-8", "replace") if blob and blob.size <= _ATTRIBUTES_BYTES else ""


def _there(git: Repository, commit: str, path: str) -> str | None:
    """What the client compares its file with: the hash of git, or of a large file its own."""
    blob = git.blob(commit, path)
    if blob is None:
        return None
    pointer = pointer_of(git, blob.oid, blob.size)
    if pointer is None:
        return blob.oid
    return pointer.oid if git.content.has(pointer) else None  # or a client would not send it again
