// What the system lets this process use: of the machine, and of every control group that it is in.
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

// The folders of one kind of limit, the process's own group first, then those above it; and how the files are called.
struct GroupFolders {
  std::vector<std::string> version1, version2;
};

class SystemLimits {
 public:
  // `root` stands before every path that is read: "" but in tests. Groups are looked up once, limits at each call.
  explicit SystemLimits(std::string root);

  // The least of what the machine and each control group leave.
  MemoryHeadroom memory() const;
  // Processors' worth of time that the control groups allow; 0 without a limit.
  double processors() const;

  // Of this process. ASTRA_SYSTEM_ROOT names another root: the tests' way to a machine with other limits.
  static const SystemLimits& own();

 private:
  std::string root_;
  GroupFolders memory_, processors_;
};

}  // namespace astra
