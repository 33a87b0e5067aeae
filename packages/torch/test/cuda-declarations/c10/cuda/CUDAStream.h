#pragma once

#include <c10/core/Device.h>
#include <cuda_runtime_api.h>

namespace c10::cuda {

struct CUDAStream {
  std::string name;
  DeviceIndex device = 0;

  DeviceIndex device_index() const { return device; }
  void synchronize() const { planted::tell("synchronize " + name); }
};

inline std::string& current() {
  static std::string name = "default";
  return name;
}

inline CUDAStream getCurrentCUDAStream(DeviceIndex device = -1) { return {current(), device < 0 ? DeviceIndex(0) : device}; }
inline CUDAStream getStreamFromPool(bool, DeviceIndex device) {
  planted::tell("take a stream");
  return {"own", device};
}

}  // namespace c10::cuda
