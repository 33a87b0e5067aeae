// Tensors whose memory holds their numbers as they are, so that loops may read it.
#pragma once

#include <ATen/core/Tensor.h>

namespace astra {

inline bool isPlain(const at::Tensor& tensor, at::ScalarType type) {
  return tensor.layout() == c10::kStrided && tensor.is_cpu() && tensor.scalar_type() == type && !tensor.is_conj() &&
         !tensor.is_neg();
}

// Whether writing to `to` changes neither other numbers of it (views that repeat numbers have strides of 0) nor those that
// are still to be read from `from`. copy_ decides, and refuses, where it does.
inline bool isApart(const at::Tensor& to, const at::Tensor& from) {
  for (int64_t dimension = 0; dimension < to.dim(); ++dimension) {
    if (to.size(dimension) > 1 && to.stride(dimension) == 0) return false;
  }
  return !to.storage().is_alias_of(from.storage());
}

// Every loop of ours that writes into a given tensor says so, as libtorch's operators in place do: a backward pass that
// saved the old numbers then refuses, instead of computing with the new ones.
inline void noteWrite(const at::Tensor& tensor) { tensor.unsafeGetTensorImpl()->bump_version(); }

// The numbers of a float32 tensor; null where it is undefined.
inline float* floatsOf(const at::Tensor& tensor) {
  return tensor.defined() ? static_cast<float*>(tensor.data_ptr()) : nullptr;
}

// The numbers of a bfloat16 tensor.
inline uint16_t* words(const at::Tensor& tensor) { return static_cast<uint16_t*>(tensor.data_ptr()); }

}  // namespace astra
