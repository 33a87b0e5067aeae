// Arguments at which libtorch's own code ends the process or reads memory that is not the tensor's.
#pragma once

#include <string>

#include <ATen/core/stack.h>

namespace astra {

// Throws Refusal where the operator must not run with what is on its stack, or lays out a tensor there as it must lie.
using Hazard = void (*)(torch::jit::Stack& stack);

// Null for nearly all operators. `name` is "aten::add", without the overload.
Hazard hazardOf(const std::string& name);

}  // namespace astra
