// Where products of few rows and of many meet.
#pragma once

#include <ATen/core/Tensor.h>

namespace astra {

// input · weightᵀ + bias + residual, float32 where `wide`, for few rows of a bfloat16 weight that is laid out by output;
// undefined where that is not so. Input and bias are float32 or bfloat16; residual is [rows, outputs] or null.
at::Tensor linearOfFewRows(const at::Tensor& input, const at::Tensor& weight, const at::Tensor& bias, bool wide,
                           const float* residual);

}  // namespace astra
