#!/usr/bin/env python3
"""files.py DIR: small files as NumPy 2.4 writes them, and files.json, which says what is in each: {file: {"shape", "dtype" (linn's),
"values" (row-major)}} or {file: {"error": words}}; for .npz by name. What linn must write alike says "same": true."""
import json, sys
import numpy as np

out, facts = sys.argv[1], {}


def add(name, x, dtype, same=False):
    np.save(f"{out}/{name}.npy", x)
    values = [float(v) if np.isfinite(v) else str(v) for v in x.astype(np.float64).reshape(-1)]
    facts[f"{name}.npy"] = {"shape": list(x.shape), "dtype": dtype, "values": values, "same": same}


base = (np.arange(24).reshape(2, 3, 4) * 37 % 101 - 50) / 8
for name, dtype, linn in [("f4", "<f4", "f32"), ("f2", "<f2", "f16"), ("i4", "<i4", "i32"), ("u4", "<u4", "u32"), ("b1", "?", "bool")]:
    x = np.abs(base).astype(dtype) if name == "u4" else base.astype(dtype)
    add(name, x, linn, True)
    add(name + "_fortran", np.asfortranarray(x), linn)
    add(name + "_scalar", x[1, 2, 3], linn, True)
    add(name + "_empty", x[:0], linn, True)
    add(name + "_vector", x[0, 0], linn, True)
    if name != "b1":
        add(name + "_big", x.astype(dtype.replace("<", ">")), linn)
        add(name + "_big_fortran", np.asfortranarray(x.astype(dtype.replace("<", ">"))), linn)
for name in ("i1", "u1", "i2", "u2", "i8", "u8", ">i8", ">i2", "f8", ">f8"):
    x = np.abs(base) if "u" in name else base
    # NumPy rounds f64 to the nearest f32 as well.
    x = x.astype(name)
    add(name.replace(">", "big_"), x, "f32" if "f" in name else "i32")
add("f8_rounded", np.array([1 / 3, 1e300, -1e-300, np.nan, -np.inf]).astype("f8"), "f32")
facts["f8_rounded.npy"]["values"] = [float(np.float32(1 / 3)), "inf", -0.0, "nan", "-inf"]
add("f4_special", np.array([np.nan, np.inf, -np.inf, -0.0, 1e-45], "f4"), "f32", True)
for name, x, words in [
    ("too_wide", np.array([0, 2**31]), "2147483648"),
    ("too_deep", np.array([-(2**40)]), "-1099511627776"),
    ("too_wide_unsigned", np.array([2**63], "u8"), "9223372036854775808"),
    ("complex", np.array([1j]), "<c16"),
    ("text", np.array(["ab"]), "<U2"),
    ("parts", np.array([(1, 2.0)], [("a", "i4"), ("b", "f4")]), "several parts"),
    ("time", np.array(["2020-01-01"], "M8[D]"), "M8"),
]:
    np.save(f"{out}/{name}.npy", x)
    facts[f"{name}.npy"] = {"error": words}
for name, save in [("stored", np.savez), ("deflated", np.savez_compressed)]:
    save(f"{out}/{name}.npz", w=base.astype("f4"), ids=np.array([3, 1, 2]), flag=np.array(True), long=np.zeros(500, "f4"))
    facts[f"{name}.npz"] = {
        "w": {"shape": [2, 3, 4], "dtype": "f32", "values": base.reshape(-1).tolist()},
        "ids": {"shape": [3], "dtype": "i32", "values": [3, 1, 2]},
        "flag": {"shape": [], "dtype": "bool", "values": [1]},
        "long": {"shape": [500], "dtype": "f32", "values": [0.0] * 500},
    }
with open(f"{out}/files.json", "w") as f:
    json.dump(facts, f, indent=0)
print(len(facts), "files")
