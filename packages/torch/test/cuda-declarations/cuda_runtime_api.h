// What native/graph.cpp uses of CUDA, for tests on machines without it: each call is told on standard error, and one fails
// where PLANTED names it.
#pragma once

#include <cstdio>
#include <cstdlib>
#include <stdexcept>
#include <string>

#define CUDART_VERSION 12040

enum cudaStreamCaptureMode { cudaStreamCaptureModeGlobal, cudaStreamCaptureModeThreadLocal, cudaStreamCaptureModeRelaxed };

namespace planted {

inline bool is(const char* call) {
  const char* const named = std::getenv("PLANTED");
  return named != nullptr && std::string(named) == call;
}

inline void tell(const std::string& call) {
  std::fprintf(stderr, "%s\n", call.c_str());
  if (is(call.c_str())) throw std::runtime_error("planted in " + call);
}

}  // namespace planted
