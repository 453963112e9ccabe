"""What a process that loads kernels is told of the environment."""

from __future__ import annotations

import pytest

from hubkernels.check.client import without_secrets


@pytest.mark.parametrize(
    "name",
    [
        *("HF_TOKEN", "HUGGING_FACE_HUB_TOKEN", "HF_TOKEN_PATH", "HF_OIDC_ID_TOKEN", "HUBKERNELS_HUB_TOKENS"),
        *("HUBKERNELS_SIGN_KEY", "HUBKERNELS_SIGN_PASSWORD", "SIGSTORE_ID_TOKEN", "TWINE_PASSWORD"),
        *("ACTIONS_ID_TOKEN_REQUEST_TOKEN", "ACTIONS_ID_TOKEN_REQUEST_URL", "ACTIONS_RUNTIME_TOKEN"),
        *("BUILDKITE_AGENT_ACCESS_TOKEN", "GITHUB_TOKEN", "GH_TOKEN", "gitlab_token", "SSH_AUTH_SOCK", "PGPASSWD"),
        *("AWS_SECRET_ACCESS_KEY", "AWS_ACCESS_KEY_ID", "GOOGLE_APPLICATION_CREDENTIALS", "WANDB_API_KEY"),
    ],
)
def test_kernels_do_not_get_what_writes_or_signs(name: str) -> None:
    """Eleven names were left out, and the token of any other service passed."""
    assert without_secrets({name: "x", "PATH": "/bin"}) == {"PATH": "/bin"}


def test_kernels_get_what_they_run_with() -> None:
    needed = {
        *("PATH", "HOME", "TMPDIR", "LD_LIBRARY_PATH", "LD_PRELOAD", "PYTHONPATH", "VIRTUAL_ENV", "ASAN_OPTIONS"),
        *("CUDA_VISIBLE_DEVICES", "OMP_NUM_THREADS", "HUBKERNELS_ISA", "HF_HUB_CACHE", "HF_ENDPOINT", "LOCAL_KERNELS"),
    }
    assert without_secrets(dict.fromkeys(needed, "x")).keys() == needed
