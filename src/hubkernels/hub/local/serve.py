"""A running Hub: one server, two origins."""

from __future__ import annotations

import secrets
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Literal

import uvicorn
from starlette.applications import Starlette
from starlette.convertors import Convertor, register_url_convertor
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from hubkernels.errors import EnvironmentLacksError, InputError, Problem
from hubkernels.hub.local.accounts import Accounts
from hubkernels.hub.local.answers import Refusal, on_failure, on_http_error, on_os_error, on_refusal, refused
from hubkernels.hub.local.api import Api
from hubkernels.hub.local.asked import Limits, Site
from hubkernels.hub.local.commits import Commits
from hubkernels.hub.local.git_http import GitHttp
from hubkernels.hub.local.hub import Hub
from hubkernels.hub.local.lfs import ContentOrigin, Lfs
from hubkernels.hub.local.links import Links
from hubkernels.hub.local.listings import Listings
from hubkernels.hub.local.names import KINDS
from hubkernels.hub.local.objects import MissingObjectError
from hubkernels.hub.local.resolve import Resolve

Wrap = Callable[[ASGIApp], ASGIApp]

_STARTS_WITHIN_S = 30
_FINISHES_WITHIN_S = 8
_ENDS_WITHIN_S = 1  # after that: containers are killed after 10 s
_IDLE_S = 75  # longer than clients keep a connection: who closes first must not be the one who is about to be asked
_DRAIN_MOST = 256 << 20


class _Kind(Convertor[str]):
    """A part of a path that is the kind of a repository."""

    regex = "|".join(KINDS)

    def convert(self, value: str) -> str:
        return value

    def to_string(self, value: str) -> str:
        return value


class HungError(EnvironmentLacksError):
    """Requests that were not answered when the server had to end. They may still hold locks, and write."""


class _How(_Kind):
    """A part of a path that tells how to give a file: what it stands for, or what is in git."""

    regex = "resolve|raw"


register_url_convertor("kind", _Kind())
register_url_convertor("how", _How())


@dataclass(frozen=True)
class Address:
    """Where to listen. A port of 0 is any that is free."""

    host: str = "127.0.0.1"
    port: int = 0
    content_port: int = 0


@dataclass(frozen=True)
class Running:
    """A Hub that answers. url: what HF_ENDPOINT is set to."""

    url: str
    content_url: str
    hub: Hub


def application(site: Site) -> ASGIApp:
    """Both origins: which one is asked is told by the port."""
    links = Links(site, secrets.token_bytes(32))
    rooms = (Api(site), Listings(site), Commits(site), Lfs(site, links), GitHttp(site), Resolve(site, links))
    handlers = {
        Refusal: on_refusal,
        MissingObjectError: _on_missing,
        HTTPException: on_http_error,
        OSError: on_os_error,
        Exception: on_failure,
    }
    hub = Starlette(routes=[route for room in rooms for route in room.routes()], exception_handlers=handlers)
    content = Starlette(routes=ContentOrigin(site, links).routes(), exception_handlers=handlers)
    hub.router.redirect_slashes = content.router.redirect_slashes = False

    async def both(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            server = scope.get("server") or ("", 0)
            origin = content if server[1] == site.content_port else hub
            await _Drained(origin)({**scope, "path": scope["raw_path"].decode("ascii", "replace")}, receive, send)

    return both


def _on_missing(_request: Request, error: Exception) -> Response:
    """What a ref or another object names: who asks for something else is told so before."""
    if not isinstance(error, MissingObjectError):
        raise error
    return refused(error.refusal())


class _Drained:
    """Reads a request to its end before it is refused: a client that is still sending would not see the answer."""

    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        state = {"more": True, "left": _DRAIN_MOST}

        async def received() -> Message:
            message = await receive()
            state["more"] = message["type"] == "http.request" and message.get("more_body", False)
            return message

        async def sent(message: Message) -> None:
            if message["type"] == "http.response.start":
                while state["more"] and state["left"] > 0:
                    state["left"] -= len((await received()).get("body", b"")) + 1
            await send(message)

        await self.app(scope, received, sent)


@contextmanager
def serve(  # noqa: PLR0913 - what a Hub can be told
    folder: Path,
    accounts: Accounts | None = None,
    *,
    lfs: Literal["never", "always"] = "never",
    address: Address | None = None,
    limits: Limits | None = None,
    wrap: Wrap | None = None,
) -> Iterator[Running]:
    """A Hub in a thread of this process. On the way out it finishes what it was asked, and takes nothing new.

    wrap: puts something around the application, as tests do with faults. Raises EnvironmentLacksError where the folder
    or a port is taken, InputError where no address is named, HungError at the end where a request hangs: what it may
    still write to stays this process's.
    """
    place = address or Address()
    if not place.host:  # which the system takes for every address
        raise InputError(Problem("no address to listen on", "--host", "127.0.0.1 is this machine alone, 0.0.0.0 all"))
    hub = Hub(folder.absolute(), lfs=lfs == "always")
    try:
        hub.open()
        with _listening(place.host, place.port) as api, _listening(place.host, place.content_port) as content:
            port = content.getsockname()[1]
            site = Site(hub, accounts or Accounts(), limits or Limits(), port)
            app = application(site)
            with _Thread(wrap(app) if wrap else app, [api, content]):
                yield Running(_url(place.host, api), _url(place.host, content), hub)
    except HungError:
        raise
    except BaseException:
        hub.close()
        raise
    hub.close()


@contextmanager
def _listening(host: str, port: int) -> Iterator[socket.socket]:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    # Of a socket without a protocol asyncio keeps Nagle's algorithm on: 40 ms a request.
    with socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP) as listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listener.bind((host, port))
            listener.listen(1024)
        except (OSError, OverflowError, UnicodeError) as error:  # the last of a name that is too long for one
            reason = getattr(error, "strerror", None) or error
            raise EnvironmentLacksError(Problem(f"cannot listen on {host} port {port}: {reason}")) from error
        yield listener


def _url(host: str, listener: socket.socket) -> str:
    """For a client on this machine, when every address is listened on."""
    known = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)  # noqa: S104 - compared with
    return f"http://{f'[{known}]' if ':' in known else known}:{listener.getsockname()[1]}"


class _Thread:
    """The server's thread, from its first answer to its last."""

    def __init__(self, app: ASGIApp, listeners: list[socket.socket]) -> None:
        config = uvicorn.Config(
            app,
            http="h11",
            ws="none",
            lifespan="off",
            log_config=None,
            access_log=False,
            server_header=False,
            timeout_keep_alive=_IDLE_S,
            timeout_graceful_shutdown=_FINISHES_WITHIN_S,
        )
        self.server = uvicorn.Server(config)
        self.thread = threading.Thread(target=self.server.run, args=(listeners,), name="hub", daemon=True)

    def __enter__(self) -> None:
        self.thread.start()
        for _ in range(_STARTS_WITHIN_S * 100):
            if self.server.started:
                return
            if not self.thread.is_alive():
                break
            time.sleep(0.01)
        self.server.should_exit = True
        raise EnvironmentLacksError("the Hub did not start; its log tells why")

    def __exit__(
        self, _type: type[BaseException] | None, _error: BaseException | None, _: TracebackType | None
    ) -> None:
        self.server.should_exit = True
        self.thread.join(_FINISHES_WITHIN_S + _ENDS_WITHIN_S)
        if self.thread.is_alive():
            what = f"the Hub ended without {len(self.server.server_state.tasks)} of its requests, which did not end"
            raise HungError(Problem(what, hint="its disk may hang: what was not answered was not kept"))
