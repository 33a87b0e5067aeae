#include "limits.h"

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <fstream>
#include <iterator>

#include "engine.h"

namespace astra {

namespace {

// Version 1 writes "no limit" as the largest number of pages that fits in 64 bits.
constexpr size_t kNoLimit = size_t{1} << 60;

std::string readAll(const std::string& path) {
  std::ifstream file(path);
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

// A file of one number; kNoLimit for "max" or if there is no such file.
size_t readNumber(const std::string& path) {
  const std::string text = readAll(path);
  if (text.empty() || text[0] < '0' || text[0] > '9') return kNoLimit;
  return static_cast<size_t>(std::min<unsigned long long>(std::strtoull(text.c_str(), nullptr, 10), kNoLimit));
}

// The number after a name, in a file with a name and a number in each line; 0 if absent.
size_t entry(const std::string& text, const std::string& name) {
  for (size_t at = 0; at < text.size(); at = text.find('\n', at) + 1) {
    if (text.compare(at, name.size(), name) == 0) {
      return static_cast<size_t>(std::strtoull(text.c_str() + at + name.size(), nullptr, 10));
    }
    if (text.find('\n', at) == std::string::npos) break;
  }
  return 0;
}

// Pages of files are reclaimed when memory is needed, but dirty ones not immediately.
size_t reclaimable(const std::string& statistics, const std::string& prefix, const std::string& unwritten) {
  const auto of = [&](const std::string& name) { return entry(statistics, name + " "); };
  const size_t cached = of(prefix + "inactive_file") + of(prefix + "active_file");
  const size_t waiting = of(unwritten + "dirty") + of(unwritten + "writeback");
  return cached > waiting ? cached - waiting : 0;
}

}  // namespace

MemoryHeadroom MemoryGroups::headroom() const {
  MemoryHeadroom least;
  const std::string machine = readAll(root + "/proc/meminfo");
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
  for (const std::string& folder : version2) {
    const std::string path = root + folder;
    // Above `high` processes are not killed but throttled heavily.
    const size_t limit = std::min(readNumber(path + "/memory.max"), readNumber(path + "/memory.high"));
    if (limit >= kNoLimit) continue;
    const std::string statistics = readAll(path + "/memory.stat");
    consider(folder, limit, readNumber(path + "/memory.current") % kNoLimit,
             reclaimable(statistics, "", "file_") + entry(statistics, "slab_reclaimable "));
  }
  for (const std::string& folder : version1) {
    const std::string path = root + folder;
    const size_t limit = readNumber(path + "/memory.limit_in_bytes");
    if (limit >= kNoLimit) continue;
    consider(folder, limit, readNumber(path + "/memory.usage_in_bytes") % kNoLimit,
             reclaimable(readAll(path + "/memory.stat"), "total_", "total_"));
  }
  return least;
}

namespace {

// Never freed: the allocator may be reading it while another thread replaces it.
std::atomic<const MemoryGroups*> told{new MemoryGroups};

// root, folders of version 1, folders of version 2
MemoryGroups readGroups(Call& call) {
  const auto folders = [&](size_t index, const char* name) {
    std::vector<std::string> texts;
    for (const napi_value item : readArray(call.env, call.argument(index, name), name)) {
      texts.push_back(readText(call.env, item, name));
    }
    return texts;
  };
  return {call.text(0, "root"), folders(1, "version 1"), folders(2, "version 2")};
}

// memoryHeadroom(groups …): memory that these leave
napi_value memoryHeadroom(Call& call) {
  const MemoryHeadroom headroom = readGroups(call).headroom();
  return makeObject(call.env, {{"available", makeInteger(call.env, static_cast<int64_t>(headroom.available))},
                               {"limit", makeInteger(call.env, static_cast<int64_t>(headroom.limit))},
                               {"of", makeText(call.env, headroom.of)}});
}

// setMemoryGroups(groups …): those of this process
napi_value setMemoryGroups(Call& call) {
  told = new MemoryGroups(readGroups(call));
  return makeUndefined(call.env);
}

const Exports exports{{"memoryHeadroom", memoryHeadroom}, {"setMemoryGroups", setMemoryGroups}};

}  // namespace

const MemoryGroups& MemoryGroups::own() { return *told; }

}  // namespace astra
