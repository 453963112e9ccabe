"""Ask the package index for wheels, through pip: mirrors, credentials, find-links and constraints are pip's own."""

from __future__ import annotations

import contextlib
import hashlib
import json
import math
import re
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any
from urllib.parse import quote, unquote, urlsplit

from hubkernels.errors import EnvironmentLacksError, Problem
from hubkernels.host.files import read_json_object, write_atomically
from hubkernels.host.process import Finished, run
from hubkernels.toolchain.sdk import configured
from hubkernels.toolchain.sdk.newer_pip import pip_variables
from hubkernels.toolchain.sdk.patience import PATIENT, Patience

PYTHON = "3.13"
"""Headers are the same in the wheels of every Python. One that is named gives every machine the same lock."""

_OLDEST_GLIBC, _NEWEST_GLIBC = 5, 28
_FORM = 1  # of the kept answers
_DAY_S = 86400.0
_NO_PIP = "No module named pip"
_TOO_OLD = ("no such option", "no such command")
_UNREACHED = re.compile(r"connection broken|could not fetch url(?!.* 404 )", re.IGNORECASE)
_REFUSED = re.compile(r"\b(401|403|407)\b (Client )?Error.*")
_EXCLUDED = re.compile(r"conflicting dependencies|No matching distribution")
_LACKING = re.compile(r"satisfies the requirement (\S+) \(from versions: ([^)]*)\)")
_OTHER_BYTES = re.compile(r"DO NOT MATCH THE HASHES.*?Expected sha256 (\w+)\s+Got\s+(\w+)", re.DOTALL)
_USERINFO = re.compile(r"(?<=://)[^/@\s]*@")
_QUERY = re.compile(r"(?<=\w)\?[^\s'\"]+")
_NETWORK = "is there a network? `pip config list` tells which index pip asks; `toolchain unpack` needs none"
_OVERRIDES = {
    "PIP_NO_INPUT": "1",
    "PIP_DISABLE_PIP_VERSION_CHECK": "1",
    "PIP_USER": "0",  # these would clash with what is asked
    "PIP_REQUIRE_VIRTUALENV": "0",
    "PIP_REQUIRE_HASHES": "0",
}


class NotOfferedError(EnvironmentLacksError):
    """The index answers, and has no such wheel."""


class UnreachedError(EnvironmentLacksError):
    """The index does not answer."""


@dataclass(frozen=True)
class Found:
    """A wheel of the index. requires: what it depends on, as its metadata say it."""

    project: str
    release: str
    url: str
    sha256: str
    requires: tuple[str, ...] = ()

    @property
    def file(self) -> str:
        return unquote(urlsplit(self.url).path).rpartition("/")[2]

    @property
    def path(self) -> str:
        """Below the root of its index, where the address tells that; else the name alone: no folder of a machine."""
        parts = urlsplit(self.url)
        where = unquote(parts.path)
        at = where.find("/packages/") if parts.scheme in {"http", "https"} else -1
        return where[at + 1 :] if at >= 0 else self.file

    def beside(self, path: str) -> str:
        """The address of another file of the same index."""
        start = self.url.partition("?")[0]
        root = start.partition("/packages/")[0] if "/" in self.path else start.rpartition("/")[0]
        return f"{root}/{quote(path)}"


class Index:
    """What pip is configured for. answers: a folder where they are kept. anew: whether none that is kept will do.

    from_memory: how many of the answers that were given were kept ones.
    """

    def __init__(
        self,
        environment: Mapping[str, str],
        answers: Path,
        start: Callable[..., Finished] = run,
        *,
        anew: bool = False,
        patience: Patience = PATIENT,
    ) -> None:
        self.environment = environment
        self.answers = answers
        self.anew = anew
        self.from_memory = 0
        self._start = start
        self._patience = patience
        self._until = 0.0

    def renewed(self) -> Index:
        """The same index, of which no answer is kept."""
        return Index(self.environment, self.answers, self._start, anew=True, patience=self._patience)

    @cached_property
    def _overrides(self) -> Mapping[str, str]:
        return {
            **_OVERRIDES,
            **pip_variables({**self.environment, **_OVERRIDES}, self.answers.parent, self._in_time, self._patience),
        }

    @cached_property
    def _configuration(self) -> str:
        return configuration(self.environment)

    def ask(self, requirements: Sequence[str], platform: str) -> tuple[Found, ...]:
        """The wheel of each requirement, in their order.

        Raises NotOfferedError where the index lacks one, EnvironmentLacksError where it cannot be asked.
        """
        kept = self._kept(requirements, platform)
        if not self.anew and _lasts(requirements, kept) and (known := _read_answer(read_json_object(kept))):
            self.from_memory += 1
            return known
        self._until = time.monotonic() + self._patience.question_s
        found = self._ask(requirements, platform)
        entries = [{**vars(each), "requires": list(each.requires)} for each in found]
        with contextlib.suppress(EnvironmentLacksError):  # a store that cannot be written remembers nothing
            write_atomically(kept, json.dumps({"form": _FORM, "found": entries}).encode(), 0o600)
        return found

    def _in_time(self, command: Sequence[str], *, env: Mapping[str, str], timeout_s: float = math.inf) -> Finished:
        """A process in what is left of the time for this question."""
        left_s = max(1, round(self._until - time.monotonic()))
        return self._start(command, env=env, timeout_s=min(timeout_s, left_s))

    def _pip(self, *words: str) -> Finished:
        command = (sys.executable, "-m", "pip", *_OPTIONS, *self._patience.words, *words)
        environment = {**self.environment, **self._overrides}
        try:
            return self._in_time(command, env=environment)
        except EnvironmentLacksError as error:
            index = without_secrets((configured.said(environment, "index-url") or ("its index",))[-1])
            what = f"pip cannot be waited for, which asks {index}: {error.problems[0].what}"
            raise UnreachedError(Problem(what, hint=_NETWORK)) from error

    def _kept(self, requirements: Sequence[str], platform: str) -> Path:
        words = "\0".join((*requirements, PYTHON, platform, self._configuration))
        return self.answers / f"{hashlib.sha256(words.encode()).hexdigest()[:32]}.json"

    def _ask(self, requirements: Sequence[str], platform: str) -> tuple[Found, ...]:
        with tempfile.TemporaryDirectory() as scratch:
            report = Path(scratch, "report")  # beside what pip says: that tells why there is none
            places = ("--report", str(report), "--target", str(Path(scratch, "nowhere")))
            words = (*places, *_platforms(platform), *requirements)
            done = self._pip(*_IN_PARTS, *words)
            if done.status and _NOT_IN_PARTS.search(done.errors + done.output):
                done = self._pip(*words)
            if done.status:
                raise _failure(
                    f"{done.output}\n{done.errors}", requirements, configured.without_index(self.environment)
                )
            found = read_json_object(report)
        try:
            entries = {_canonical(entry["metadata"]["name"]): entry for entry in found["install"]}
            return tuple(_found(entries[_project(requirement)]) for requirement in requirements)
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise EnvironmentLacksError(
                Problem(f"pip's report on {_listed(requirements)} cannot be read: {error!r}", hint="pip install -U pip")
            ) from error


_OPTIONS = (  # why a page could not be fetched is told at the second level of -v
    *("install", "-vv", "--dry-run", "--ignore-installed", "--no-deps", "--only-binary=:all:", "--progress-bar", "off"),
    *("--implementation", "cp", "--python-version", PYTHON),
)

_IN_PARTS = ("--use-feature=fast-deps",)
"""An index without metadata of wheels, as some mirrors are, is asked for parts of a wheel instead of all of it."""

_NOT_IN_PARTS = re.compile(r"(Client|Server) Error[^\n]*\.whl|invalid choice: 'fast-deps'")
"""What pip says where the server has no HEAD, or a pip that has no such feature any more."""


def _platforms(platform: str) -> tuple[str, ...]:
    """Every tag of wheels that run there: pip takes a tag as it is written, without older ones."""
    cpu = platform.partition("-")[0]
    glibc = (f"manylinux_2_{minor}_{cpu}" for minor in range(_NEWEST_GLIBC, _OLDEST_GLIBC - 1, -1))
    older = (f"{name}_{cpu}" for name in ("manylinux2014", "manylinux2010", "manylinux1"))
    return tuple(word for tag in (*glibc, *older) for word in ("--platform", tag))


def _found(entry: Mapping[str, Any]) -> Found:
    where, metadata = entry["download_info"], entry["metadata"]
    archive = where["archive_info"]
    sha256 = archive.get("hashes", {}).get("sha256") or archive["hash"].removeprefix("sha256=")
    requires = tuple(metadata.get("requires_dist", ()))
    return Found(metadata["name"], metadata["version"], where["url"].partition("#")[0], sha256, requires)


def _lasts(requirements: Sequence[str], kept: Path) -> bool:
    """Whether what was answered still counts: for a release always, for the newest one of several a day."""
    try:
        age_s = time.time() - kept.stat().st_mtime
    except OSError:
        return False
    return age_s < _DAY_S or all("===" in requirement for requirement in requirements)


def _read_answer(kept: Mapping[str, Any]) -> tuple[Found, ...]:
    if kept.get("form") != _FORM:
        return ()
    with contextlib.suppress(KeyError, TypeError):
        return tuple(Found(**{**entry, "requires": tuple(entry["requires"])}) for entry in kept["found"])
    return ()


def _project(requirement: str) -> str:
    return _canonical(re.split(r"[=<>!~ ]", requirement, maxsplit=1)[0])


def _canonical(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def _listed(requirements: Sequence[str]) -> str:
    return ", ".join(requirements)


def _failure(errors: str, requirements: Sequence[str], no_index: str | None) -> EnvironmentLacksError:
    """pip has one exit code for everything: what it says decides. no_index: the setting by which it asks none."""
    asked = _listed(requirements)
    if _NO_PIP in errors:
        return EnvironmentLacksError(
            Problem(f"{sys.executable} has no pip to ask for {asked}", hint="python -m ensurepip")
        )
    if any(word in errors for word in _TOO_OLD):
        return EnvironmentLacksError(Problem("pip is too old: it has no report", hint="pip install -U pip"))
    if refused := _REFUSED.search(errors):
        hint = "pip needs credentials: in its configuration, in ~/.netrc or in its keyring"
        what = f"the package index refuses to tell of {asked}: {without_secrets(refused[0])}"
        return EnvironmentLacksError(Problem(what, hint=hint))
    if other := _OTHER_BYTES.search(errors):
        both = f"  expected sha256 {other[1]}\n  found    sha256 {other[2]}"
        what = f"a wheel for {asked} has other bytes than the index says\n{both}"
        hint = "a transfer that was broken off, or whoever serves it altered it: try again, or ask another index"
        return EnvironmentLacksError(Problem(what, hint=hint))
    if _UNREACHED.search(errors):
        return UnreachedError(Problem(f"the package index cannot be reached for {asked}", hint=_NETWORK))
    return _why_not(errors, asked, no_index)


def _why_not(errors: str, asked: str, no_index: str | None) -> EnvironmentLacksError:
    index, hint = "the package index", "`pip config list` tells which index pip asks, and what constrains it"
    if no_index:
        index = f"{no_index} keeps pip from any index, and what find-links names"
        hint = "unset it, or let PIP_FIND_LINKS name a folder with the wheel; `toolchain unpack` needs neither"
    if lacking := _LACKING.search(errors):
        has = f"; it has {lacking[2]}" if lacking[2] != "none" else ""
        return NotOfferedError(Problem(f"{index} has no {lacking[1]}{has}", hint=hint))
    said = [without_secrets(line) for line in errors.splitlines() if line.startswith("ERROR:")]
    if _EXCLUDED.search(errors):
        return NotOfferedError(Problem(f"{index} gives no {asked}: {said[0][7:]}", hint=hint))
    last = said[-1][7:] if said and not said[-1].endswith("Exception:") else without_secrets(errors.strip()[-300:])
    return EnvironmentLacksError(Problem(f"pip cannot tell of {asked}: {last}", hint=hint))


def configuration(environment: Mapping[str, str]) -> str:
    """A hash of what pip is configured for: by it answers are kept. No secret goes into it, so none can be guessed."""
    words = "\0".join(without_secrets(text) for text in configured.texts(environment))
    return hashlib.sha256(words.encode("utf-8", "surrogateescape")).hexdigest()


def without_secrets(text: str) -> str:
    """A text that may name addresses, without what stands before a host or after a question mark."""
    return _QUERY.sub("", _USERINFO.sub("", text))
