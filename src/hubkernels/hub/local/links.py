"""Links to the origin of large files: who has one may use it, for the one thing it is for, until it lapses."""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Mapping
from dataclasses import dataclass, field
from urllib.parse import quote, urlencode, urlsplit

from starlette.requests import Request

from hubkernels.hub.local.answers import Refusal
from hubkernels.hub.local.asked import Site, host_of
from hubkernels.hub.local.names import RepoId

LIVES_S = 3600
"""As long as links of the Hub do."""


@dataclass(frozen=True)
class Links:
    """key: of this run of the server. A link of an earlier run is answered as one that has lapsed."""

    site: Site
    key: bytes = field(repr=False)

    def sign(self, request: Request, method: str, repo: RepoId, rest: str, query: Mapping[str, str]) -> str:
        """A link below the repository's place on the other origin, by the name that the client has for this host."""
        host = urlsplit(f"//{host_of(request)}").hostname or "127.0.0.1"
        host = f"[{host}]" if ":" in host else host
        path = "/content/" + "/".join(quote(part, safe="") for part in (*repo, *rest.split("/")))
        expires = str(int(self.site.clock().timestamp()) + LIVES_S)
        signed = {**query, "expires": expires}
        signed["signature"] = self._signature(method, path, signed)
        return f"{request.url.scheme}://{host}:{self.site.content_port}{path}?{urlencode(signed)}"

    def check(self, request: Request, method: str) -> None:
        """Raises Refusal for a request that no link allows, or that shows its token to an origin that needs none."""
        if "authorization" in request.headers:
            raise Refusal(400, "a link carries its own right: send no Authorization along")
        query = dict(request.query_params)
        given = query.pop("signature", "")
        path = request.scope["path"]
        if not hmac.compare_digest(given.encode(), self._signature(method, path, query).encode()):
            raise Refusal(
                403, "this link is not valid, or is of an earlier run of the Hub: ask the Hub for another one"
            )
        if float(query["expires"]) < self.site.clock().timestamp():
            raise Refusal(403, "this link has lapsed: ask the Hub for another one")

    def _signature(self, method: str, path: str, query: Mapping[str, str]) -> str:
        text = "\n".join((method, path, urlencode(sorted(query.items()))))
        return hmac.new(self.key, text.encode(), hashlib.sha256).hexdigest()
