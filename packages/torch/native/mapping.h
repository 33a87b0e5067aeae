// A file mapped into memory, shared by every tensor that looks into it.
#pragma once

#include <cstddef>

namespace astra {

struct Mapping {
  void* address = nullptr;
  size_t bytes = 0;
  Mapping() = default;
  Mapping(const Mapping&) = delete;
  Mapping& operator=(const Mapping&) = delete;
  ~Mapping();
};

}  // namespace astra
