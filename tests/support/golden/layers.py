"""Writes what PyTorch's layers do to small inputs, with PyTorch's own initial values.

usage: layers.py OUT_FILE
<case>/state/<name>, x (or q, k, v and mask), y, w, dx, grad/<name>: y = layer(x) in training, gradients of sum(y w).
Cases with running statistics run on x.0, x.1, x.2: y.<i>, then after/<name> and eval, the result for x.0 in evaluation.
"""
import sys
import torch, torch.nn as nn
from safetensors.torch import save_file

torch.manual_seed(7)
out = {}

def put(name, tensor):
    out[name] = tensor.detach().clone().contiguous()

def state(case, layer, into="state"):
    for name, tensor in layer.state_dict().items():
        put(f"{case}/{into}/{name}", tensor)

def shaken(layer):
    """Ones and zeros tell too little."""
    with torch.no_grad():
        for p in layer.parameters():
            p.add_(0.3 * torch.randn_like(p))
    return layer

def gradients(case, layer, inputs, y):
    w = torch.randn_like(y); put(f"{case}/w", w)
    layer.zero_grad()
    (y * w).sum().backward()
    for name, x in inputs.items():
        if x.grad is not None: put(f"{case}/d{name}", x.grad)
    for name, p in layer.named_parameters():
        if p.grad is not None: put(f"{case}/grad/{name}", p.grad)

def run(case, layer, x):
    layer = shaken(layer); state(case, layer)
    if x.is_floating_point(): x = x.requires_grad_(True)
    put(f"{case}/x", x if x.is_floating_point() else x.int())
    y = layer(x); put(f"{case}/y", y)
    gradients(case, layer, {"x": x}, y)

def running(case, layer, shape):
    layer = shaken(layer); state(case, layer)
    for i in range(3):
        x = (torch.randn(shape) * (i + 1) + i).requires_grad_(True)
        put(f"{case}/x.{i}", x)
        y = layer(x); put(f"{case}/y.{i}", y)
    gradients(case, layer, {"x": x}, y)
    state(case, layer, "after")
    layer.eval(); put(f"{case}/eval", layer(out[f"{case}/x.0"]))

def attention(case, layer, q, k, v, mask=None, **call):
    layer = shaken(layer); state(case, layer)
    for name, x in dict(q=q, k=k, v=v).items():
        x.requires_grad_(True); put(f"{case}/{name}", x)
    if mask is not None: put(f"{case}/mask", mask)
    # A module's mask is true where nothing is seen.
    y, _ = layer(q, k, v, need_weights=False, attn_mask=None if mask is None else (~mask if mask.dtype == torch.bool else mask), **call)
    put(f"{case}/y", y)
    gradients(case, layer, dict(q=q, k=k, v=v), y)

run("linear", nn.Linear(5, 3), torch.randn(2, 4, 5))
run("linear_without_bias", nn.Linear(5, 3, bias=False), torch.randn(4, 5))
emb = nn.Embedding(7, 4, padding_idx=2); run("embedding", emb, torch.tensor([[0, 2, 6, 2], [1, 1, 5, 3]]))
run("layer_norm", nn.LayerNorm(6), torch.randn(3, 2, 6))
run("layer_norm_without_bias", nn.LayerNorm(6, bias=False), torch.randn(3, 6))
run("layer_norm_2d", nn.LayerNorm([2, 6]), torch.randn(3, 2, 6))
run("rms_norm", nn.RMSNorm(6), torch.randn(3, 2, 6))
run("group_norm", nn.GroupNorm(2, 6), torch.randn(2, 6, 3, 4))
running("batch_norm1d", nn.BatchNorm1d(5), (6, 5))
running("batch_norm1d_sequences", nn.BatchNorm1d(5, eps=1e-3, momentum=0.3), (4, 5, 3))
running("batch_norm1d_average", nn.BatchNorm1d(5, momentum=None), (6, 5))
running("batch_norm2d", nn.BatchNorm2d(3), (2, 3, 4, 5))
running("batch_norm2d_untracked", nn.BatchNorm2d(3, track_running_stats=False), (2, 3, 4, 5))
running("batch_norm2d_plain", nn.BatchNorm2d(3, affine=False), (2, 3, 4, 5))
run("conv1d", nn.Conv1d(3, 4, 3, padding=1), torch.randn(2, 3, 8))
run("conv2d", nn.Conv2d(4, 6, (3, 2), stride=(2, 1), padding=(1, 0), dilation=(1, 2), groups=2), torch.randn(2, 4, 7, 6))
run("conv2d_same", nn.Conv2d(2, 3, 3, padding="same", bias=False), torch.randn(1, 2, 4, 5))
run("conv_transpose1d", nn.ConvTranspose1d(4, 2, 3, stride=2), torch.randn(2, 4, 5))
run("conv_transpose2d", nn.ConvTranspose2d(4, 6, 3, stride=2, padding=1, output_padding=1, groups=2), torch.randn(2, 4, 3, 4))
run("max_pool1d", nn.MaxPool1d(3, stride=2), torch.randn(2, 3, 9))
run("max_pool2d", nn.MaxPool2d(3, stride=2, padding=1), torch.randn(2, 3, 6, 7))
run("avg_pool1d", nn.AvgPool1d(2), torch.randn(2, 3, 8))
run("avg_pool2d", nn.AvgPool2d((2, 3), padding=(1, 1), count_include_pad=False), torch.randn(2, 3, 6, 7))
run("adaptive_avg_pool1d", nn.AdaptiveAvgPool1d(3), torch.randn(2, 3, 7))
run("adaptive_avg_pool2d", nn.AdaptiveAvgPool2d((2, None)), torch.randn(2, 3, 5, 4))
run("flatten", nn.Flatten(), torch.randn(2, 3, 4))
run("prelu", nn.PReLU(3), torch.randn(2, 3, 4))
x = torch.randn(2, 4, 8); attention("attention", nn.MultiheadAttention(8, 2, batch_first=True), x.clone(), x.clone(), x.clone())
causal = torch.ones(4, 4, dtype=torch.bool).tril()
attention("attention_causal", nn.MultiheadAttention(8, 2, batch_first=True), torch.randn(2, 4, 8), torch.randn(2, 4, 8), torch.randn(2, 4, 8), causal)
seen = torch.rand(4, 5) > 0.4; seen[:, 0] = True
attention("attention_masked", nn.MultiheadAttention(8, 4, batch_first=True, bias=False), torch.randn(2, 4, 8), torch.randn(2, 5, 8), torch.randn(2, 5, 8), seen)
attention("attention_added", nn.MultiheadAttention(8, 2, batch_first=True), torch.randn(2, 3, 8), torch.randn(2, 5, 8), torch.randn(2, 5, 8), torch.randn(3, 5))
for name, layer in dict(relu=nn.ReLU(), relu6=nn.ReLU6(), sigmoid=nn.Sigmoid(), tanh=nn.Tanh(), silu=nn.SiLU(), mish=nn.Mish(), selu=nn.SELU(),
        softsign=nn.Softsign(), tanhshrink=nn.Tanhshrink(), hardsigmoid=nn.Hardsigmoid(), hardswish=nn.Hardswish(), log_sigmoid=nn.LogSigmoid(),
        gelu=nn.GELU(), gelu_tanh=nn.GELU("tanh"), leaky_relu=nn.LeakyReLU(), elu=nn.ELU(), celu=nn.CELU(), hardtanh=nn.Hardtanh(),
        softplus=nn.Softplus(), softmax=nn.Softmax(-1), log_softmax=nn.LogSoftmax(-1)).items():
    run(name, layer, 3 * torch.randn(3, 5))
# A whole model: its names are those of a Sequential within a Sequential.
model = nn.Sequential(
    nn.Sequential(nn.Conv2d(1, 4, 3, padding=1, bias=False), nn.BatchNorm2d(4), nn.ReLU(), nn.MaxPool2d(2)),
    nn.Flatten(), nn.Linear(4 * 3 * 3, 5))
running("model", model, (3, 1, 6, 6))
save_file(out, sys.argv[1])
