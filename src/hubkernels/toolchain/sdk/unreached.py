"""That an index could not be asked, remembered for some minutes: a build that goes on without need not wait again."""

from __future__ import annotations

import contextlib
import hashlib
import json
import time
from collections.abc import Mapping
from pathlib import Path

from hubkernels.errors import EnvironmentLacksError
from hubkernels.host.files import read_json_object, write_atomically
from hubkernels.toolchain.sdk.index import configuration, without_secrets

_LASTS_S = 300.0
_PROXIES = ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY")
_WAYS = (*_PROXIES, *map(str.lower, _PROXIES), "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE", "SSL_CERT_FILE", "SSL_CERT_DIR")


class Unreached:
    """What pip is configured for, and the way to it, decide which index it was. answers: where that is kept."""

    def __init__(self, environment: Mapping[str, str], answers: Path) -> None:
        ways = (f"{name}={without_secrets(environment.get(name, ''))}" for name in _WAYS)
        words = "\0".join((configuration(environment), *ways))
        self._place = answers / f"unreached-{hashlib.sha256(words.encode(errors='replace')).hexdigest()[:32]}.json"

    def why(self) -> str | None:
        """Why it could not be asked, and when; None where it may be asked."""
        with contextlib.suppress(OSError):
            age_s, why = time.time() - self._place.stat().st_mtime, read_json_object(self._place).get("why")
            if 0 <= age_s < _LASTS_S and isinstance(why, str):
                ago = f"{age_s // 60:.0f} min ago" if age_s >= 60 else f"{age_s:.0f} s ago"  # noqa: PLR2004 - a minute
                return f"{why} ({ago}; `kernel-builder toolchain lock` asks again)"
        return None

    def remember(self, why: str) -> None:
        with contextlib.suppress(EnvironmentLacksError):  # a store that cannot be written remembers nothing
            write_atomically(self._place, json.dumps({"why": why}).encode(), 0o600)

    def forget(self) -> None:
        with contextlib.suppress(OSError):
            self._place.unlink(missing_ok=True)
