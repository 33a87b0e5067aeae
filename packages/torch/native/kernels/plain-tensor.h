// Tensors whose memory contains their numbers directly, so that loops may read it.
#pragma once

#include <string>
#include <vector>

#include <ATen/core/Tensor.h>

#include "engine.h"
#include "kernels/vector-math.h"

namespace astra {

inline bool isPlain(const at::Tensor& tensor, at::ScalarType type) {
  return tensor.layout() == c10::kStrided && tensor.is_cpu() && tensor.scalar_type() == type && !tensor.is_conj() &&
         !tensor.is_neg();
}

inline bool isReadable(const at::Tensor& tensor) {
  return isPlain(tensor, at::kFloat) || isPlain(tensor, at::kBFloat16);
}

inline bool isWide(const at::Tensor& tensor) { return tensor.scalar_type() == at::kFloat; }

// float32 or bfloat16 numbers, contiguous.
inline at::Tensor plainTensor(Call& call, size_t index, const char* name) {
  const at::Tensor given = call.tensor(index, name);
  if (isReadable(given)) return given.contiguous();
  throw Refusal(std::string(name) + " must be float32 or bfloat16 on the CPU, got " + describeTensor(given));
}

// Pointer to its numbers from an index on; null if it is undefined.
template <typename Number>
Number* numbersOf(const at::Tensor& tensor, int64_t from = 0) {
  return tensor.defined() ? static_cast<Number*>(tensor.data_ptr()) + from : nullptr;
}

// Whether writing to `to` changes neither other numbers of it (views that repeat numbers have strides of 0) nor those that
// are still to be read from `from`. Otherwise copy_ decides, and may refuse.
inline bool isApart(const at::Tensor& to, const at::Tensor& from) {
  for (int64_t dimension = 0; dimension < to.dim(); ++dimension) {
    if (to.size(dimension) > 1 && to.stride(dimension) == 0) return false;
  }
  return !to.storage().is_alias_of(from.storage());
}

// Every loop of this package that writes into a given tensor calls this, like libtorch's in-place operators: a backward
// pass that saved the old numbers then fails, instead of computing with the new ones.
inline void noteWrite(const at::Tensor& tensor) { tensor.unsafeGetTensorImpl()->bump_version(); }

inline float* floatsOf(const at::Tensor& tensor) { return numbersOf<float>(tensor); }
inline uint16_t* words(const at::Tensor& tensor) { return numbersOf<uint16_t>(tensor); }

// A readable layer parameter [n] as float32: libtorch's own conversion takes longer than a norm of few rows.
inline std::vector<float> floatNumbers(const at::Tensor& parameter) {
  const at::Tensor plain = parameter.contiguous();
  std::vector<float> numbers(static_cast<size_t>(plain.numel()));
  const auto take = [&](const auto* from) {
    for (size_t i = 0; i < numbers.size(); ++i) numbers[i] = widen(from[i]);
  };
  isWide(plain) ? take(floatsOf(plain)) : take(words(plain));
  return numbers;
}

}  // namespace astra
