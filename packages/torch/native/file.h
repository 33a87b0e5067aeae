// A file that tensors are read from.
#pragma once

#include <sys/stat.h>

#include <cstdint>
#include <string>

namespace astra {

struct OpenFile {
  int descriptor = -1;
  std::string path;
  struct stat facts {};  // when it was opened

  OpenFile() = default;
  OpenFile(const OpenFile&) = delete;
  OpenFile& operator=(const OpenFile&) = delete;
  ~OpenFile();

  int64_t bytes() const { return static_cast<int64_t>(facts.st_size); }
  bool isChanged() const;  // its size or its time of modification
};

}  // namespace astra
