"""A kernel of the Hub, through the stock client."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType
from typing import Any

from hubkernels.errors import EnvironmentLacksError, Problem


def get_kernel(
    repo_id: str,
    *,
    revision: str | None = None,
    version: int | None = None,
    **options: Any,  # noqa: ANN401 - those of the client
) -> ModuleType:
    """The stock client's ``kernels.get_kernel``, with either spelling of a name: ``org/my_kernel``, ``org/my-kernel``.

    Exactly one of revision and version; a revision of 40 hex digits is always the same kernel. options: the client's.
    Raises EnvironmentLacksError where the client is not installed, and what the client raises.
    """
    if importlib.util.find_spec("kernels") is None:
        what = "kernels are loaded by the stock client, which is not installed"
        raise EnvironmentLacksError(Problem(what, hint="pip install 'hubkernels[client]'"))
    import kernels  # noqa: PLC0415 - it brings torch; who imports this room may need neither
    from huggingface_hub.errors import RepositoryNotFoundError  # noqa: PLC0415

    first, second = _spellings(repo_id)
    pin = {"revision": revision, "version": version}
    try:
        found: ModuleType = kernels.get_kernel(first, **pin, **options)
    except RepositoryNotFoundError as missing:
        try:
            found = kernels.get_kernel(second, **pin, **options)
        except RepositoryNotFoundError:
            raise missing from None
    return found


def _spellings(repo_id: str) -> tuple[str, str]:
    """As it is written, and the other; without a network the one that is in the cache comes first."""
    owner, slash, name = repo_id.partition("/")
    other = owner + slash + (name.replace("_", "-") if "_" in name else name.replace("-", "_"))
    return (other, repo_id) if _only_cached(other, repo_id) else (repo_id, other)


def _only_cached(name: str, not_this: str) -> bool:
    """Whether there is no network, and in the client's cache the one and not the other."""
    from huggingface_hub import constants  # noqa: PLC0415 - as the client
    from kernels import hf_hub  # noqa: PLC0415

    if not constants.HF_HUB_OFFLINE:
        return False
    cache = Path(hf_hub.CACHE_DIR or constants.HF_HUB_CACHE)
    there, missing = (cache / "--".join(("kernels", *each.split("/"))) for each in (name, not_this))
    return there.is_dir() and not missing.is_dir()
