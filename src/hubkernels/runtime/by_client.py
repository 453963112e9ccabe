"""Kernels that load kernels do so by a call of the stock client's, and a newer contract is its own: it loads them.

It is handed the folder that was held against its commit, and finds what that depends on. It would ask the Hub for the
kernel itself again, for its variants, too, and take what comes.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import Any

from hubkernels.errors import EnvironmentLacksError, Problem
from hubkernels.model.digest import METADATA
from hubkernels.runtime.asked import Asked
from hubkernels.runtime.metadata import Metadata
from hubkernels.runtime.settings import Settings


def insist_on_client(metadata: Metadata, name: str) -> None:
    """Raises EnvironmentLacksError where there is none."""
    if importlib.util.find_spec("kernels") is None:
        what = f"the kernel {metadata.name} needs other kernels, or a newer client: the stock client loads it"
        raise EnvironmentLacksError(Problem(what, name, "pip install 'hubkernels[client]'"))


@dataclass(frozen=True)
class _Here:
    """A resolver of the client's that knows one kernel."""

    kernel: Any
    location: Any

    def resolve(self, *, api: Any, backend: str | None, kernel: Any) -> Any:  # noqa: ANN401, ARG002 - the client's types
        return self.location if kernel == self.kernel else None


def load_by_client(wanted: Asked, settings: Settings, name: str, commit: str, folder: Path) -> ModuleType:
    """The module of a folder that is right, as ``kernels.get_kernel`` gives that of one which it fetched."""
    _ = settings.token  # the client reads it again, and waits for a pipe
    try:
        load = _handed(wanted, settings, name, commit, folder)
    except (ImportError, AttributeError, TypeError) as error:  # what it calls is nobody's public interface
        what = f"the stock client is of a release that no kernel can be handed to: {error}"
        hint = "pip install 'hubkernels[client]' gets one; a kernel for a newer client needs a newer hubkernels, too"
        raise EnvironmentLacksError(Problem(what, name, hint)) from error
    return load()


def _handed(wanted: Asked, settings: Settings, name: str, commit: str, folder: Path) -> Callable[[], ModuleType]:
    """What loads it, of the client's parts; nothing of the kernel runs yet."""
    from kernels import load, resolver, validate  # noqa: PLC0415 - an extra

    asked = load.KernelDependency(repo_id=name, version=load.revision_or_version(revision=commit, version=None))
    validators = [*validate.default_metadata_validators(), *([validate.ArchValidator()] if wanted.check_arch else [])]
    trust = wanted.trust if isinstance(wanted.trust, bool) else list(wanted.trust)
    others = resolver.HubCacheResolver if settings.offline else resolver.HubResolver
    resolvers = [
        _Here(asked, _location(resolver, name, commit, folder.resolve())),
        resolver.RepoPathsResolver(local_kernels=settings.local),
        others(trust_remote_code=trust),
    ]
    return partial(
        load.get_kernel_with_resolver,
        api=load._get_hf_api(),  # noqa: SLF001 - as the client says who it is
        backend=wanted.backend,
        kernel=asked,
        resolver=resolver.SequentialResolver(resolvers=resolvers),
        metadata_validator=validate.AllValidator(validators=validators),
    )


def _location(resolver: Any, repo_id: str, commit: str, folder: Path) -> Any:  # noqa: ANN401 - modules and types of the client
    """The path is the client's own, by which it knows what it has loaded."""
    from kernels import variants  # noqa: PLC0415 - an extra

    metadata, variant = resolver.Metadata.read_from_file(folder / METADATA), variants.parse_variant(folder.name)
    origin = resolver.RemoteKernel(repo_id=repo_id, revision=commit, metadata=metadata, variant=variant)
    return resolver.LocalKernel(variant_path=folder, metadata=metadata, origin=origin)
