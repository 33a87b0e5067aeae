// Memory available to this process: of the machine, and of all its control groups. JavaScript finds the groups
// (control-groups.ts); their limits and use are read here, whenever memory is requested.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

namespace astra {

struct MemoryHeadroom {
  size_t available = 0;  // bytes that can still be taken without swapping
  size_t limit = 0;      // bytes of which those are left; 0 where the system does not tell
  std::string of;        // whose limit it is, for messages
};

// Folders of the process's own group and those above it, of either version; `root` is the prefix of every path that is
// read.
struct MemoryGroups {
  std::string root;
  std::vector<std::string> version1, version2;

  // The minimum of what the machine and each control group leave.
  MemoryHeadroom headroom() const;

  // Of this process, as set by setMemoryGroups().
  static const MemoryGroups& own();
};

}  // namespace astra
