"""The layers of the package activation in real transformers models, random weights, training step included."""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING, Any

import kernels
import pytest
import torch
from torch import Tensor, nn
from transformers import GemmaConfig, GptOssConfig, LlamaConfig, activations
from transformers.activations import ACT2FN
from transformers.models.gemma import modeling_gemma
from transformers.models.gemma.modeling_gemma import GemmaForCausalLM, GemmaMLP
from transformers.models.gpt_oss import modeling_gpt_oss
from transformers.models.llama import modeling_llama
from transformers.models.llama.modeling_llama import LlamaForCausalLM, LlamaMLP

from tests.conftest import REPOSITORY
from tests.ops.kernelized import kernelized, swapped_layers

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path
    from types import ModuleType

pytestmark = pytest.mark.filterwarnings("ignore:.*torch.jit.*:DeprecationWarning")  # torch.compile's own

# What transformers asks for, and the layer that answers; kernels-community has them under the same names.
CLASSES = {
    activations.SiLUActivation: ("SiLU", "Silu"),
    activations.GELUActivation: ("GeLU", "Gelu"),
    activations.GELUTanh: ("GeluTanh", "GeluTanh"),
    activations.NewGELUActivation: ("NewGELU", "NewGELU"),
    activations.FastGELUActivation: ("FastGELU", "FastGELU"),
    activations.QuickGELUActivation: ("QuickGELU", "QuickGELU"),
    # transformers maps these, and leaves it to its user to mark a class.
    LlamaMLP: ("SwiGLUMLP", "SwiGLUMLP"),
    GemmaMLP: ("GeGLUMLP", "GeGLUMLP"),
}
ACTIVATIONS_ALONE = tuple(CLASSES)[:6]
ROTATED = {modeling_llama: "LlamaAttention", modeling_gemma: "GemmaAttention", modeling_gpt_oss: "GptOssAttention"}
LAYERS = {**dict(CLASSES.values()), "rotary_pos_emb": "apply_rotary_transformers"}


@pytest.fixture(autouse=True)
def marks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Mark classes and functions as transformers itself does, for the versions of kernels that it accepts."""
    for cls in ACTIVATIONS_ALONE:
        mark(monkeypatch, cls)
    for module, name in ROTATED.items():
        function: Any = kernels.use_kernel_forward_from_hub("rotary_pos_emb")(plain(module.apply_rotary_pos_emb))
        attention = getattr(module, name)
        monkeypatch.setattr(module, "apply_rotary_pos_emb", function)
        monkeypatch.setattr(attention, "__init__", attention.__init__)  # which the next line replaces
        kernels.use_kernelized_func(function)(attention)


def mark(monkeypatch: pytest.MonkeyPatch, cls: type[nn.Module]) -> None:
    for attribute in ("kernel_layer_name", "kernel_condition"):
        monkeypatch.setattr(cls, attribute, None, raising=False)  # to be undone
    kernels.replace_kernel_forward_from_hub(cls, CLASSES[cls][0])


def plain(function: Any) -> Any:  # noqa: ANN401
    """A function that may be marked already."""
    return inspect.unwrap(function.forward) if isinstance(function, nn.Module) else function


def swapped(model: nn.Module, repo: Path) -> nn.Module:
    return kernelized(model, LAYERS, repo, use_fallback=True)


ACTIVATIONS = {
    "silu": "Silu",
    "gelu": "Gelu",
    "gelu_python": "Gelu",
    "gelu_pytorch_tanh": "GeluTanh",
    "gelu_python_tanh": "GeluTanh",
    "gelu_new": "NewGELU",
    "gelu_fast": "FastGELU",
    "quick_gelu": "QuickGELU",
}


@pytest.mark.parametrize("compiled", [False, True], ids=["eager", "compiled"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=["float32", "bfloat16"])
@pytest.mark.parametrize(("name", "layer"), ACTIVATIONS.items(), ids=ACTIVATIONS.keys())
def test_an_activation_of_transformers_is_itself(
    activation_repo: Path, name: str, layer: str, dtype: torch.dtype, *, compiled: bool
) -> None:
    """C02: on half of a chunk, too."""
    torch.compiler.reset()
    theirs, ours = ACT2FN[name], swapped(ACT2FN[name], activation_repo)
    assert swapped_layers(ours) == [layer]
    forward = torch.compile(ours, fullgraph=True) if compiled else ours
    noise = 2 * torch.randn(2, 16, 96, generator=torch.Generator().manual_seed(1))
    # In bfloat16 the torch code of several operations rounds after each.
    bound: dict[str, Any] = {"rtol": 1e-5, "atol": 1e-6} if dtype == torch.float32 else {"rtol": 0.05, "atol": 0.02}
    for view in (noise, noise.chunk(2, -1)[1]):
        x, y = (view.to(dtype).detach().requires_grad_() for _ in range(2))
        for a, b in zip(both(forward, x), both(theirs, y), strict=True):
            torch.testing.assert_close(a, b, **bound)
    assert torch.equal(ours(input=noise), ours(noise))


def both(call: Callable[..., Tensor], x: Tensor) -> tuple[Tensor, Tensor]:
    y = call(x)
    return y.detach(), torch.autograd.grad(y.sum(), x)[0]


def llama(**options: Any) -> LlamaForCausalLM:  # noqa: ANN401
    torch.manual_seed(0)
    sizes: dict[str, Any] = {"hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 2, "vocab_size": 50}
    heads = {"num_attention_heads": 4, "num_key_value_heads": 2}
    return LlamaForCausalLM(LlamaConfig(**{**sizes, **heads, **options}))


def gemma() -> GemmaForCausalLM:
    torch.manual_seed(0)
    sizes: dict[str, Any] = {
        "hidden_size": 64,
        "intermediate_size": 96,
        "num_hidden_layers": 2,
        "vocab_size": 50,
        "head_dim": 16,
    }
    return GemmaForCausalLM(GemmaConfig(**sizes, num_attention_heads=4, num_key_value_heads=1, pad_token_id=0))


def step(model: nn.Module, forward: Callable[..., Any]) -> tuple[Tensor, ...]:
    """Logits and loss of one training step, and the weights after it."""
    ids = torch.randint(1, 50, (2, 11), generator=torch.Generator().manual_seed(2))
    positions = torch.tensor([[*range(11)], [3, 1, 4, 1, 5, 9, 2, 6, 5, 3, 5]])
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    out = forward(input_ids=ids, labels=ids, position_ids=positions)
    out.loss.backward()
    assert all(p.grad is not None for p in model.parameters())
    optimizer.step()
    return (out.logits.detach(), out.loss.detach(), *(p.detach() for p in model.parameters()))


MODELS: dict[str, tuple[Callable[[], nn.Module], type[nn.Module] | None, set[str]]] = {
    "Llama": (llama, None, {"Silu"}),
    "Llama with gelu_new": (lambda: llama(hidden_act="gelu_new"), None, {"NewGELU"}),
    "Llama, its MLP": (llama, LlamaMLP, {"SwiGLUMLP", "Silu"}),
    "Gemma": (gemma, None, {"GeluTanh"}),
    "Gemma, its MLP": (gemma, GemmaMLP, {"GeGLUMLP", "GeluTanh"}),
}


@pytest.mark.parametrize("compiled", [False, True], ids=["eager", "compiled"])
@pytest.mark.parametrize(("make", "mlp", "layers"), MODELS.values(), ids=MODELS.keys())
def test_a_kernelized_model_is_itself_after_a_training_step(  # noqa: PLR0913 (a case and two fixtures)
    activation_repo: Path,
    monkeypatch: pytest.MonkeyPatch,
    make: Callable[[], nn.Module],
    mlp: type[nn.Module] | None,
    layers: set[str],
    *,
    compiled: bool,
) -> None:
    torch.compiler.reset()
    if mlp is not None:
        mark(monkeypatch, mlp)
    theirs, ours = make(), make()  # a deep copy would have a function of its own, which nobody calls
    expected = step(theirs, theirs)
    ours = swapped(ours, activation_repo)
    assert set(swapped_layers(ours)) == layers
    module = modeling_gemma if make is gemma else modeling_llama
    assert "apply_rotary_transformers" in module.apply_rotary_pos_emb.forward.__qualname__
    forward = torch.compile(ours) if compiled else ours
    for a, b in zip(step(ours, forward), expected, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-5)


def test_a_rotation_is_replaced_and_is_itself(activation_repo: Path) -> None:
    """In both layouts. Of GPT-OSS cos and sin have a column for each pair."""
    q, k = torch.randn(2, 7, 6, 16).transpose(1, 2), torch.randn(2, 7, 2, 16).transpose(1, 2)
    sizes: dict[str, Any] = {
        "hidden_size": 32,
        "intermediate_size": 32,
        "num_hidden_layers": 1,
        "vocab_size": 50,
        "head_dim": 16,
    }
    config = GptOssConfig(**sizes, num_attention_heads=2, num_key_value_heads=1, num_local_experts=2)
    checks = []
    for module, columns in ((modeling_llama, 16), (modeling_gpt_oss, 8)):
        cos, sin = torch.randn(2, 1, 7, columns)
        cases = ((q, k, cos, sin), (q.transpose(1, 2), k.transpose(1, 2), cos, sin, 2))
        checks += [(module, case, module.apply_rotary_pos_emb(*case)) for case in cases]
    swapped(nn.ModuleList([llama(), modeling_gpt_oss.GptOssAttention(config, 0)]), activation_repo)
    for module, case, expected in checks:
        call = module.apply_rotary_pos_emb
        assert "apply_rotary_transformers" in call.forward.__qualname__
        assert all(map(torch.equal, call(*case), expected))


def test_the_page_about_models_prints_what_it_says(
    artifacts: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """In a model that is marked, as transformers marks it for the versions of kernels that it accepts."""
    for attribute in ("kernel_layer_name", "kernel_condition"):
        monkeypatch.setattr(modeling_llama.LlamaRMSNorm, attribute, None, raising=False)  # to be undone
    kernels.replace_kernel_forward_from_hub(modeling_llama.LlamaRMSNorm, "RMSNorm")
    page = (REPOSITORY / "docs/kernels/models.md").read_text(encoding="utf-8")
    block = page.partition("```python\n")[2].partition("```")[0]
    assert '"build"' in block
    exec(block.replace('"build"', repr(str(artifacts))), {})  # noqa: S102 - what the page tells its reader to run
    assert f"# {capsys.readouterr().out}" == block.splitlines(keepends=True)[-1]
    without = block.replace('"build"', repr(str(artifacts))).replace(
        '    "RMSNorm": ours("rms-norm", "LlamaRMSNorm"),\n', ""
    )
    exec(without, {})  # noqa: S102
    assert capsys.readouterr().out == "['Silu.forward']\n", "the model's own norm has the same name as ours"


def test_an_mlp_of_another_activation_is_refused(activation_repo: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its output would be that of another model."""
    mark(monkeypatch, LlamaMLP)
    model = swapped(llama(hidden_act="relu"), activation_repo)
    with pytest.raises(ValueError, match="SwiGLUMLP: hidden_act of the config is 'relu', must be one of"):
        model(input_ids=torch.ones(1, 3, dtype=torch.int64))


@pytest.mark.parametrize("name", ["SiluAndMul", "GeluAndMul", "GeluTanhAndMul"])
def test_a_gated_layer_is_its_function(activation: ModuleType, name: str) -> None:
    x = torch.randn(3, 34)
    options = {"approximate": "tanh"} if "Tanh" in name else {}
    function = activation.silu_and_mul if name.startswith("Silu") else activation.gelu_and_mul
    assert torch.equal(getattr(activation.layers, name)()(x), function(x, **options))


def test_every_layer_can_be_compiled_and_trained(activation: ModuleType) -> None:
    for name in activation.layers.__all__:
        layer = getattr(activation.layers, name)
        assert layer.can_torch_compile
        assert layer.has_backward
