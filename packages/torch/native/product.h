// Where products of few rows and of many meet.
#pragma once

#include <ATen/core/Tensor.h>

namespace astra {

// input · weightᵀ + bias + residual, float32 where `wide`, for few rows of a bfloat16 or float32 weight that is laid out by
// output; undefined where that is not so. The input, of either type, is rounded to the weight's; sums are float32. The bias
// is of either type, the residual float32, contiguous and as the result; both may be undefined.
at::Tensor linearOfFewRows(const at::Tensor& input, const at::Tensor& weight, const at::Tensor& bias, bool wide,
                           const at::Tensor& residual);

// The same without tiles, for a weight of which that is so.
at::Tensor fewRowsOnVectors(const at::Tensor& input, const at::Tensor& weight, const at::Tensor& bias, bool wide,
                            const at::Tensor& residual);

// left [m, k] · right [k, n] + bias [n] + residual, of numbers of any type that are rounded to bfloat16: without tiles, with
// sums in float32. A new tensor of `shape`, which has m · n numbers; float32 where `wide`. Bias and residual may be undefined.
at::Tensor plainProduct(const at::Tensor& left, const at::Tensor& right, const at::Tensor& bias, bool wide,
                        const at::Tensor& residual, at::IntArrayRef shape);

}  // namespace astra
