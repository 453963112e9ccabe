"""`git clone` and `git fetch` over HTTP. What is written is written through commits of the API alone."""

from __future__ import annotations

import gzip
import logging
import sys
import tempfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from io import BytesIO
from traceback import clear_frames
from typing import IO, cast

from dulwich.errors import ChecksumMismatch, FileFormatException, GitProtocolError, ObjectMissing, WrongObjectException
from dulwich.object_store import DiskObjectStore
from dulwich.objects import ObjectID
from dulwich.protocol import ReceivableProtocol
from dulwich.repo import InvalidWorktreeConfiguration, UnsupportedExtension, UnsupportedVersion
from dulwich.server import BackendRepo, DictBackend
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import Route

from hubkernels.hub.local.answers import Refusal
from hubkernels.hub.local.asked import Site, body, repo_of
from hubkernels.hub.local.git_wants import Handler, WithWants, ordered, reachable
from hubkernels.hub.local.hub import Stored
from hubkernels.hub.local.names import RepoId
from hubkernels.hub.local.objects import DAMAGED_PACK, DamagedFileError, MissingObjectError, ObjectStore
from hubkernels.hub.local.repository import mend_config, mend_head
from hubkernels.hub.local.whole import damaged_packs

_LOG = logging.getLogger(__name__)

_FETCH = "git-upload-pack"
_IN_MEMORY = 1 << 20
_ASK_MOST = 1 << 20  # 20,000 lines of what a client wants and has
_ANY_SIZE = sys.maxsize - 1  # dulwich reads one byte more, to see that there is none
_NOT_GIT = (AssertionError, ValueError)  # what dulwich raises, beside its own, for lines of another form
_TOLD = (Refusal, OSError, MissingObjectError)  # who answers makes something of these
_DAMAGE = (KeyError, zlib.error, ChecksumMismatch, FileFormatException, ObjectMissing, WrongObjectException)
"""What it raises for objects that are missing or damaged."""
_NOT_OURS = (OSError, ValueError, UnsupportedVersion, UnsupportedExtension, InvalidWorktreeConfiguration)
"""What dulwich raises for a config that is one of git, and not one of a repository that it can read."""
_LOGIN = {"WWW-Authenticate": 'Basic realm="a token as password"'}


class GitHttp:
    def __init__(self, site: Site) -> None:
        self.site = site

    def routes(self) -> list[Route]:
        return [
            route
            for prefix in ("/{kind:kind}/{owner}/{name}", "/{owner}/{name}")
            for route in (
                Route(f"{prefix}/info/refs", self.advertise),
                Route(f"{prefix}/{_FETCH}", self.fetch, methods=["POST"]),
            )
        ]

    def advertise(self, request: Request) -> Response:
        """What there is to fetch."""
        if request.query_params.get("service") != _FETCH:
            hint = "push with the API: `kernel-builder publish`, or `hf upload`"
            raise Refusal(403, f"repositories can be fetched and cloned, not pushed to; {hint}")
        head = b"001e# service=git-upload-pack\n0000"
        return self._serve(self._readable(request), b"", head, advertises=True)

    async def fetch(self, request: Request) -> Response:
        """Nothing is read of who may not read."""
        stored = await run_in_threadpool(self._readable, request)
        asked = await body(request, _ASK_MOST)
        return await run_in_threadpool(self._fetch, stored, asked, request.headers.get("content-encoding"))

    def _fetch(self, stored: Stored, asked: bytes, encoding: str | None) -> Response:
        return self._serve(stored, _inflated(asked) if encoding == "gzip" else asked, b"", advertises=False)

    def _serve(self, stored: Stored, asked: bytes, head: bytes, *, advertises: bool) -> Response:
        with _opened(stored, self.site) as repository:
            answer = _Spool(self.site, stored)
            repositories: dict[str, BackendRepo] = {"/": repository}
            backend = DictBackend(repositories)
            with answer.kept():
                answer.write(head)
                question = ordered(asked)
                repository.wanted = reachable(stored.git, question.wanted)
                repository.boundary = question.boundary
                protocol = ReceivableProtocol(BytesIO(question.lines).read, answer.write)
                Handler(backend, ["/"], protocol, stateless_rpc=True, advertise_refs=advertises).handle()
        kind = "advertisement" if advertises else "result"
        headers = {"Cache-Control": "no-cache"}
        return StreamingResponse(_pieces(answer.file), 200, headers, f"application/x-{_FETCH}-{kind}")

    def _readable(self, request: Request) -> Stored:
        """git sends a token only once it was asked for one: so it is for every repository that is not public."""
        account = self.site.account(request)
        asked = repo_of(request)
        try:
            stored = self.site.visible(RepoId(asked.kind, asked.owner, asked.name.removesuffix(".git")), account)
        except Refusal as refusal:
            if account:
                raise
            raise Refusal(401, refusal.message, refusal.code, headers=_LOGIN) from refusal
        stored.git.insist_on_kinds()
        return stored


class _Spool:
    """An answer, gathered before it is sent; what is large, on the disk."""

    def __init__(self, site: Site, stored: Stored) -> None:
        file = tempfile.SpooledTemporaryFile(_IN_MEMORY, dir=str(site.hub.scratch))  # noqa: SIM115 - sent later
        self.file = cast("IO[bytes]", file)
        self._site = site
        self._stored = stored
        self._failed: OSError | Refusal | None = None

    def write(self, text: bytes) -> int | None:
        """Of dulwich's own, an error of the disk would be one of the request."""
        try:
            if self.file.tell() + len(text) > _IN_MEMORY:
                self._site.require_room(len(text))
            return self.file.write(text)
        except (OSError, Refusal) as error:
            self._failed = error
            raise

    @contextmanager
    def kept(self) -> Iterator[None]:
        """Around what writes. Raises Refusal, and OSError, for what failed, and nothing of it stays then."""
        try:
            yield
        except BaseException as error:
            self.file.close()
            clear_frames(error.__traceback__)  # which hold what dulwich read in, and it cannot close a pack so
            if isinstance(self._failed, Refusal):
                _LOG.error("no room for a clone: %s", self._failed.message)
            if self._failed:
                raise self._failed from error
            if isinstance(error, GitProtocolError):
                raise Refusal(400, f"this is no request of git: {error}") from error
            if not isinstance(error, Exception) or isinstance(error, _TOLD):
                raise
            for pack in damaged_packs(self._stored.git.folder):  # what dulwich raises does not tell whose fault it is
                raise DamagedFileError(self._stored.git.folder, pack, DAMAGED_PACK, error) from error
            if isinstance(error, _DAMAGE):
                raise _damaged(self._stored, error) from error
            if isinstance(error, _NOT_GIT):
                raise Refusal(400, f"this is no request of git: {error}") from error
            raise
        self.file.seek(0)


def _damaged(stored: Stored, error: Exception) -> Refusal:
    """dulwich does not tell of which object it is."""
    _LOG.error("%s cannot be cloned, an object is damaged or missing: %r", stored.git.folder, error)
    hint = "may see by `git fsck` what is, and bring that back, or delete it and `kernel-builder hub pull` it again"
    return Refusal(503, f"{stored.repo} cannot be cloned, it is damaged: who runs the Hub {hint}")


def _opened(stored: Stored, site: Site) -> WithWants:
    """Its config may have been damaged since the Hub was started. Raises Refusal where that is not ours to mend.

    What is stored was held against a limit when it came; today's may be another, and hides nothing.
    """
    folder = stored.git.folder
    mend_config(folder, site.hub.scratch)
    mend_head(folder, site.hub.scratch)
    store = _PlainFiles(stored.git.objects)
    try:
        return WithWants(str(folder), bare=True, object_store=store)
    except _NOT_OURS as error:
        store.close()
        _LOG.error("%s is a config that no repository can be read by: %s", folder / "config", error)
        what = f"{stored.repo} cannot be cloned: its config is one that the Hub cannot read"
        raise Refusal(503, f"{what}. Who runs the Hub may delete that file: a repository works without it") from error
    except _DAMAGE as error:  # the first lines of a file that is read at once
        store.close()
        raise _damaged(stored, error) from error


class _PlainFiles(DiskObjectStore):
    """dulwich's way to the objects. It would wait for ever for what a pipe in the place of one has to say."""

    def __init__(self, own: ObjectStore) -> None:
        super().__init__(str(own.folder), loose_object_size_limit=_ANY_SIZE)
        self._own = own

    def _get_shafile_path(self, sha: ObjectID) -> str:
        with suppress(FileNotFoundError):
            self._own.open_loose(sha.decode()).close()
        return super()._get_shafile_path(sha)


def _inflated(text: bytes) -> bytes:
    try:
        with gzip.open(BytesIO(text)) as file:
            found = file.read(_ASK_MOST + 1)
    except (OSError, EOFError, zlib.error) as error:
        raise Refusal(400, "the body is no gzip") from error
    if len(found) > _ASK_MOST:
        raise Refusal(413, f"the body has more than {_ASK_MOST} bytes")
    return found


def _pieces(file: IO[bytes]) -> Iterator[bytes]:
    with file:
        while piece := file.read(_IN_MEMORY):
            yield piece
