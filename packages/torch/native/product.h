// Where products of few rows and of many meet.
#pragma once

#include <ATen/core/Tensor.h>

namespace astra {

// input · weightᵀ + bias + residual, float32 where `wide`, for few rows of a bfloat16 weight that is laid out by output;
// undefined where that is not so. Input and bias are float32 or bfloat16; residual is [rows, outputs] or null.
at::Tensor linearOfFewRows(const at::Tensor& input, const at::Tensor& weight, const at::Tensor& bias, bool wide,
                           const float* residual);

// left [m, k] · right [k, n] + bias [n] + residual, of numbers of any type that are rounded to bfloat16: without tiles, with
// sums in float32. A new tensor of `shape`, which has m · n numbers; float32 where `wide`. Bias and residual may be undefined.
at::Tensor plainProduct(const at::Tensor& left, const at::Tensor& right, const at::Tensor& bias, bool wide,
                        const at::Tensor& residual, at::IntArrayRef shape);

}  // namespace astra
