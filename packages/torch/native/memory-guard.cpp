// A CPU allocator in front of libtorch's own: it refuses what cannot be backed by memory. Linux would promise the
// pages and then kill the process when they are touched.
#include <c10/core/CPUAllocator.h>
#include <torch/version.h>

#include <cstdio>
#include <cstring>
#include <mutex>

#include "engine.h"

namespace astra {

namespace {

constexpr size_t kAsksTheKernel = 64u << 20;  // smaller requests cannot be the ones that break the machine

// Bytes that can still be used without swapping; 0 where the kernel does not tell.
size_t availableMemory() {
  std::FILE* file = std::fopen("/proc/meminfo", "re");
  if (file == nullptr) return 0;
  char line[160];
  unsigned long long kibibytes = 0;
  while (std::fgets(line, sizeof line, file) != nullptr) {
    if (std::sscanf(line, "MemAvailable: %llu kB", &kibibytes) == 1) break;
  }
  std::fclose(file);
  return static_cast<size_t>(kibibytes) * 1024;
}

class GuardedAllocator final : public c10::Allocator {
 public:
  explicit GuardedAllocator(c10::Allocator* inner) : inner_(inner) {}

#if TORCH_VERSION_MAJOR > 2 || (TORCH_VERSION_MAJOR == 2 && TORCH_VERSION_MINOR >= 3)
  c10::DataPtr allocate(size_t bytes) override {
    refuseBeyondMemory(bytes);
    return inner_->allocate(bytes);
  }
  void copy_data(void* destination, const void* source, size_t count) const override {
    std::memcpy(destination, source, count);
  }
#else
  c10::DataPtr allocate(size_t bytes) const override {
    refuseBeyondMemory(bytes);
    return inner_->allocate(bytes);
  }
#endif
  c10::DeleterFnPtr raw_deleter() const override { return inner_->raw_deleter(); }

 private:
  static void refuseBeyondMemory(size_t bytes) {
    if (bytes < kAsksTheKernel) return;
    const size_t available = availableMemory();
    if (available > 0 && bytes > available - available / 16) {
      throw Refusal("needs " + std::to_string(bytes >> 20) + " MiB of memory at once, " +
                    std::to_string(available >> 20) + " MiB are available");
    }
  }

  c10::Allocator* inner_;
};

}  // namespace

void guardCpuMemory() {
  // The allocator belongs to the process: workers that load the addon again find it in place.
  static std::once_flag once;
  std::call_once(once, [] {
    static auto* guard = new GuardedAllocator(c10::GetCPUAllocator());
    c10::SetCPUAllocator(guard);
  });
}

}  // namespace astra
