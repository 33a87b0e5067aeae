// Arguments for which libtorch's own code crashes the process or reads memory outside the tensor.
#pragma once

#include <string>

#include <ATen/core/stack.h>

namespace astra {

// Throws Refusal if the operator must not run with the arguments on its stack, or makes a tensor there contiguous.
using Hazard = void (*)(torch::jit::Stack& stack);

// Null for nearly all operators. `name` is "aten::add", without the overload.
Hazard hazardOf(const std::string& name);

}  // namespace astra
