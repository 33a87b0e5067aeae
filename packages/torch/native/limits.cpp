#include "limits.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <sstream>

#include "engine.h"

namespace astra {

namespace {

// Version 1 writes "no limit" as the most pages that fit in 64 bits.
constexpr size_t kNoLimit = size_t{1} << 60;

std::string readAll(const std::string& path) {
  std::ifstream file(path);
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

// A file of one number; kNoLimit for "max" or where there is no such file.
size_t readNumber(const std::string& path) {
  const std::string text = readAll(path);
  if (text.empty() || text[0] < '0' || text[0] > '9') return kNoLimit;
  return static_cast<size_t>(std::min<unsigned long long>(std::strtoull(text.c_str(), nullptr, 10), kNoLimit));
}

// The number behind one of the names of a file with a name and a number in each line; 0 where there is none.
size_t entry(const std::string& text, const std::string& name) {
  for (size_t at = 0; at < text.size(); at = text.find('\n', at) + 1) {
    if (text.compare(at, name.size(), name) == 0) {
      return static_cast<size_t>(std::strtoull(text.c_str() + at + name.size(), nullptr, 10));
    }
    if (text.find('\n', at) == std::string::npos) break;
  }
  return 0;
}

// Spaces and such are written as \040 in /proc/self/mountinfo.
std::string unescaped(const std::string& text) {
  std::string plain;
  for (size_t at = 0; at < text.size(); ++at) {
    if (text[at] == '\\' && at + 3 < text.size()) {
      plain += static_cast<char>(std::strtol(text.substr(at + 1, 3).c_str(), nullptr, 8));
      at += 3;
    } else {
      plain += text[at];
    }
  }
  return plain;
}

bool contains(const std::string& list, const std::string& name) {
  std::stringstream parts(list);
  for (std::string part; std::getline(parts, part, ',');) {
    if (part == name) return true;
  }
  return false;
}

// The group's folder and those above it, as far as the mount shows them.
std::vector<std::string> foldersOf(const std::string& root, const std::string& mountRoot, const std::string& mount,
                                   const std::string& group) {
  std::string below;
  if (mountRoot == "/") {
    below = group;
  } else if (group == mountRoot || group.compare(0, mountRoot.size() + 1, mountRoot + "/") == 0) {
    below = group.substr(mountRoot.size());
  }
  std::error_code unreadable;
  // In a container the group may be named as the machine outside sees it, and the mount shows only what is inside.
  if (below.compare(0, 1, "/") != 0 || below == "/" || below.find("/..") != std::string::npos ||
      !std::filesystem::is_directory(root + mount + below, unreadable)) {
    below.clear();
  }
  std::vector<std::string> folders;
  for (;; below.resize(below.rfind('/'))) {
    folders.push_back(mount + below);
    if (below.empty()) return folders;
  }
}

GroupFolders findGroups(const std::string& root, const std::string& controller) {
  // /proc/self/cgroup: "4:memory:/path" for version 1, "0::/path" for version 2
  std::string group1, group2;
  std::stringstream groups(readAll(root + "/proc/self/cgroup"));
  for (std::string line; std::getline(groups, line);) {
    const size_t first = line.find(':'), second = line.find(':', first + 1);
    if (first == std::string::npos || second == std::string::npos) continue;
    const std::string controllers = line.substr(first + 1, second - first - 1);
    if (controllers.empty()) group2 = line.substr(second + 1);
    if (contains(controllers, controller)) group1 = line.substr(second + 1);
  }
  // /proc/self/mountinfo: "35 31 0:29 ROOT MOUNT options … - TYPE source OPTIONS"
  GroupFolders found;
  std::stringstream mounts(readAll(root + "/proc/self/mountinfo"));
  for (std::string line; std::getline(mounts, line);) {
    std::stringstream fields(line);
    std::string skipped, mountRoot, mount, type, options;
    fields >> skipped >> skipped >> skipped >> mountRoot >> mount;
    const size_t dash = line.find(" - ");
    if (dash == std::string::npos) continue;
    std::stringstream rest(line.substr(dash + 3));
    rest >> type >> skipped >> options;
    mountRoot = unescaped(mountRoot);
    mount = unescaped(mount);
    if (type == "cgroup" && !group1.empty() && found.version1.empty() && contains(options, controller)) {
      found.version1 = foldersOf(root, mountRoot, mount, group1);
    }
    if (type == "cgroup2" && !group2.empty() && found.version2.empty()) {
      found.version2 = foldersOf(root, mountRoot, mount, group2);
    }
  }
  return found;
}

// Pages of files are given back when memory is wanted, but those that have to be written first are not at once.
size_t reclaimable(const std::string& statistics, const std::string& prefix, const std::string& unwritten) {
  const auto of = [&](const std::string& name) { return entry(statistics, name + " "); };
  const size_t cached = of(prefix + "inactive_file") + of(prefix + "active_file");
  const size_t waiting = of(unwritten + "dirty") + of(unwritten + "writeback");
  return cached > waiting ? cached - waiting : 0;
}

}  // namespace

SystemLimits::SystemLimits(std::string root)
    : root_(std::move(root)), memory_(findGroups(root_, "memory")), processors_(findGroups(root_, "cpu")) {}

MemoryHeadroom SystemLimits::memory() const {
  MemoryHeadroom least;
  const std::string machine = readAll(root_ + "/proc/meminfo");
  least.available = entry(machine, "MemAvailable:") * 1024;
  least.limit = entry(machine, "MemTotal:") * 1024;
  least.of = "this machine";
  if (least.available == 0) least.limit = 0;
  const auto consider = [&](const std::string& folder, size_t limit, size_t used, size_t cached) {
    used = used > cached ? used - cached : 0;
    const size_t available = limit > used ? limit - used : 0;
    if (least.limit != 0 && available >= least.available) return;
    least = {available, limit, "the control group " + folder};
  };
  for (const std::string& folder : memory_.version2) {
    const std::string path = root_ + folder;
    // Above `high` processes are not killed but held up until they hardly move.
    const size_t limit = std::min(readNumber(path + "/memory.max"), readNumber(path + "/memory.high"));
    if (limit >= kNoLimit) continue;
    const std::string statistics = readAll(path + "/memory.stat");
    consider(folder, limit, readNumber(path + "/memory.current") % kNoLimit,
             reclaimable(statistics, "", "file_") + entry(statistics, "slab_reclaimable "));
  }
  for (const std::string& folder : memory_.version1) {
    const std::string path = root_ + folder;
    const size_t limit = readNumber(path + "/memory.limit_in_bytes");
    if (limit >= kNoLimit) continue;
    consider(folder, limit, readNumber(path + "/memory.usage_in_bytes") % kNoLimit,
             reclaimable(readAll(path + "/memory.stat"), "total_", "total_"));
  }
  return least;
}

double SystemLimits::processors() const {
  double least = 0;
  const auto consider = [&](double quota, double period) {
    if (quota > 0 && period > 0 && (least == 0 || quota / period < least)) least = quota / period;
  };
  for (const std::string& folder : processors_.version2) {
    double quota = 0, period = 0;  // "max 100000" has no first number
    if (std::sscanf(readAll(root_ + folder + "/cpu.max").c_str(), "%lf %lf", &quota, &period) == 2) {
      consider(quota, period);
    }
  }
  for (const std::string& folder : processors_.version1) {
    consider(std::strtod(readAll(root_ + folder + "/cpu.cfs_quota_us").c_str(), nullptr),  // -1: no limit
             std::strtod(readAll(root_ + folder + "/cpu.cfs_period_us").c_str(), nullptr));
  }
  return least;
}

const SystemLimits& SystemLimits::own() {
  static const SystemLimits limits([] {
    const char* root = std::getenv("ASTRA_SYSTEM_ROOT");
    return std::string(root == nullptr ? "" : root);
  }());
  return limits;
}

namespace {

// systemLimits(root): what SystemLimits finds under another root; null for this process's own
napi_value systemLimits(Call& call) {
  const bool own = call.absent(0);
  const SystemLimits limits = own ? SystemLimits::own() : SystemLimits(call.text(0, "root"));
  const MemoryHeadroom memory = limits.memory();
  return makeObject(call.env, {
      {"availableMemory", makeInteger(call.env, static_cast<int64_t>(memory.available))},
      {"memoryLimit", makeInteger(call.env, static_cast<int64_t>(memory.limit))},
      {"memoryOf", makeText(call.env, memory.of)},
      {"processors", makeNumber(call.env, limits.processors())}});
}

const Exports exports{{"systemLimits", systemLimits}};

}  // namespace

}  // namespace astra
