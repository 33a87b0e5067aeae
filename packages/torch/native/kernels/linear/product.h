// Interface of the products of few and of many rows.
#pragma once

#include <ATen/core/Tensor.h>

namespace astra {

// input · weightᵀ + bias + residual, float32 if `wide`, for few rows and an output-major bfloat16 or float32 weight;
// undefined otherwise. The input, of either type, is rounded to the weight's; sums are float32. The residual is
// float32, contiguous and of the result's shape; it may be undefined, and the bias may be null.
at::Tensor linearOfFewRows(const at::Tensor& input, const at::Tensor& weight, const float* bias, bool wide,
                           const at::Tensor& residual);

// The same without tiles, for such a weight.
at::Tensor fewRowsOnVectors(const at::Tensor& input, const at::Tensor& weight, const float* bias, bool wide,
                            const at::Tensor& residual);

}  // namespace astra
