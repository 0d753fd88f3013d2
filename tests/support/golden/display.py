#!/usr/bin/env python3
"""display.py OUT: how PyTorch prints tensors of every kind that linn has (PyTorch 2.13, CPU), as one line of JSON for each:
{"dtype", "shape", "bits": [elements as unsigned numbers], "text": {"": default, "2": precision 2, "full": not summarised}}.
Long tensors say instead how they are made: {"dtype", "shape", "mul", "mod", "sub", "by"}, element i = (i * mul mod mod - sub) / by."""
import json, math, random, struct, sys
import torch

DTYPES = {"f32": torch.float32, "f16": torch.float16, "bf16": torch.bfloat16, "i32": torch.int32, "u32": torch.uint32, "bool": torch.bool}
INTS = {"f32": torch.int32, "f16": torch.int16, "bf16": torch.int16, "i32": torch.int32, "u32": torch.int32, "bool": torch.uint8}
random.seed(5)


def texts(x, full):
    out = {"": str(x)}
    if x.is_floating_point() and x.numel() < 50:
        with torch._tensor_str.printoptions(precision=2):
            out["2"] = str(x)
    if full:
        with torch._tensor_str.printoptions(threshold=math.inf):
            out["full"] = str(x)
    return out


def bits(x, name):
    n = x.contiguous().view(INTS[name]).reshape(-1).tolist()
    size = x.element_size() * 8
    return [v & ((1 << size) - 1) for v in n]


def case(values, name, shape):
    if name == "u32":
        values = [int(v) & 0xFFFFFFFF for v in values]
    elif name == "i32":
        values = [int(v) for v in values]
    elif name == "bool":
        values = [bool(v) for v in values]
    x = torch.tensor(values, dtype=DTYPES[name]).reshape(shape)
    return {"dtype": name, "shape": list(x.shape), "bits": bits(x, name), "text": texts(x, False)}


def made(name, shape, mul, mod, sub, by):
    n = math.prod(shape)
    values = [(i * mul % mod - sub) / by for i in range(n)]
    if name in ("i32", "u32", "bool"):
        values = [int(v) for v in values]
    x = torch.tensor(values, dtype=DTYPES[name]).reshape(shape)
    return {"dtype": name, "shape": list(shape), "mul": mul, "mod": mod, "sub": sub, "by": by, "text": texts(x, name == "f32" and mod == 101 and by == 8 and shape in ([1001], [11, 7, 13]))}


def cases():
    inf, nan = math.inf, math.nan
    for name in DTYPES:
        for shape in ([0], [0, 3], [2, 0], [1, 0, 4], [3, 2, 0, 2]):
            yield case([], name, shape)
    floats = [
        [0.0], [-0.0], [1.0], [-1.5], [nan], [inf], [-inf], [0.0, -0.0], [nan, inf, -inf, 0.0], [1.0, nan, -inf], [1.5, nan, -inf, inf],
        [1e-5], [1e-4], [9.9e-5], [1e8], [1.1e8], [123456789.0], [1000.0, 1.0], [1001.0, 1.0], [0.001, 1.0], [0.00099, 1.0],
        [1e-3, 0.5, nan], [65504.0], [3.4e38, -1e-38], [1e-45], [0.00005, 0.5], [0.03125, 0.15625, 0.28125], [2.5, 3.5, 0.125], [1e10, 1.0],
        [1e10, 0.0], [-1e10], [100000.0, 99999.5], [-0.00001], [0.1, 0.2, 0.3], [12345.678], [1.0, 2.0, 3.0], [1e5, 2e5], [-0.0, 1.5],
        [-0.0, 1e-6], [inf, 1e-6], [inf, 1e5 + 1], [nan, 1e9], [99999.0], [999999.0, 0.0, inf], [-99999.0, nan], [0.99999, 0.5], [1e-40, 1.0],
    ]
    for name in ("f32", "f16", "bf16"):
        for values in floats:
            yield case(values, name, [len(values)])
            if len(values) == 1:
                yield case(values, name, [])
        for shape in ([7], [20], [40], [2, 3], [3, 14], [2, 30], [2, 3, 4], [2, 1, 2, 2], [1, 1, 1, 1, 3], [5, 1], [1, 25]):
            n = math.prod(shape)
            yield case([random.uniform(-2, 2) for _ in range(n)], name, shape)
            yield case([float(random.randint(-50, 50)) for _ in range(n)], name, shape)
            yield case([random.choice([-1, 1]) * 10 ** random.uniform(-6, 4) for _ in range(n)], name, shape)
            yield case([random.choice([0.0, -0.0, nan, inf, -inf, 1.25, 3.0]) for _ in range(n)], name, shape)
    for name in ("i32", "u32", "bool"):
        ends = [0, 1, 2**31 - 1, -(2**31), -1]
        for values in [[v] for v in ends] + [ends, [5, -10, 100]]:
            yield case(values, name, [len(values)])
            if len(values) == 1:
                yield case(values, name, [])
        for shape in ([7], [40], [2, 3], [3, 14], [2, 3, 4], [2, 1, 2, 2], [2, 30]):
            yield case([random.randint(-1000, 1000) * random.randint(0, 1) for _ in range(math.prod(shape))], name, shape)
    # Around the threshold of 1,000 elements, and dimensions of 6 and 7.
    shapes = ([1000], [1001], [10, 100], [7, 143], [6, 167], [167, 6], [1001, 1], [1, 1001], [11, 7, 13], [6, 6, 28], [7, 7, 7, 3], [2, 8, 2, 40], [1200])
    for shape in shapes:
        for name in DTYPES if math.prod(shape) != 1000 else ["i32"]:
            yield made(name, shape, 37, 101, 0 if name == "u32" else 50, 1)
        for name in ("f32", "f16", "bf16") if math.prod(shape) != 1000 else ["f32"]:
            yield made(name, shape, 37, 101, 50, 8)
            yield made(name, shape, 1, 1 << 20, 0, 1024)


def main():
    with open(sys.argv[1], "w") as out:
        count = 0
        for c in cases():
            out.write(json.dumps(c, ensure_ascii=True) + "\n")
            count += 1
    print(count, "tensors")


main()
