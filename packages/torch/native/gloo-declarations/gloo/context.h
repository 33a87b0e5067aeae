// libtorch's ProcessGroupGloo.hpp includes Gloo's headers, which no distribution of libtorch ships. Everything of Gloo is
// held through pointers that libtorch itself makes, so that these declarations are all the header needs. Where the real
// headers are installed, they are found first.
#pragma once

#include <chrono>

namespace gloo {

class Context {
 public:
  void setTimeout(std::chrono::milliseconds timeout);
};

}  // namespace gloo
