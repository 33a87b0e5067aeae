// For fuzzers only: a CPU allocator that puts every tensor between inaccessible pages, and an allocation that fails on
// purpose. A loop that accesses memory beyond a tensor then crashes the process at that instruction, and uninitialized
// reads become visible in the result.
#include <c10/core/CPUAllocator.h>
#include <torch/version.h>

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <unordered_map>
#ifdef __linux__
#include <sys/mman.h>
#include <unistd.h>
#endif

#include "engine.h"

namespace astra {

namespace {

std::atomic<int64_t> failsAfter{-1};  // allocations that still succeed; negative: all of them

void failWhereAsked() {
  if (failsAfter.load() < 0) return;
  if (failsAfter.fetch_sub(1) == 0) throw Refusal("memory could not be allocated, as a test asked");
}

#ifdef __linux__

constexpr size_t kMostBytes = 64u << 20;

struct Block {
  unsigned char* pages;  // without the two that may not be touched
  size_t length, bytes;
  unsigned char fill;
};

std::atomic<size_t> alignment{64};
std::atomic<int> fill{0};
std::mutex mutex;

std::unordered_map<void*, Block>& blocks() {
  static auto* all = new std::unordered_map<void*, Block>();  // outlives every tensor
  return *all;
}

size_t pageSize() {
  static const size_t size = static_cast<size_t>(sysconf(_SC_PAGESIZE));
  return size;
}

[[noreturn]] void stop(const Block& block, const char* where) {
  std::fprintf(stderr, "guarded allocation: bytes %s a block of %zu were written\n", where, block.bytes);
  std::abort();
}

c10::DeleterFnPtr usualRelease = nullptr;

// For guarded memory, and for memory allocated before or after guarding.
void release(void* data) {
  if (data == nullptr) return;
  Block block{};
  {
    const std::lock_guard<std::mutex> lock(mutex);
    const auto found = blocks().find(data);
    if (found == blocks().end()) return usualRelease(data);
    block = found->second;
    blocks().erase(found);
  }
  auto* const start = static_cast<unsigned char*>(data);
  for (auto* at = block.pages; at < start; ++at) {
    if (*at != block.fill) stop(block, "before");
  }
  for (auto* at = start + block.bytes; at < block.pages + block.length; ++at) {
    if (*at != block.fill) stop(block, "behind");
  }
  munmap(block.pages - pageSize(), block.length + 2 * pageSize());
}

// Ends where the next page begins, or as close before it as the alignment allows.
c10::DataPtr provide(size_t bytes) {
  if (bytes > kMostBytes) throw Refusal("needs " + std::to_string(bytes) + " bytes at once, which guards refuse");
  failWhereAsked();
  const at::Device device(at::DeviceType::CPU);
  if (bytes == 0) return {nullptr, nullptr, &release, device};
  const size_t length = (bytes + pageSize() - 1) / pageSize() * pageSize();
  void* mapped = mmap(nullptr, length + 2 * pageSize(), PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (mapped == MAP_FAILED) throw Refusal("guarded memory could not be mapped");
  Block block{static_cast<unsigned char*>(mapped) + pageSize(), length, bytes, static_cast<unsigned char>(fill.load())};
  if (mprotect(block.pages, length, PROT_READ | PROT_WRITE) != 0) throw Refusal("guarded memory could not be opened");
  std::memset(block.pages, block.fill, length);
  const size_t step = alignment.load();
  void* data = block.pages + length - (bytes + step - 1) / step * step;
  const std::lock_guard<std::mutex> lock(mutex);
  blocks().emplace(data, block);
  return {data, data, &release, device};
}

#endif

// Each tensor is freed by the allocator that created it, so that allocators may change at any time.
class TestAllocator final : public c10::Allocator {
 public:
  explicit TestAllocator(c10::Allocator* usual) : usual_(usual) {
#ifdef __linux__
    usualRelease = usual->raw_deleter();
#endif
  }
  c10::DeleterFnPtr raw_deleter() const override {
#ifdef __linux__
    return &release;
#else
    return usual_->raw_deleter();
#endif
  }
#if TORCH_VERSION_MAJOR > 2 || (TORCH_VERSION_MAJOR == 2 && TORCH_VERSION_MINOR >= 3)
  c10::DataPtr allocate(size_t bytes) override { return take(bytes); }
  void copy_data(void* destination, const void* source, size_t bytes) const override {
    std::memcpy(destination, source, bytes);
  }
#else
  c10::DataPtr allocate(size_t bytes) const override { return take(bytes); }
#endif

  std::atomic<bool> guards{false};

 private:
  c10::DataPtr take(size_t bytes) const {
#ifdef __linux__
    if (guards.load()) return provide(bytes);
#endif
    failWhereAsked();
    return usual_->allocate(bytes);
  }

  c10::Allocator* const usual_;
};

TestAllocator& testAllocator() {
  static auto* allocator = new TestAllocator(c10::GetCPUAllocator());
  return *allocator;
}

// guardAllocations(alignment, fill): guards tensors created from now on, aligned to `alignment` bytes (1: each
// ends exactly at a page's end; 0: no guards), with every byte set to `fill`
napi_value guardAllocations(Call& call) {
  const int64_t step = call.integer(0, "alignment"), byte = call.integer(1, "fill");
  if (step < 0 || step > 4096 || (step & (step - 1)) != 0) throw Refusal("alignment must be 0 or a power of 2 to 4096");
  if (byte < 0 || byte > 255) throw Refusal("fill must be a byte");
#ifdef __linux__
  if (step > 0) {
    alignment.store(static_cast<size_t>(step));
    fill.store(static_cast<int>(byte));
  }
  testAllocator().guards.store(step > 0);
  c10::SetCPUAllocator(&testAllocator());
  return makeUndefined(call.env);
#else
  throw Refusal("there are guards on Linux only");
#endif
}

// failAllocation(after): the allocation after this many further ones fails, once; negative: none does; returns how many
// were left
napi_value failAllocation(Call& call) {
  const int64_t after = call.integer(0, "after"), left = failsAfter.exchange(after);
  c10::SetCPUAllocator(&testAllocator());
  return makeNumber(call.env, static_cast<double>(left));
}

const Exports exports{{"guardAllocations", guardAllocations}, {"failAllocation", failAllocation}};

}  // namespace

}  // namespace astra
