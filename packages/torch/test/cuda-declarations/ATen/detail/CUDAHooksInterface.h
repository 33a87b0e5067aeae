#pragma once

#include <cuda_runtime_api.h>

namespace at::detail {

struct PlantedHooks {
  long versionCUDART() const { return planted::is("version") ? 11080 : CUDART_VERSION; }
};

inline const PlantedHooks& plantedHooks() {
  static const PlantedHooks hooks;
  return hooks;
}

}  // namespace at::detail

// The addon's other files call libtorch's own function of this name.
#define getCUDAHooks plantedHooks
