"""Small files of torch.save, and their contents.

    python make_state_dicts.py        (torch 2.13; the version is written beside the values)

Writes state-dicts/*.bin and state-dicts/expected.json beside this file.
"""

import collections
import json
import os

import torch

FOLDER = os.path.join(os.path.dirname(os.path.abspath(__file__)), "state-dicts")


class Small(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding = torch.nn.Embedding(5, 3)
        self.norm = torch.nn.LayerNorm(3)
        self.head = torch.nn.Linear(3, 5, bias=False)
        self.head.weight = self.embedding.weight
        self.register_buffer("position_ids", torch.arange(4).expand((1, -1)))


def dictionaries():
    torch.manual_seed(3)
    numbers = torch.randn(2, 3, 4)
    base = torch.randn(40)
    yield "module", Small().state_dict()
    yield "types", {
        str(dtype).removeprefix("torch."): (10 * numbers).to(dtype)
        for dtype in (torch.float32, torch.float64, torch.float16, torch.bfloat16, torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8)
    } | {"bool": numbers > 0}
    yield "layouts", {
        "transposed": numbers.transpose(0, 2),
        "permuted": torch.randn(2, 1, 3, 4).permute(3, 1, 0, 2),
        "part": base[7:19].view(3, 4),
        "other part": base[19:25],
        "column": torch.randn(4, 1).t(),
        "scalar": torch.tensor(2.5),
        "empty": torch.zeros(0, 3),
    }
    yield "parameters", collections.OrderedDict(weight=torch.nn.Parameter(torch.randn(3)), frozen=torch.nn.Parameter(torch.randn(2), requires_grad=False))


class RunsCode:
    def __reduce__(self):
        return os.system, ("touch run-by-a-pickle",)


def main():
    os.makedirs(FOLDER, exist_ok=True)
    expected = {"torch": torch.__version__, "files": {}}
    for name, tensors in dictionaries():
        expected["files"][name] = {
            key: {"dtype": str(tensor.dtype).removeprefix("torch."), "shape": list(tensor.shape), "values": tensor.detach().double().flatten().tolist()}
            for key, tensor in tensors.items()
        }
        torch.save(tensors, os.path.join(FOLDER, f"{name}.bin"))
        torch.save(tensors, os.path.join(FOLDER, f"{name}-before-1.6.bin"), _use_new_zipfile_serialization=False)
    torch.save(dict(dictionaries())["types"], os.path.join(FOLDER, "types-protocol-4.bin"), pickle_protocol=4)
    expected["files"]["types-protocol-4"] = expected["files"]["types"]
    # Files that are not a state_dict.
    torch.save(Small(), os.path.join(FOLDER, "refused-module.bin"))
    torch.save({"state_dict": {"weight": torch.zeros(2)}, "epoch": 3}, os.path.join(FOLDER, "refused-training.bin"))
    torch.save({"weight": RunsCode()}, os.path.join(FOLDER, "refused-code.bin"))
    torch.save({"gap": torch.randn(6)[::2]}, os.path.join(FOLDER, "refused-gaps.bin"))
    torch.save({"wide": torch.zeros(1).expand(1000)}, os.path.join(FOLDER, "refused-wide.bin"))
    with open(os.path.join(FOLDER, "expected.json"), "w") as file:
        json.dump(expected, file)
        file.write("\n")


main()
