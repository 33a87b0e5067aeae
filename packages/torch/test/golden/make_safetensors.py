"""Golden safetensors files, in both directions.

1. Writes python-written.safetensors with the Python library if it is missing, and safetensors.json with the bytes of each tensor.
2. Checks that Python reads typescript-written.safetensors (made by the test with UPDATE_GOLDEN=1 and committed)
   bit for bit as the same tensors.

Run: OMP_NUM_THREADS=1 python make_safetensors.py   (safetensors 0.8, torch 2.13)
"""

import json
import os
import sys

import safetensors
import torch
from safetensors import safe_open
from safetensors.torch import load_file, save_file

SEED = 7
DTYPES = {
    "float64": torch.float64,
    "float32": torch.float32,
    "float16": torch.float16,
    "bfloat16": torch.bfloat16,
    "int64": torch.int64,
    "int32": torch.int32,
    "int16": torch.int16,
    "int8": torch.int8,
    "uint8": torch.uint8,
    "bool": torch.bool,
}
METADATA = {"format": "pt", "note": "Grüße, 世界 🙂 \"quoted\" \\ \n"}
FOLDER = os.path.dirname(os.path.abspath(__file__))


def make_tensors():
    generator = torch.Generator().manual_seed(SEED)
    tensors = {}
    for name, dtype in DTYPES.items():
        # Random bits rather than random numbers: NaN payloads, subnormals and infinities must survive too.
        size = torch.empty(0, dtype=dtype).element_size()
        high = 2 if dtype == torch.bool else 256
        bits = torch.randint(0, high, (15 * size,), generator=generator, dtype=torch.int64).to(torch.uint8)
        tensors[f"{name}.matrix"] = bits.view(dtype).reshape(3, 5).clone()
        tensors[f"{name}.scalar"] = bits[:size].view(dtype).reshape(()).clone()
        tensors[f"{name}.empty"] = torch.zeros([2, 0, 3], dtype=dtype)
    tensors["名前 \"x\"\n"] = torch.arange(3, dtype=torch.uint8)
    return tensors


def raw(tensor):
    return tensor.contiguous().reshape(-1).view(torch.uint8).numpy().tobytes().hex() if tensor.numel() else ""


def main():
    tensors = make_tensors()
    written = os.path.join(FOLDER, "python-written.safetensors")
    # The library orders the header differently on each run; remove the file to create it again.
    if not os.path.exists(written):
        save_file(tensors, written, metadata=METADATA)
    names = {dtype: name for name, dtype in DTYPES.items()}
    expected = {
        "made": {
            "script": "make_safetensors.py",
            "safetensors": safetensors.__version__,
            "torch": torch.__version__,
            "seed": SEED,
        },
        "metadata": METADATA,
        "tensors": {
            name: {"dtype": names[t.dtype], "shape": list(t.shape), "bytes": raw(t)} for name, t in tensors.items()
        },
    }
    with open(os.path.join(FOLDER, "safetensors.json"), "w") as file:
        json.dump(expected, file, indent=1, ensure_ascii=False)
        file.write("\n")

    ours = os.path.join(FOLDER, "typescript-written.safetensors")
    if not os.path.exists(ours):
        sys.exit("typescript-written.safetensors is missing: run the test once with UPDATE_GOLDEN=1, then this again")
    read = load_file(ours)
    with safe_open(ours, "pt") as file:
        assert file.metadata() == METADATA, file.metadata()
    assert read.keys() == tensors.keys(), read.keys() ^ tensors.keys()
    for name, tensor in tensors.items():
        got = read[name]
        assert (got.dtype, got.shape, raw(got)) == (tensor.dtype, tensor.shape, raw(tensor)), name
    print(f"Python reads all {len(read)} tensors of typescript-written.safetensors bit for bit")


if __name__ == "__main__":
    main()
