"""One load of one kernel of a Hub: trust, the commit, the variant, its files, and the module of them."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from types import ModuleType
from typing import BinaryIO

from hubkernels.errors import CheckFailedError, EnvironmentLacksError, HubkernelsError, Problem
from hubkernels.model.digest import METADATA
from hubkernels.runtime.asked import Asked, NotCachedError, NotFoundError, NoVersionError, UntrustedError
from hubkernels.runtime.by_client import insist_on_client, load_by_client
from hubkernels.runtime.cache import Cache, problem_of
from hubkernels.runtime.choose import chosen, decide, told
from hubkernels.runtime.fetch import Hub, UnprovedError
from hubkernels.runtime.importing import import_kernel
from hubkernels.runtime.metadata import (
    BadMetadataError,
    Metadata,
    check_arch,
    check_digest,
    check_environment,
    read_metadata,
)
from hubkernels.runtime.proof import File, Hashes, Proven, Revision
from hubkernels.runtime.settings import Settings
from hubkernels.runtime.system import System
from hubkernels.runtime.web import RefusedError, Web

_LOG = logging.getLogger(__name__)

_KEPT_BY = "`kernel-builder prefetch`, by who may write there, keeps what proves it"


@dataclass
class Load:
    """One load of one kernel, by one spelling of its name. vouched: whether the Hub just did so for the publisher."""

    wanted: Asked
    settings: Settings
    name: str
    system: System
    vouched: bool = False

    @cached_property
    def cache(self) -> Cache:
        return Cache.of(self.settings.cache, self.name)

    @cached_property
    def hub(self) -> Hub:
        return Hub(Web(self.settings.endpoint, self.settings.token), self.name)

    def is_elsewhere(self, error: HubkernelsError) -> bool:
        """Whether the other spelling of the name may be there: this one is no kernel, as far as can be told."""
        if isinstance(error, NotCachedError):
            return self.wanted.pinned or not self.cache.folder.is_dir()
        return isinstance(error, RefusedError) and error.no_repository

    def module(self) -> ModuleType:
        self._check_trust()
        commit = self._commit()
        revision = self._revision(commit)
        variant, where = self._variant(revision)
        files = revision.files(variant)
        metadata = self._metadata(revision, variant, files)
        hashes = self._files(revision, variant, files)
        self._check(metadata, hashes, where)
        if not self.settings.offline:
            self._remember(revision)
        if metadata.is_for_the_client:
            return load_by_client(self.wanted, self.settings, self.name, commit, where)
        return import_kernel(where, metadata, f"{self.name} at {commit}")

    def _remember(self, revision: Revision) -> None:
        """For the next load: what proves the files, who trusts them, and what names the commit.

        A cache that others fill, and that cannot be written here, is no reason not to load what is right.
        """
        try:
            self.cache.keep(revision)
            if self.vouched:
                self.cache.vouch(revision.commit, self.settings.endpoint)
            if not self.wanted.pinned:
                self.cache.name(self.wanted.ref, revision.commit)
        except EnvironmentLacksError as error:
            _LOG.info("the next load of %s asks the Hub again: %s; %s", self.name, error.problems[0].what, _KEPT_BY)

    def _check_trust(self) -> None:
        """Raises UntrustedError where neither the caller, by this very name, nor the Hub vouches for the publisher."""
        trust = self.wanted.trust
        if trust is True or (isinstance(trust, (list, tuple, set, frozenset)) and self.name in trust):
            return
        if self.settings.offline:
            _LOG.warning("%s is loaded without a network: whether its publisher is trusted is not asked", self.name)
        elif not (self.vouched or self._was_vouched_for()):
            self.vouched = self._is_vouched_for()

    def _was_vouched_for(self) -> bool:
        return self.wanted.pinned and self.cache.is_vouched_for(self.wanted.ref, self.settings.endpoint)

    def _is_vouched_for(self) -> bool:
        """True, or raises UntrustedError."""
        try:
            vouched = self.hub.is_vouched_for()
        except HubkernelsError as error:
            what = f"whether the publisher of {self.name} is trusted could not be verified: {error.problems[0].what}"
            raise UntrustedError(Problem(what, error.problems[0].where, error.problems[0].hint)) from error
        if not vouched:
            hint = "trust_remote_code=True, or a list with this kernel, loads it all the same"
            raise UntrustedError(Problem(f"{self.name} is not from a trusted publisher", self.settings.endpoint, hint))
        return True

    def _commit(self) -> str:
        ref = self.wanted.ref
        if self.wanted.pinned:
            return ref
        if self.settings.offline:
            found = self.cache.ref(ref)
            if found is None:
                there = ", ".join(map(str, self.cache.versions())) or "none"
                what = f"{self.name} is not in the cache by {ref}; versions there: {there}"
                hint = "load it once with a network, or name the commit that is there"
                raise NotCachedError(Problem(what, str(self.cache.folder), hint))
            return found
        return self._version() if self.wanted.revision is None else self.hub.commit_of(ref)

    def _version(self) -> str:
        versions, wanted = self.hub.versions(), self.wanted.version
        if wanted not in versions:
            there = ", ".join(map(str, sorted(versions))) or "none"
            raise NoVersionError(Problem(f"Version {wanted} not found, available versions: {there}", self.name))
        newest = max(versions)
        if wanted != newest:
            _LOG.warning("version %s of %s is loaded; version %s is there", wanted, self.name, newest)
        return versions[wanted]

    def _revision(self, commit: str) -> Revision:
        known = self.cache.revision(commit)
        if known is not None and self._is_enough(known) and self._is_whole(known):
            return known
        if self.settings.offline:
            if not self.cache.has(commit):
                hint = "load it once with a network: `kernel-builder prefetch` does, for all that a lock names"
                raise NotCachedError(
                    Problem(f"{self.name} at {commit} is not in the cache", str(self.cache.folder), hint)
                )
            return self.cache.found(commit)
        return self._asked(commit)

    def _asked(self, commit: str) -> Revision:
        """Of the Hub. Who names no commit believes it anyway; who does, only where the environment allows it."""
        try:
            return self.hub.proved(commit)
        except UnprovedError as error:
            if self._insists:
                self.hub.commit_of(commit)  # of one that is not there, its Hub says so
                raise
            level = logging.WARNING if self.wanted.pinned else logging.INFO
            _LOG.log(level, "what the Hub lists is believed: %s", error.problems[0].what)
            return self.hub.listed(commit)

    @property
    def _insists(self) -> bool:
        """Whether nothing but a proof of the commit will do."""
        return self.wanted.pinned and not self.settings.unproved

    def _is_enough(self, known: Revision) -> bool:
        """A listing may have been kept by a load that believed it; without a network nobody can prove it."""
        return isinstance(known, Proven) or not self._insists or self.settings.offline

    def _is_whole(self, known: Revision) -> bool:
        """Whether what was kept tells of the variant to load: it may have been damaged."""
        try:
            variant = chosen(decide(known.variants(), self.system))
            return variant is None or bool(known.files(variant))
        except CheckFailedError:
            return False

    def _variant(self, revision: Revision) -> tuple[str, Path]:
        decisions = decide(revision.variants(), self.system)
        variant = chosen(decisions)
        if variant is None:
            reasons = told(decisions) or "it has no variant"
            what = f"no variant of {self.name} at {revision.commit} fits this system:\n{reasons}"
            raise NotFoundError(Problem(what, hint="`kernel-builder list-variants` tells what can be built"))
        return variant, self.cache.variant(revision.commit, variant)

    def _metadata(self, revision: Revision, variant: str, files: Sequence[File]) -> Metadata:
        """Read, and held against what is installed, before anything large is fetched."""
        place = self.cache.variant(revision.commit, variant) / METADATA
        own = [file for file in files if file.path == METADATA]
        if not own:
            raise BadMetadataError(Problem("the variant has no metadata.json", f"{self.name}: {variant}"))
        self._files(revision, variant, own)
        metadata = read_metadata(place.read_bytes(), str(place))
        if metadata.is_for_the_client:
            insist_on_client(metadata, self.name)
        else:
            check_environment(metadata, variant)
            if self.wanted.check_arch:
                check_arch(metadata, variant)
        return metadata

    def _files(self, revision: Revision, variant: str, files: Sequence[File]) -> dict[str, Hashes]:
        """The hashes of files, which are all in the cache and right when this returns."""
        place = self.cache.variant(revision.commit, variant)
        found = self.cache.hashes(revision.commit, variant, files)
        right = {file.path: each for file in files if (each := found[file.path]) and each.are_of(file)}
        wrong = [file for file in files if file.path not in right]
        if wrong and self.settings.offline:
            raise CheckFailedError(*(problem_of(file.path, found[file.path], place) for file in wrong))
        for file in wrong:
            right[file.path] = self._fetch(revision, variant, file)
        return right

    def _fetch(self, revision: Revision, variant: str, file: File) -> Hashes:
        content = revision.content(file)

        def fill(target: BinaryIO) -> None:
            if content is None:
                self.hub.save(revision.commit, variant, file, target)
            else:
                target.write(content)

        return self.cache.put(revision.commit, variant, file, fill)

    def _check(self, metadata: Metadata, hashes: dict[str, Hashes], where: Path) -> None:
        check_digest(metadata, hashes, where)
        self.cache.refuse_others(where, hashes)
