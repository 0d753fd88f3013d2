"""Which type PyTorch's autocast gives each operator's result: python autocast.py > autocast.json (2.13 or newer, no GPU needed).

Fake tensors run the rules of autocast for CUDA on any machine. For each operator of ops/manifest.json: the types of the floating
results of its first sample that works, inside a scope of bf16, from f32 and from f16; null where PyTorch refuses.
"""
import json, pathlib, sys, warnings
import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.testing._internal.common_methods_invocations import op_db

warnings.simplefilter("ignore")
names = json.loads((pathlib.Path(__file__).parent / "ops" / "manifest.json").read_text())["ops"]
known = {op.name + ("." + op.variant_test_name if op.variant_test_name else ""): op for op in op_db}
SHORT = {torch.float32: "f32", torch.float16: "f16", torch.bfloat16: "bf16"}


def moved(x, dtype):
    if isinstance(x, torch.Tensor):
        return torch.empty(x.shape, device="cuda", dtype=dtype if x.is_floating_point() else x.dtype)
    if isinstance(x, (list, tuple)):
        return type(x)(moved(one, dtype) for one in x)
    return {k: moved(v, dtype) for k, v in x.items()} if isinstance(x, dict) else x


def types(op, samples, dtype):
    for sample in samples:
        args = [moved(x, dtype) for x in (sample.input, *sample.args)]
        if not any(isinstance(x, torch.Tensor) and x.is_floating_point() for x in args):
            if not isinstance(args[0], (list, tuple)):
                continue
        try:
            out = op.op(*args, **moved(sample.kwargs, dtype))
        except Exception:
            continue
        outs = out if isinstance(out, (list, tuple)) else [out]
        floats = [SHORT[x.dtype] for x in outs if isinstance(x, torch.Tensor) and x.is_floating_point()]
        if floats:
            return floats
    return None


found = {}
for name in names:
    op = known.get(name)
    if op is None or torch.float32 not in op.dtypes:
        continue
    samples = list(op.sample_inputs("cpu", torch.float32))
    with FakeTensorMode(allow_non_fake_inputs=True):
        torch.set_autocast_enabled("cuda", True)
        torch.set_autocast_dtype("cuda", torch.bfloat16)
        found[name] = [types(op, samples, torch.float32), types(op, samples, torch.float16)]
        torch.set_autocast_enabled("cuda", False)
print("{" + ",\n".join(f"{json.dumps(k)}: {json.dumps(v)}" for k, v in found.items()) + "}")
