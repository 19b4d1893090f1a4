"""In models: training, no_grad, threads of torch, compilation, and what is kept alive."""

import copy
import gc
import weakref

import torch
import torch.nn.functional as F
from torch import nn

import whatwhere.torch
from support import close


class Layer(nn.Module):
    """Attention with a window and a learned T5 bias."""

    def __init__(self, width=32, heads=4, dropout=0.0):
        super().__init__()
        self.heads, self.dropout = heads, dropout
        self.join, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.table = nn.Parameter(torch.zeros(heads, 16))

    def forward(self, x):
        q, k, v = self.join(x).unflatten(-1, (3, self.heads, -1)).permute(2, 0, 3, 1, 4)
        mixed = whatwhere.torch.attention(
            q, k, v,
            pattern={"kind": "window", "left": 8},
            position={"kind": "t5", "table": self.table, "max_distance": 20},
            dropout_p=self.dropout if self.training else 0.0,
        )  # fmt: skip
        return self.out(mixed.transpose(1, 2).flatten(2))


def test_a_model_learns_to_copy_the_token_before():
    """Only the distance tells which key to take, so the table must have learned."""
    torch.manual_seed(0)
    embed, layer, read = nn.Embedding(10, 32), Layer(), nn.Linear(32, 10)
    model = nn.ModuleList([embed, layer, read])
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    for step in range(200):
        tokens = torch.randint(10, (16, 24))
        loss = F.cross_entropy(read(layer(embed(tokens)))[:, 1:].flatten(0, 1), tokens[:, :-1].flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    assert loss < 0.1, f"the loss is {loss:.3f}, guessing gives 2.303"
    assert layer.table.detach().mean(0).argmax() == 1


def test_no_grad_and_inference_mode_give_the_same_numbers_and_no_graph():
    layer, x = Layer(), torch.randn(2, 30, 32)
    with_graph = layer(x)
    with torch.no_grad():
        assert torch.equal(layer(x), with_graph) and not layer(x).requires_grad
    with torch.inference_mode():
        assert torch.equal(layer(x), with_graph)


def test_only_what_requires_a_gradient_gets_one():
    q, k, v = (torch.randn(1, 2, 8, 4) for _ in range(3))
    k.requires_grad_()
    table = torch.zeros(2, 8)
    whatwhere.torch.attention(q, k, v, position={"kind": "t5", "table": table}).sum().backward()
    assert k.grad is not None and q.grad is None and v.grad is None and table.grad is None


def test_one_tensor_in_several_roles_sums_its_gradients():
    x = torch.randn(1, 2, 20, 4, requires_grad=True)
    (found,) = torch.autograd.grad(whatwhere.torch.attention(x, x, x).square().sum(), x)
    (expected,) = torch.autograd.grad(F.scaled_dot_product_attention(x, x, x, is_causal=True).square().sum(), x)
    close(found, expected, 5e-5)


def test_changing_an_input_before_the_backward_pass_is_noticed():
    q = torch.randn(1, 1, 8, 4, requires_grad=True)
    k = torch.randn(1, 1, 8, 4)
    mask = torch.ones(8, 8, dtype=torch.bool)
    for changed in (k, mask):
        out = whatwhere.torch.attention(q, k, k, attn_mask=mask, pattern="full")
        changed.zero_()
        try:
            out.sum().backward()
        except RuntimeError as error:
            assert "modified by an inplace operation" in str(error)
        else:
            raise AssertionError("the gradient of other numbers was returned")


def test_outputs_do_not_share_memory_and_nothing_is_kept_alive():
    q = torch.randn(1, 1, 8, 4, requires_grad=True)
    first = whatwhere.torch.attention(q, q, q)
    kept = first.detach().clone()
    whatwhere.torch.attention(2 * q, q, q)
    assert torch.equal(first, kept)
    table = torch.zeros(1, 8, requires_grad=True)
    out = whatwhere.torch.attention(q, q, q, position={"kind": "t5", "table": table})
    seen = weakref.ref(table)
    del out, table
    gc.collect()
    assert seen() is None


def test_lse_and_weights_carry_no_gradient():
    q = torch.randn(1, 2, 8, 4, requires_grad=True)
    out, lse, weights = whatwhere.torch.attention(q, q, q, return_lse=True, return_weights=[7])
    assert out.requires_grad and not lse.requires_grad and not weights.requires_grad
    assert weights.shape == (1, 2, 1, 8)
    close(weights.sum(-1), torch.ones(1, 2, 1), 1e-6)


def test_dropout_follows_torch_s_seed_in_a_module():
    layer, x = Layer(dropout=0.5), torch.randn(2, 30, 32)
    torch.manual_seed(1)
    first, second = layer(x), layer(x)
    torch.manual_seed(1)
    assert torch.equal(layer(x), first) and not torch.equal(first, second)
    layer.eval()
    assert torch.equal(layer(x), layer(x))


def test_models_are_copied_saved_and_compiled():
    layer, x = Layer(), torch.randn(2, 30, 32)
    twin = copy.deepcopy(layer)
    twin.load_state_dict(layer.state_dict())
    assert torch.equal(twin(x), layer(x))
    compiled = torch.compile(layer, backend="eager")
    assert torch.equal(compiled(x), layer(x))
    compiled(x).sum().backward()
    assert layer.table.grad is not None and layer.table.grad.abs().max() > 0
