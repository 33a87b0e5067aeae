// Where products of few rows and of many meet.
#pragma once

#include <ATen/core/Tensor.h>

namespace astra {

// input · weightᵀ + bias + residual, float32 where `wide`, for few rows of a bfloat16 or float32 weight that is laid out by
// output; undefined where that is not so. The input, of either type, is rounded to the weight's; sums are float32. The
// residual is float32, contiguous and as the result, and may be undefined as the bias may be null.
at::Tensor linearOfFewRows(const at::Tensor& input, const at::Tensor& weight, const float* bias, bool wide,
                           const at::Tensor& residual);

// The same without tiles, for a weight of which that is so.
at::Tensor fewRowsOnVectors(const at::Tensor& input, const at::Tensor& weight, const float* bias, bool wide,
                            const at::Tensor& residual);

}  // namespace astra
