#pragma once

#include <c10/cuda/CUDAStream.h>

#include <utility>

namespace c10 {

using MempoolId_t = std::pair<unsigned long long, unsigned long long>;

}  // namespace c10

namespace at::cuda {

inline c10::MempoolId_t graph_pool_handle() {
  static unsigned long long pools = 0;
  return {0, ++pools};
}

struct CUDAGraph {
  CUDAGraph() = default;
  CUDAGraph(const CUDAGraph&) = delete;
  ~CUDAGraph() { planted::tell("destroy"); }

  void capture_begin(c10::MempoolId_t pool = {0, 0}, cudaStreamCaptureMode mode = cudaStreamCaptureModeGlobal) {
    if (mode != cudaStreamCaptureModeThreadLocal) throw std::runtime_error("another mode");
    planted::tell("begin on " + c10::cuda::current() + ", pool " + std::to_string(pool.second));
    if (planted::is("begin")) throw std::runtime_error("planted in begin");
  }
  void capture_end() { planted::tell("end"); }
  void replay() { planted::tell("replay on " + c10::cuda::current()); }
};

}  // namespace at::cuda
