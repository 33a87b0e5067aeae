"""Writes operators.json: for every operator that has a wrapper, calls with arguments and PyTorch's results.

    python make_operators.py          (PyTorch 2.13.0, CPU, seed in each case)

Each case is evaluated through torch.ops.aten, whose arguments come in schema order, as in our wrappers.
"""
import json
import math
import os

import torch

cases = []


def encode(value):
    if isinstance(value, torch.Tensor):
        flat = value.detach().contiguous().flatten().double().tolist()
        return {
            "tensor": [x if math.isfinite(x) else str(x) for x in flat],
            "shape": list(value.shape),
            "dtype": str(value.dtype).removeprefix("torch."),
        }
    if isinstance(value, torch.Generator):
        return {"generator": value.initial_seed()}
    if isinstance(value, torch.dtype):
        return str(value).removeprefix("torch.")
    if isinstance(value, (list, tuple)):
        return [encode(item) for item in value]
    return value


REDUCTION = {"none": 0, "mean": 1, "sum": 2}


def case(name, *args, reduction_at=None, **options):
    """reduction_at: the positional index whose string is passed to aten as PyTorch's number."""
    shown = encode(list(args))
    given = list(args)
    if reduction_at is not None:
        given[reduction_at] = REDUCTION[given[reduction_at]]
    shown_options = {key: encode(value) for key, value in options.items()}
    result = getattr(torch.ops.aten, name)(*given, **options)
    cases.append({"name": name, "arguments": shown, "options": shown_options, "expected": encode(result)})


def f(*values, shape=None, dtype=torch.float32):
    made = torch.tensor(values, dtype=dtype)
    return made if shape is None else made.reshape(shape)


def i(*values, shape=None, dtype=torch.int64):
    return f(*values, shape=shape, dtype=dtype)


def b(*values, shape=None):
    return f(*values, shape=shape, dtype=torch.bool)


def g(seed=5):
    return torch.Generator().manual_seed(seed)


x = lambda: f(0.5, -1.25, 2.0, 0.75, -0.1, 1.5, shape=(2, 3))
y = lambda: f(1.5, 0.25, -2.0, 0.5, 3.0, -0.75, shape=(2, 3))
positive = lambda: f(0.5, 1.25, 2.0, 0.75, 0.1, 1.5, shape=(2, 3))
unit = lambda: f(0.5, 0.25, 0.9, 0.75, 0.1, 0.6, shape=(2, 3))
special = lambda: f(1.0, math.nan, math.inf, -math.inf, -0.0)
square = lambda: f(2.0, -1.0, 0.5, 0.25, 3.0, 1.0, -0.5, 1.5, 1.0, shape=(3, 3))
integers = lambda: i(7, -3, 12, 5, 0, -8, shape=(2, 3))

for name in "abs neg exp exp2 expm1 square sign sin cos tan atan sinh cosh tanh asinh erf erfc sigmoid floor ceil trunc frac relu silu mish log_sigmoid hardswish selu".split():
    case(name, x())
for name in "log log2 log10 log1p sqrt rsqrt reciprocal lgamma digamma".split():
    case(name, positive())
for name in "asin acos atanh erfinv logit".split():
    case(name, unit())
case("acosh", f(1.0, 1.5, 20.0))
for name in "isnan isinf isfinite signbit".split():
    case(name, special())
case("logical_not", i(0, 1, 5))
case("bitwise_not", i(0, 1, -5))
case("bitwise_not", b(True, False))
for name in "abs_ neg_ exp_ expm1_ square_ sigmoid_ tanh_ relu_ silu_ floor_ ceil_ trunc_ zero_".split():
    case(name, x())
for name in "log_ log1p_ sqrt_ rsqrt_ reciprocal_".split():
    case(name, positive())
case("logical_not_", b(True, False))
case("bitwise_not_", i(0, 1, -5))

# Arithmetic
for name in "add sub add_ sub_".split():
    case(name, x(), y())
    case(name, x(), f(1.0, 2.0, 3.0), alpha=2)
    case(name, x(), 1.5)
    case(name, x(), 3, alpha=2)
for name in "mul mul_".split():
    case(name, x(), y())
    case(name, integers(), 3)
for name in "div div_".split():
    case(name, x(), y(), rounding_mode=None)
    case(name, x(), 4, rounding_mode=None)
    case(name, x(), y(), rounding_mode="floor")
    case(name, x(), 0.3, rounding_mode="trunc")
case("div", integers(), 2, rounding_mode=None)
for name in "remainder fmod floor_divide remainder_ fmod_ floor_divide_".split():
    case(name, integers(), i(3, 3, -5))
    case(name, x(), 0.3)
case("rsub", x(), y())
case("rsub", x(), 1)
case("pow", x(), f(2.0, 3.0, 0.0))
case("pow", positive(), -1.5)
case("pow_", x(), f(2.0, 3.0, 0.0))
case("pow_", x(), 2)
case("float_power", positive(), f(2.0, 0.5, 1.0))
case("float_power", positive(), 3)
case("round", f(0.5, 1.5, -2.5, 2.4))
case("round_", f(0.5, 1.5, -2.5, 2.4))
for name in "maximum minimum fmax fmin atan2 hypot logaddexp logaddexp2".split():
    case(name, x(), y())
case("copysign", x(), y())
case("copysign", x(), -1)
for name in "clamp clamp_".split():
    case(name, x(), f(-1.0, -1.0, 0.0), f(0.5, 0.5, 1.0))
    case(name, x(), -0.5, 1)
    case(name, x(), None, 0.6)
case("clamp", x(), 0)
for name in "clamp_min clamp_max clamp_min_ clamp_max_".split():
    case(name, x(), f(-1.0, 0.0, 0.0))
    case(name, x(), 0.25)
for name in "lerp lerp_".split():
    case(name, x(), y(), f(0.1, 0.5, 0.9))
    case(name, x(), y(), 0.25)
for name in "addcmul addcdiv addcmul_ addcdiv_".split():
    case(name, x(), y(), positive(), value=0.5)
    case(name, x(), y(), positive())
case("nan_to_num", special(), 7.0, 8.0, -9.0)
case("nan_to_num_", special())
case("xlogy", f(0.0, 2.0), f(0.0, 3.0))
case("xlogy", f(0.0, 2.0), 3)
case("logit", f(0.0, 0.3, 1.0), 0.01)

# Comparison and logic
for name in "eq ne lt le gt ge".split():
    case(name, x(), f(0.5, 0.0, 2.0))
    case(name, integers(), 5)
for name in "logical_and logical_or logical_xor logical_and_ logical_or_ logical_xor_".split():
    case(name, b(True, True, False, False), b(True, False, True, False))
for name in "bitwise_and bitwise_or bitwise_xor bitwise_and_ bitwise_or_".split():
    case(name, integers(), i(6, 5, -1))
    case(name, integers(), 6)
case("bitwise_and", b(True, True, False), b(True, False, False))
for name in "bitwise_left_shift bitwise_right_shift".split():
    case(name, i(1, 5, 64), i(1, 2, 3))
    case(name, i(1, 5, 64), 2)
condition = lambda: b(True, False, True)
case("where", condition(), x(), y())
case("where", condition(), x(), 9.0)
case("where", condition(), 9.0, y())
case("where", condition(), 1.5, 2.5)
case("equal", x(), x())
case("equal", x(), y())
case("allclose", x(), x() + 1e-9)
case("allclose", x(), x() + 0.01, 0.0, 1e-3)
case("isclose", x(), x() + f(0.0, 1.0, 1e-9))
case("isin", integers(), i(5, 7))

# Activations and losses
case("gelu", x())
case("gelu", x(), approximate="tanh")
case("softplus", x(), 2, 3)
case("elu", x(), 0.5)
case("leaky_relu", x(), 0.1)
case("hardtanh", x(), -0.5, 0.5)
case("softmax", x(), -1)
case("softmax", x(), 0, torch.float64)
case("log_softmax", x(), -1)
case("log_softmax", x(), 1, torch.float64)
case("dropout", x(), 0.5, False)
case("mse_loss", x(), y())
case("mse_loss", x(), y(), "sum", reduction_at=2)
case("l1_loss", x(), y(), "none", reduction_at=2)
case("smooth_l1_loss", x(), y(), "mean", 0.5, reduction_at=2)
case("huber_loss", x(), y(), "sum", 0.7, reduction_at=2)
case("kl_div", x().log_softmax(-1), unit(), "sum", reduction_at=2)
case("binary_cross_entropy", unit(), f(0.0, 1.0, 1.0, 0.0, 0.5, 1.0, shape=(2, 3)))
case("binary_cross_entropy_with_logits", x(), f(0.0, 1.0, 1.0, 0.0, 0.5, 1.0, shape=(2, 3)))
case("binary_cross_entropy_with_logits", x(), unit(), None, f(2.0, 1.0, 0.5), "none", reduction_at=4)
case("nll_loss", x().log_softmax(-1), i(2, 0))
case("nll_loss", x().log_softmax(-1), i(2, -100), None, "sum", reduction_at=3)
case("cross_entropy_loss", x(), i(2, 0))
case("cross_entropy_loss", x(), i(2, 1), None, "none", -100, 0.1, reduction_at=3)
case("cosine_similarity", x(), y(), 1)

# Reductions
case("sum", x())
case("sum", x(), [0, 1])
case("sum", x(), [-1], True)
case("sum", x(), 0)
case("sum", integers(), [1], dtype=torch.float64)
case("nansum", special()[:2], [0])
case("mean", x())
case("mean", x(), [0], True)
case("prod", x())
case("prod", x(), 1, True)
case("amax", x(), [0])
case("amin", x(), [1], True)
case("aminmax", x(), dim=1)
case("argmax", x())
case("argmax", x(), 1, True)
case("argmin", x(), 0)
for name in ("max", "min"):
    case(name, x())
    case(name, x(), 1)
    case(name, x(), 0, True)
    case(name, x(), y())
for name in ("any", "all"):
    case(name, b(True, False, True, True, shape=(2, 2)))
    case(name, b(True, False, True, True, shape=(2, 2)), 1)
case("norm", x())
case("norm", x(), 1)
case("norm", x(), 2, [1], True)
for name in ("std", "var"):
    case(name, x())
    case(name, x(), False)
    case(name, x(), [1], False, True)
case("logsumexp", x(), [1])
case("logsumexp", x(), [0], True)
case("logcumsumexp", x(), 1)
case("cumsum", x(), 1)
case("cumsum", integers(), 0, dtype=torch.float32)
case("cumprod", x(), 1)
case("cummax", x(), 1)
case("cummin", x(), 1)
case("median", x())
case("median", x(), 1)
case("kthvalue", x(), 2, 1)
case("mode", i(1, 2, 2, 3))
case("quantile", x(), f(0.25, 0.5), 1)
case("quantile", x(), 0.5)
case("count_nonzero", i(0, 1, 2, 0, shape=(2, 2)))
case("count_nonzero", i(0, 1, 2, 0, shape=(2, 2)), [0])
case("bincount", i(0, 2, 2, 4))
case("histc", x(), 4, -2, 2)
case("trace", square())

# Ordering and searching
case("topk", x(), 2)
case("topk", x(), 2, 1, False, True)
case("topk", x(), 1, largest=False)
case("sort", x(), 1, True)
case("sort", i(3, 1, 3, 2), stable=True, dim=0, descending=True)
case("argsort", x(), 0)
case("argsort", i(3, 1, 3, 2), stable=True, dim=0, descending=True)
case("searchsorted", f(0.1, 0.5, 0.9), f(0.05, 0.5, 0.95))
case("searchsorted", f(0.1, 0.5, 0.9), f(0.05, 0.5, 0.95), right=True)
case("bucketize", f(0.05, 0.5, 0.95), f(0.1, 0.5, 0.9))
case("unique_consecutive", i(1, 1, 2, 3, 3), True, True)
case("nonzero", i(0, 1, 2, 0, shape=(2, 2)))

# Products
case("matmul", x(), square())
case("matmul", x(), f(1.0, -1.0, 2.0))
case("mm", x(), square())
case("bmm", torch.stack([square(), square().t()]), torch.stack([square(), square()]))
case("mv", square(), f(1.0, -1.0, 2.0))
case("dot", f(1.0, 2.0), f(3.0, -4.0))
case("vdot", f(1.0, 2.0), f(3.0, -4.0))
case("outer", f(1.0, 2.0), f(3.0, -4.0, 5.0))
case("ger", f(1.0, 2.0), f(3.0, -4.0, 5.0))
case("inner", x(), square())
case("kron", f(1.0, 2.0), f(3.0, -4.0))
for name in ("addmm", "addmm_"):
    case(name, x(), x(), square(), beta=0.5, alpha=2)
for name in ("baddbmm", "baddbmm_"):
    case(name, x().reshape(1, 2, 3), x().reshape(1, 2, 3), square().reshape(1, 3, 3), beta=0.5, alpha=2)
for name in ("addmv", "addmv_"):
    case(name, f(1.0, 2.0, 3.0), square(), f(1.0, -1.0, 2.0))
case("addbmm", x(), x().reshape(1, 2, 3), square().reshape(1, 3, 3))
case("addr", square(), f(1.0, 2.0, 3.0), f(3.0, -4.0, 5.0))
case("linear", x(), y())
case("linear", x(), square(), f(1.0, 2.0, 3.0))
case("einsum", "ij,kj->ik", [x(), y()])
case("cdist", x(), y())
case("cross", f(1.0, 0.0, 0.0), f(0.0, 1.0, 0.0), 0)
case("layer_norm", x(), [3], f(1.0, 2.0, 0.5), f(0.0, 1.0, -1.0), 1e-5)
case("layer_norm", x(), [3], eps=1e-2)
case("group_norm", torch.cat([x(), y()], 1), 2)
case("embedding", square(), i(2, 0, 2, 1, shape=(2, 2)))
case("one_hot", i(0, 2, 1), 4)
case("conv1d", x().reshape(1, 2, 3), y()[:, :2].reshape(1, 2, 2))

# Indexing
case("gather", x(), 1, i(2, 0, 1, 1, shape=(2, 2)))
for name in ("scatter", "scatter_"):
    case(name, x(), 1, i(2, 0, shape=(2, 1)), f(9.0, 8.0, shape=(2, 1)))
    case(name, x(), 1, i(2, 0, shape=(2, 1)), 7.0)
for name in ("scatter_add", "scatter_add_"):
    case(name, x(), 1, i(2, 2, 0, 1, shape=(2, 2)), f(9.0, 8.0, 7.0, 6.0, shape=(2, 2)))
for name in ("scatter_reduce", "scatter_reduce_"):
    case(name, x(), 1, i(2, 2, 0, 1, shape=(2, 2)), f(9.0, 8.0, 7.0, 6.0, shape=(2, 2)), "amax")
case("index", x(), [i(1, 0), i(2, 2)])
case("index", x(), [None, i(2, 0)])
case("index", x(), [b(True, False)])
for name in ("index_put", "index_put_"):
    case(name, x(), [i(1, 1), i(2, 2)], f(5.0, 6.0), True)
case("index_select", x(), 1, i(2, 2, 0))
for name in ("index_add", "index_add_"):
    case(name, x(), 0, i(1, 1), y(), alpha=2)
for name in ("index_copy", "index_copy_"):
    case(name, x(), 1, i(2, 0), f(9.0, 8.0, 7.0, 6.0, shape=(2, 2)))
for name in ("index_fill", "index_fill_"):
    case(name, x(), 1, i(2, 0), 4.5)
    case(name, x(), 1, i(2, 0), torch.tensor(4.5))
for name in ("masked_fill", "masked_fill_"):
    case(name, x(), condition(), -1.0)
    case(name, x(), condition(), torch.tensor(2.5))
case("masked_select", x(), condition())
for name in ("masked_scatter", "masked_scatter_"):
    case(name, x(), condition(), f(1.0, 2.0, 3.0, 4.0))
case("take", x(), i(5, 0, -1))
case("take_along_dim", x(), i(2, 0, shape=(2, 1)), 1)
case("select", x(), 1, -1)
case("select_scatter", x(), f(9.0, 8.0), 1, 0)
case("slice", x(), 1, 0, 3, 2)
case("slice", x(), 1, -2)
case("slice_scatter", x(), f(9.0, 8.0, shape=(2, 1)), 1, 1, 2)
case("narrow", x(), 1, 1, 2)

# Shapes
case("cat", [x(), y()], 1)
case("cat", [x(), y()])
case("stack", [x(), y()], 2)
case("split", x(), 2, 1)
case("split", x(), [1, 2], 1)
case("chunk", x(), 2, 1)
case("unbind", x(), 1)
case("expand", f(1.0, 2.0, shape=(2, 1)), [-1, 3])
case("expand_as", f(1.0, 2.0, 3.0), x())
case("broadcast_to", f(1.0, 2.0, 3.0), [2, 3])
case("broadcast_tensors", [f(1.0, 2.0, shape=(2, 1)), f(3.0, 4.0)])
case("reshape", x(), [3, -1])
case("reshape_as", x(), f(*range(6), shape=(3, 2)))
case("view", x(), [6])
case("view_as", x(), f(*range(6), shape=(3, 2)))
case("permute", x(), [1, 0])
case("transpose", x(), 0, 1)
case("t", x())
case("movedim", x(), 0, 1)
case("movedim", x(), [0, 1], [1, 0])
case("contiguous", x().t())
case("squeeze", f(1.0, 2.0, shape=(1, 2, 1)))
case("squeeze", f(1.0, 2.0, shape=(1, 2, 1)), 0)
case("unsqueeze", f(1.0, 2.0), -1)
case("flatten", f(*range(8), shape=(2, 2, 2)), 1, 2)
case("unflatten", f(*range(6)), 0, [2, 3])
case("repeat", f(1.0, 2.0), [2, 2])
case("repeat_interleave", x(), 2, 1)
case("repeat_interleave", x(), i(2, 0), 0)
case("tile", f(1.0, 2.0), [2])
case("roll", x(), [1], [1])
case("flip", x(), [0, 1])
for name in ("tril", "triu", "tril_", "triu_"):
    case(name, square())
    case(name, square(), 1)
case("diag", square())
case("diagonal", square(), 1)
case("diag_embed", f(1.0, 2.0))
case("unfold", f(*range(5)), 0, 3, 1)
case("constant_pad_nd", x(), [1, 0], 7.0)
case("meshgrid", [f(1.0, 2.0), f(3.0, 4.0, 5.0)], indexing="ij")
case("alias", x())

# Copies, filling, random numbers
case("clone", x())
case("detach", x())
case("copy_", x(), f(7.0, 8.0, 9.0))
case("fill_", x(), 2.5)
case("fill_", x(), torch.tensor(3.5))
case("zeros_like", x())
case("ones_like", x(), dtype=torch.int64)
case("full_like", x(), 4)
case("uniform_", x(), -1.0, 2.0, generator=g())
case("normal_", x(), 1.0, 3.0, generator=g())
case("exponential_", x(), 2.0, generator=g())
case("bernoulli", unit(), generator=g())
case("bernoulli", x(), 0.5, generator=g())
case("bernoulli_", x(), 0.25, generator=g())
case("bernoulli_", x(), unit(), generator=g())
case("random_", integers(), 3, 10, generator=g())
case("random_", integers(), 5, generator=g())
case("multinomial", unit(), 2, generator=g())

# dtypes other than float32
case("add", x().bfloat16(), y().bfloat16())
case("mul", x().half(), 3)
case("matmul", x().double(), square().double())
case("matmul", x().bfloat16(), square().bfloat16())
case("sum", b(True, True, False))
case("mul", i(3, 5, dtype=torch.int32), 4)
case("add", i(250, 5, dtype=torch.uint8), 10)
case("div", i(7, 8), 2, rounding_mode="floor")

here = os.path.dirname(os.path.abspath(__file__))
with open(os.path.join(here, "operators.json"), "w") as file:
    head = json.dumps({"torch": torch.__version__, "script": "make_operators.py"})
    file.write('{\n"made": ' + head + ',\n"cases": [\n')
    file.write(",\n".join(json.dumps(item, separators=(",", ":")) for item in cases))
    file.write("\n]\n}\n")
print(len(cases), "cases,", len({item["name"] for item in cases}), "operators")
