// Tensors whose memory holds their numbers as they are, so that loops may read it.
#pragma once

#include <ATen/core/Tensor.h>

namespace astra {

inline bool isPlain(const at::Tensor& tensor, at::ScalarType type) {
  return tensor.layout() == c10::kStrided && tensor.is_cpu() && tensor.scalar_type() == type && !tensor.is_conj() &&
         !tensor.is_neg();
}

// The numbers of a bfloat16 tensor.
inline uint16_t* words(const at::Tensor& tensor) { return static_cast<uint16_t*>(tensor.data_ptr()); }

}  // namespace astra
