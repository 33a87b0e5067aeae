// libtorch's ProcessGroupGloo.hpp includes Gloo's headers, which no distribution of libtorch contains. Gloo objects are
// only held through pointers that libtorch itself creates, so these declarations are all that the header needs. If the
// real headers are installed, they are found first.
#pragma once

#include <chrono>

namespace gloo {

class Context {
 public:
  void setTimeout(std::chrono::milliseconds timeout);
};

}  // namespace gloo
