// The ATen operators with a typed wrapper; no others have one.
//
// Excluded on purpose: as_strided, set_, resize_, from_file and the unsafe_* family, which can reach memory that
// a tensor does not own; sparse, quantized and nested constructors; operators that change a tensor's shape in place
// (shapes are cached in JavaScript); `out=` variants, which may resize.
//
// "name" is the overload without a name. If a name has several overloads, they are merged into one method and selected
// by the arguments; they are tried in this order, and the last one is used if no other matches.

const unary = `
  abs neg exp exp2 expm1 log log2 log10 log1p sqrt rsqrt square reciprocal sign sin cos tan asin acos atan sinh cosh
  tanh asinh acosh atanh erf erfc erfinv sigmoid floor ceil trunc frac relu silu mish lgamma digamma
  isnan isinf isfinite signbit logical_not bitwise_not log_sigmoid hardswish selu
`;
const unaryInPlace = `
  abs_ neg_ exp_ expm1_ log_ log1p_ sqrt_ rsqrt_ square_ reciprocal_ sigmoid_ tanh_ relu_ silu_ floor_ ceil_ trunc_
  zero_ logical_not_ bitwise_not_
`;
const words = (text) => text.trim().split(/\s+/u);
const both = (names, ...overloads) => words(names).map((name) => [name, ...overloads]);

/** [name, ...overloads] */
export const operatorTable = [
  ...words(unary).map((name) => [name, ""]),
  ...words(unaryInPlace).map((name) => [name, ""]),

  // Arithmetic
  ...both("add sub mul", "Tensor", "Scalar"),
  ...both("add_ sub_ mul_", "Tensor", "Scalar"),
  ...both("div div_", "Tensor_mode", "Scalar_mode"),
  ...both("remainder fmod remainder_ fmod_ floor_divide_ copysign", "Tensor", "Scalar"),
  ["floor_divide", "", "Scalar"],
  ["rsub", "Tensor", "Scalar"],
  ["pow", "Tensor_Tensor", "Tensor_Scalar"],
  ["pow_", "Tensor", "Scalar"],
  ["float_power", "Tensor_Tensor", "Tensor_Scalar"],
  ...both("round round_", ""),
  ...both("maximum minimum fmax fmin atan2 hypot logaddexp logaddexp2", ""),
  ...both("clamp clamp_", "Tensor", ""),
  ...both("clamp_min clamp_max clamp_min_ clamp_max_", "Tensor", ""),
  ...both("lerp lerp_", "Tensor", "Scalar"),
  ...both("addcmul addcdiv addcmul_ addcdiv_", ""),
  ["nan_to_num", ""],
  ["nan_to_num_", ""],
  ["xlogy", "Tensor", "Scalar_Other"],
  ["logit", ""],

  // Comparison, logic
  ...both("eq ne lt le gt ge", "Tensor", "Scalar"),
  ...both("logical_and logical_or logical_xor logical_and_ logical_or_ logical_xor_", ""),
  ...both("bitwise_and bitwise_or bitwise_xor bitwise_and_ bitwise_or_", "Tensor", "Scalar"),
  ...both("bitwise_left_shift bitwise_right_shift", "Tensor", "Tensor_Scalar"),
  ["where", "self", "ScalarOther", "ScalarSelf", "Scalar"],
  ["equal", ""],
  ["allclose", ""],
  ["isclose", ""],
  ["isin", "Tensor_Tensor"],

  // Activations and losses
  ["gelu", ""],
  ["softplus", ""],
  ["elu", ""],
  ["leaky_relu", ""],
  ["hardtanh", ""],
  ["softmax", "int"],
  ["log_softmax", "int"],
  ["dropout", ""],
  ["mse_loss", ""],
  ["l1_loss", ""],
  ["smooth_l1_loss", ""],
  ["huber_loss", ""],
  ["kl_div", ""],
  ["binary_cross_entropy", ""],
  ["binary_cross_entropy_with_logits", ""],
  ["nll_loss", ""],
  ["cross_entropy_loss", ""],
  ["cosine_similarity", ""],

  // Reductions
  ["sum", "dim_IntList", ""],
  ["mean", "dim", ""],
  ["prod", "dim_int", ""],
  ["amax", ""],
  ["amin", ""],
  ["aminmax", ""],
  ["argmax", ""],
  ["argmin", ""],
  ["max", "other", "dim", ""],
  ["min", "other", "dim", ""],
  ["any", "dim", ""],
  ["all", "dim", ""],
  ["norm", "ScalarOpt_dim", "Scalar"],
  ["std", "dim", ""],
  ["var", "dim", ""],
  ["logsumexp", ""],
  ["logcumsumexp", ""],
  ["cumsum", ""],
  ["cumprod", ""],
  ["cummax", ""],
  ["cummin", ""],
  ["median", "dim", ""],
  ["kthvalue", ""],
  ["mode", ""],
  ["quantile", "", "scalar"],
  ["count_nonzero", "dim_IntList", ""],
  ["bincount", ""],
  ["histc", ""],
  ["trace", ""],
  ["nansum", ""],

  // Ordering and searching
  ["topk", ""],
  ["sort", "stable", ""],
  ["argsort", "stable", ""],
  ["searchsorted", "Tensor"],
  ["bucketize", "Tensor"],
  ["unique_consecutive", ""],
  ["nonzero", ""],

  // Products
  ...both("matmul mm bmm mv dot outer ger vdot inner kron", ""),
  ...both("addmm addmv addbmm baddbmm addr addmm_ baddbmm_ addmv_", ""),
  ["linear", ""],
  ["einsum", ""],
  ["cdist", ""],
  ["cross", ""],
  ["layer_norm", ""],
  ["group_norm", ""],
  ["embedding", ""],
  ["one_hot", ""],
  ["conv1d", ""],

  // Indexing
  ["gather", ""],
  ["scatter", "src", "value"],
  ["scatter_", "src", "value"],
  ["scatter_add", ""],
  ["scatter_add_", ""],
  ["scatter_reduce", "two"],
  ["scatter_reduce_", "two"],
  ["index", "Tensor"],
  ["index_put", ""],
  ["index_put_", ""],
  ["index_select", ""],
  ["index_add", ""],
  ["index_add_", ""],
  ["index_copy", ""],
  ["index_copy_", ""],
  ["index_fill", "int_Tensor", "int_Scalar"],
  ["index_fill_", "int_Tensor", "int_Scalar"],
  ["masked_fill", "Tensor", "Scalar"],
  ["masked_fill_", "Tensor", "Scalar"],
  ["masked_select", ""],
  ["masked_scatter", ""],
  ["masked_scatter_", ""],
  ["take", ""],
  ["take_along_dim", ""],
  ["select", "int"],
  ["select_scatter", ""],
  ["slice", "Tensor"],
  ["slice_scatter", ""],
  ["narrow", ""],

  // Shapes
  ["cat", ""],
  ["stack", ""],
  ["split", "sizes", "Tensor"],
  ["chunk", ""],
  ["unbind", "int"],
  ["expand", ""],
  ["expand_as", ""],
  ["broadcast_to", ""],
  ["broadcast_tensors", ""],
  ["reshape", ""],
  ["reshape_as", ""],
  ["view", "dtype", ""],
  ["view_as", ""],
  ["permute", ""],
  ["transpose", "int"],
  ["t", ""],
  ["movedim", "intlist", "int"],
  ["contiguous", ""],
  ["squeeze", "dim", ""],
  ["unsqueeze", ""],
  ["flatten", "using_ints"],
  ["unflatten", "int"],
  ["repeat", ""],
  ["repeat_interleave", "self_Tensor", "self_int"],
  ["tile", ""],
  ["roll", ""],
  ["flip", ""],
  ["tril", ""],
  ["triu", ""],
  ["tril_", ""],
  ["triu_", ""],
  ["diag", ""],
  ["diagonal", ""],
  ["diag_embed", ""],
  ["unfold", ""],
  ["constant_pad_nd", ""],
  ["meshgrid", "indexing"],
  ["alias", ""],

  // Copies, filling, random numbers
  ["clone", ""],
  ["detach", ""],
  ["copy_", ""],
  ["fill_", "Tensor", "Scalar"],
  ["zeros_like", ""],
  ["ones_like", ""],
  ["empty_like", ""],
  ["full_like", ""],
  ["rand_like", ""],
  ["randn_like", ""],
  ["uniform_", ""],
  ["normal_", ""],
  ["exponential_", ""],
  ["bernoulli", "p", ""],
  ["bernoulli_", "Tensor", "float"],
  ["random_", "from", "to", ""],
  ["multinomial", ""],
];

/** Operators that this package's TypeScript calls by index; they get a constant and no wrapper. */
export const internalOperators = [
  "aten::empty.memory_format",
  "aten::zeros",
  "aten::ones",
  "aten::full",
  "aten::arange.start_step",
  "aten::linspace",
  "aten::eye.m",
  "aten::rand.generator",
  "aten::randn.generator",
  "aten::randint.low_generator",
  "aten::randperm.generator",
  "aten::to.dtype",
  "aten::to.dtype_layout",
];

/**
 * Operators that only later versions of libtorch have: called by index, too, and only where the loaded one has them. Their
 * schemas are written here, since the libtorch that the committed file is made with has none of them.
 */
export const laterOperators = {
  "aten::rms_norm":
    "aten::rms_norm(Tensor input, SymInt[] normalized_shape, Tensor? weight=None, float? eps=None) -> Tensor",
};
