// A CPU allocator in front of libtorch's own: it refuses what cannot be backed by memory. Linux would promise the
// pages and then kill the process when they are touched.
#include <c10/core/CPUAllocator.h>
#include <torch/version.h>

#include <atomic>
#include <cstdio>
#include <cstring>
#include <mutex>
#ifdef __GLIBC__
#include <malloc.h>
#endif

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

std::atomic<int64_t> limit{0};  // bytes that one tensor may take; 0 = as the machine allows

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
    const int64_t allowed = limit.load(std::memory_order_relaxed);
    if (allowed > 0 && bytes > static_cast<size_t>(allowed)) {
      throw Refusal("needs " + std::to_string(bytes) + " bytes at once, the limit is " + std::to_string(allowed));
    }
    if (bytes < kAsksTheKernel) return;
    const size_t available = availableMemory();
    if (available > 0 && bytes > available - available / 16) {
      throw Refusal("needs " + std::to_string(bytes >> 20) + " MiB of memory at once, " +
                    std::to_string(available >> 20) + " MiB are available");
    }
  }

  c10::Allocator* inner_;
};

// setAllocationLimit(bytes): 0 lifts the limit
napi_value setAllocationLimit(Call& call) {
  const int64_t bytes = call.integer(0, "bytes");
  if (bytes < 0) throw Refusal("bytes must not be negative, got " + std::to_string(bytes));
  limit.store(bytes, std::memory_order_relaxed);
  return makeUndefined(call.env);
}

// trimMemory(): free memory that the C library keeps goes back to the system, where the library can do that
napi_value trimMemory(Call& call) {
#ifdef __GLIBC__
  malloc_trim(0);
#endif
  return makeUndefined(call.env);
}

}  // namespace

void defineMemory(napi_env env, napi_value exports, Engine* engine) {
  define(env, exports, engine, "trimMemory", trimMemory);
  define(env, exports, engine, "setAllocationLimit", setAllocationLimit);
}

void guardCpuMemory() {
  // The allocator belongs to the process: workers that load the addon again find it in place.
  static std::once_flag once;
  std::call_once(once, [] {
    static auto* guard = new GuardedAllocator(c10::GetCPUAllocator());
    c10::SetCPUAllocator(guard);
  });
}

}  // namespace astra
