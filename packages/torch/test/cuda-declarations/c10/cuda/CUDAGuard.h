#pragma once

#include <c10/cuda/CUDAStream.h>

namespace c10::cuda {

struct CUDAGuard {
  explicit CUDAGuard(Device device) { planted::tell("on " + device.str()); }
};

struct CUDAStreamGuard {
  explicit CUDAStreamGuard(const CUDAStream& stream) : before(current()) { current() = stream.name; }
  ~CUDAStreamGuard() { current() = before; }

  std::string before;
};

}  // namespace c10::cuda
