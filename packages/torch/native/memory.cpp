// The CPU allocator in front of libtorch's own. Three things it adds: large blocks are kept for the next tensor rather
// than mapped, faulted in and zeroed each time; what tensors take is counted; and a request that no memory can back is
// refused, where Linux would promise the pages and kill the process when they are touched.
#include <c10/core/CPUAllocator.h>
#include <c10/core/impl/alloc_cpu.h>
#include <torch/version.h>

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <cstring>
#include <list>
#include <map>
#include <mutex>
#include <unordered_map>
#ifdef __APPLE__
#include <malloc/malloc.h>
#else
#include <malloc.h>
#endif
#ifdef __linux__
#include <sys/mman.h>
#endif

#include "engine.h"

namespace astra {

namespace {

constexpr size_t kAsksTheKernel = 64u << 20;  // smaller requests cannot be the ones that break the machine
constexpr size_t kLarge = 256u << 10;         // from here on blocks are ours; smaller ones the C library serves well
constexpr size_t kHugePage = 2u << 20;
// Blocks that are kept may make the process larger than its tensors ever were together by no more than this.
constexpr size_t kSlack = 64u << 20;

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

// Blocks of at least kLarge bytes. Free ones are kept, the best fitting is taken again, and the longest unused go back to
// the system as soon as tensors and kept blocks together pass the most that tensors alone have ever taken (and kSlack).
class BlockPool {
 public:
  // At least so many bytes, and how many; null where the system has no memory.
  void* take(size_t bytes, size_t* size) {
    size_t wanted = rounded(bytes);
    std::lock_guard<std::mutex> lock(mutex_);
    auto fit = free_.lower_bound(wanted);
    void* block = nullptr;
    if (fit != free_.end() && fit->first <= wanted + wanted / 4) {
      block = fit->second->start;
      wanted = fit->first;
      kept_ -= wanted;
      age_.erase(fit->second);
      free_.erase(fit);
    } else {
      shrinkTo(allowance(used_ + wanted));
      block = map(wanted);
      if (block == nullptr) {
        shrinkTo(0);
        block = map(wanted);
      }
      if (block == nullptr) return nullptr;
    }
    used_ += wanted;
    highest_ = std::max(highest_, used_);
    sizes_.emplace(block, wanted);
    *size = wanted;
    return block;
  }

  // The block's size; 0 where it is not one of the pool's.
  size_t give(void* block) {
    std::lock_guard<std::mutex> lock(mutex_);
    const auto found = sizes_.find(block);
    if (found == sizes_.end()) return 0;
    const size_t size = found->second;
    sizes_.erase(found);
    used_ -= size;
    kept_ += size;
    age_.push_back({block, size});
    free_.emplace(size, std::prev(age_.end()));
    shrinkTo(allowance(used_));
    return size;
  }

  // Every free block goes back to the system, and the most that tensors have taken is counted anew.
  void empty() {
    std::lock_guard<std::mutex> lock(mutex_);
    shrinkTo(0);
    highest_ = used_;
  }

  size_t kept() {
    std::lock_guard<std::mutex> lock(mutex_);
    return kept_;
  }

 private:
  struct Block {
    void* start;
    size_t size;
  };
  using Ages = std::list<Block>;

  // At most an eighth more than asked for, a thirty-second from 16 MiB on, so that similar requests find each other.
  static size_t rounded(size_t bytes) {
    size_t power = kLarge;
    while (power <= bytes / 2) power *= 2;
    const size_t step = std::max<size_t>(power / (power >= (16u << 20) ? 32 : 8), 64u << 10);
    return (bytes + step - 1) / step * step;
  }

  size_t allowance(size_t used) const {
    const size_t most = std::max(highest_, used) + kSlack;
    return most - used;
  }

  void shrinkTo(size_t kept) {
    while (kept_ > kept) {
      const auto oldest = age_.begin();
      auto [at, end] = free_.equal_range(oldest->size);
      while (at != end && at->second != oldest) ++at;
      if (at != end) free_.erase(at);
      unmap(oldest->start, oldest->size);
      kept_ -= oldest->size;
      age_.erase(oldest);
    }
  }

#ifdef __linux__
  // Blocks of a huge page or more begin at one: a pass over weights then needs a 512th of the address translations.
  static void* map(size_t size) {
    const bool huge = size >= kHugePage;
    const size_t reserved = huge ? size + kHugePage : size;
    void* start = mmap(nullptr, reserved, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (start == MAP_FAILED) return nullptr;
    if (!huge) return start;
    const uintptr_t from = reinterpret_cast<uintptr_t>(start);
    const uintptr_t aligned = (from + kHugePage - 1) / kHugePage * kHugePage;
    if (aligned > from) munmap(start, aligned - from);
    const size_t behind = from + reserved - (aligned + size);
    if (behind > 0) munmap(reinterpret_cast<void*>(aligned + size), behind);
    madvise(reinterpret_cast<void*>(aligned), size, MADV_HUGEPAGE);  // small pages serve where the kernel has no others
    return reinterpret_cast<void*>(aligned);
  }
  static void unmap(void* block, size_t size) { munmap(block, size); }
#else
  static void* map(size_t size) { return c10::alloc_cpu(size); }
  static void unmap(void* block, size_t) { c10::free_cpu(block); }
#endif

  std::mutex mutex_;
  std::unordered_map<void*, size_t> sizes_;      // blocks in use
  Ages age_;                                     // free blocks, longest unused first
  std::multimap<size_t, Ages::iterator> free_;   // the same by size
  size_t used_ = 0, kept_ = 0, highest_ = 0;
};

BlockPool& pool() {
  static auto* blocks = new BlockPool();  // outlives every tensor
  return *blocks;
}

// Bytes of all CPU tensors: of large ones their block's, of small ones what the C library took for them.
std::atomic<int64_t> allocated{0};
std::atomic<int64_t> mostAllocated{0};

void count(int64_t bytes) {
  const int64_t now = allocated.fetch_add(bytes, std::memory_order_relaxed) + bytes;
  int64_t most = mostAllocated.load(std::memory_order_relaxed);
  while (now > most && !mostAllocated.compare_exchange_weak(most, now, std::memory_order_relaxed)) {
  }
}

int64_t sizeOfSmall(void* block) {
#ifdef __APPLE__
  return static_cast<int64_t>(malloc_size(block));
#elif defined(_WIN32)
  return static_cast<int64_t>(_aligned_msize(block, c10::gAlignment, 0));
#else
  return static_cast<int64_t>(malloc_usable_size(block));
#endif
}

void release(void* block) {
  if (block == nullptr) return;
  size_t size = pool().give(block);
  if (size > 0) return count(-static_cast<int64_t>(size));
  count(-sizeOfSmall(block));
  c10::free_cpu(block);
}

void refuseBeyondMemory(size_t bytes) {
  const int64_t allowed = limit.load(std::memory_order_relaxed);
  if (allowed > 0 && bytes > static_cast<size_t>(allowed)) {
    throw Refusal("needs " + std::to_string(bytes) + " bytes at once, the limit is " + std::to_string(allowed));
  }
  if (bytes < kAsksTheKernel) return;
  const size_t available = availableMemory() + pool().kept();
  if (available > 0 && bytes > available - available / 16) {
    throw Refusal("needs " + std::to_string(bytes >> 20) + " MiB of memory at once, " +
                  std::to_string(available >> 20) + " MiB are available");
  }
}

c10::DataPtr provide(size_t bytes) {
  refuseBeyondMemory(bytes);
  void* block = nullptr;
  if (bytes < kLarge) {
    block = c10::alloc_cpu(bytes);  // throws where there is no memory; null for no bytes
    if (block != nullptr) count(sizeOfSmall(block));
  } else {
    size_t size = 0;
    block = pool().take(bytes, &size);
    if (block == nullptr) throw Refusal("needs " + std::to_string(bytes >> 20) + " MiB, the system gives no more memory");
    count(static_cast<int64_t>(size));
  }
  return {block, block, &release, at::Device(at::DeviceType::CPU)};
}

class CountingAllocator final : public c10::Allocator {
 public:
#if TORCH_VERSION_MAJOR > 2 || (TORCH_VERSION_MAJOR == 2 && TORCH_VERSION_MINOR >= 3)
  c10::DataPtr allocate(size_t bytes) override { return provide(bytes); }
  void copy_data(void* destination, const void* source, size_t bytes) const override {
    std::memcpy(destination, source, bytes);
  }
#else
  c10::DataPtr allocate(size_t bytes) const override { return provide(bytes); }
#endif
  c10::DeleterFnPtr raw_deleter() const override { return &release; }
};

// setAllocationLimit(bytes): 0 lifts the limit
napi_value setAllocationLimit(Call& call) {
  const int64_t bytes = call.integer(0, "bytes");
  if (bytes < 0) throw Refusal("bytes must not be negative, got " + std::to_string(bytes));
  limit.store(bytes, std::memory_order_relaxed);
  return makeUndefined(call.env);
}

napi_value memoryAllocated(Call& call) { return makeInteger(call.env, allocated.load(std::memory_order_relaxed)); }

napi_value maxMemoryAllocated(Call& call) {
  return makeInteger(call.env, mostAllocated.load(std::memory_order_relaxed));
}

napi_value resetPeakMemoryStats(Call& call) {
  mostAllocated.store(allocated.load(std::memory_order_relaxed), std::memory_order_relaxed);
  return makeUndefined(call.env);
}

// emptyCache(): all free memory goes back to the system, what the C library keeps included
napi_value emptyCache(Call& call) {
  pool().empty();
#ifdef __GLIBC__
  malloc_trim(0);
#endif
  return makeUndefined(call.env);
}

}  // namespace

void defineMemory(napi_env env, napi_value exports, Engine* engine) {
  define(env, exports, engine, "setAllocationLimit", setAllocationLimit);
  define(env, exports, engine, "memoryAllocated", memoryAllocated);
  define(env, exports, engine, "maxMemoryAllocated", maxMemoryAllocated);
  define(env, exports, engine, "resetPeakMemoryStats", resetPeakMemoryStats);
  define(env, exports, engine, "emptyCache", emptyCache);
}

void takeOverCpuMemory() {
  // The allocator belongs to the process: workers that load the addon again find it in place.
  static std::once_flag once;
  std::call_once(once, [] {
    static auto* allocator = new CountingAllocator();
    c10::SetCPUAllocator(allocator);
  });
}

}  // namespace astra
