// The CPU allocator in front of libtorch's own. It adds three things: large blocks are kept for the next tensor rather
// than mapped, faulted in and zeroed each time; the memory of tensors is counted; and a request that exceeds the
// available memory is refused, where Linux would overcommit and kill the process when the pages are touched.
#include <c10/core/CPUAllocator.h>
#include <torch/version.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <cstring>
#include <list>
#include <mutex>
#include <set>
#include <unordered_map>
#include <vector>
#ifdef __APPLE__
#include <malloc/malloc.h>
#else
#include <malloc.h>
#endif
#ifdef __linux__
#include <sys/mman.h>
#include <unistd.h>
#endif

#include "engine.h"
#include "limits.h"

namespace astra {

namespace {

#ifdef __linux__
constexpr size_t kLarge = 256u << 10;         // from here on blocks are ours; smaller ones the C library serves well
#else
constexpr size_t kLarge = SIZE_MAX;           // none is
#endif
constexpr size_t kAlignment = 64;             // what vector instructions ask for
constexpr size_t kHugePage = 2u << 20;
// Kept blocks may make the process larger than the peak of its tensors by this much plus a thirty-second.
constexpr size_t kSlack = 96u << 20;

constexpr int64_t kUnlimited = -1;
std::atomic<int64_t> limit{kUnlimited};  // bytes that one tensor may take

[[noreturn]] void throwNoMemory(size_t bytes) {
  throw NoMemory("needs " + std::to_string(bytes) + " bytes, the system gives no more memory");
}

#ifdef __linux__

// Large blocks, cut from arenas: address space that is mapped once and whose pages are allocated on first access. A
// freed block keeps its pages and is merged with free neighbours; the best fitting one is split for the next request.
// When blocks in use and kept ones together exceed the peak use by more than the slack, the pages of the least recently
// used blocks are returned to the system.
class BlockPool {
 public:
  // At least this many bytes, and the actual number; null if the system has no memory.
  void* take(size_t bytes, size_t* taken) {
    const size_t size = (bytes + kGranularity - 1) / kGranularity * kGranularity;
    std::lock_guard<std::mutex> lock(mutex_);
    Shelf& shelf = shelves_[size < kMedium ? 0 : 1];
    State found = State::kept;
    Block* block = bestFit(shelf.kept, size);
    if (block == nullptr) {
      shrinkTo(allowance(used_ + size));
      afford(size, bytes);
      // Counts as used from now on, although its pages may be written to only later.
      untouched_ += size;
      found = State::cold;
      block = bestFit(shelf.cold, size);
    }
    if (block != nullptr) {
      leave(block);
    } else {
      block = map(shelf, size);
    }
    if (block == nullptr) {
      // If address space is short: free neighbours without pages are merged.
      shrinkTo(0);
      block = bestFit(shelf.cold, size);
      if (block == nullptr) return nullptr;
      leave(block);
    }
    if (block->size > size) enter(cut(block, size), found);
    used_ += size;
    highest_ = std::max(highest_, used_);
    recent_ = std::max(recent_, used_);
    inUse_.emplace(block->start, block);
    *taken = size;
    return block->start;
  }

  // The block's size; 0 if it does not belong to the pool.
  size_t give(void* start) {
    std::lock_guard<std::mutex> lock(mutex_);
    const auto found = inUse_.find(start);
    if (found == inUse_.end()) return 0;
    Block* block = found->second;
    inUse_.erase(found);
    const size_t size = block->size;
    used_ -= size;
    enter(block, State::kept);
    shrinkTo(allowance(used_));
    return size;
  }

  // Requests memory that the C library will use for small blocks.
  void admit(size_t bytes) {
    std::lock_guard<std::mutex> lock(mutex_);
    afford(bytes, bytes);
  }

  // Returns kept memory beyond the peak use since the call before the last.
  void trim() {
    std::lock_guard<std::mutex> lock(mutex_);
    highest_ = std::max(recent_, earlier_);
    earlier_ = recent_;
    recent_ = used_;
    shrinkTo(allowance(used_));
  }

  // Returns all kept pages, and restarts the peak measurement.
  void empty() {
    std::lock_guard<std::mutex> lock(mutex_);
    shrinkTo(0);
    highest_ = recent_ = earlier_ = used_;
  }

 private:
  enum class State { used, kept, cold };  // cold: free, without pages

  struct Shelf;
  struct Block {
    char* start;
    size_t size;
    State state;
    Shelf* shelf;
    Block *before, *after;           // neighbours in the arena
    std::list<Block*>::iterator age;  // where kept
  };
  struct BySize {
    bool operator()(const Block* a, const Block* b) const {
      return a->size != b->size ? a->size < b->size : a->start < b->start;
    }
  };
  using Free = std::set<Block*, BySize>;
  // Small blocks have separate arenas: a long-lived one would otherwise fragment the space of large ones.
  struct Shelf {
    Free kept, cold;
  };

  static constexpr size_t kGranularity = 64u << 10;
  static constexpr size_t kMedium = 1u << 20;
  static constexpr size_t kArena = 256u << 20;
  // What is left for everything else (V8's heap, code, buffers of the kernel): a sixteenth of the limit, at most this
  // much.
  static constexpr size_t kMostKeptFree = 128u << 20;

  // Refuses requests above the available memory, where Linux would overcommit and kill the process later. Memory that
  // was allocated but not yet written to counts as used. The system is queried again when an eighth of the remaining
  // memory is used up.
  void afford(size_t size, size_t bytes) {
    if (size <= credit_) {
      credit_ -= size;
      return;
    }
    credit_ = 0;
    for (const bool last : {false, true}) {
      const MemoryHeadroom headroom = MemoryGroups::own().headroom();
      if (headroom.limit == 0) return;
      const size_t keptFree = std::min(headroom.limit / 16, kMostKeptFree);
      const auto left = [&] {
        const size_t spoken = keptFree + untouched_;
        return headroom.available > spoken ? headroom.available - spoken : 0;
      };
      untouched_ = std::min(untouched_, used_ + kept_);
      if (size > left()) untouched_ = used_ + kept_ - resident();  // exactly, but that takes longer
      if (size <= left()) {
        credit_ = std::min(left() - size, std::max<size_t>(left() / 8, 4u << 20));
        return;
      }
      if (last) {
        const auto mebibytes = [](size_t count) { return std::to_string(count >> 20) + " MiB"; };
        throw NoMemory("needs " + mebibytes(bytes + (1u << 20) - 1) + " of memory at once, " + mebibytes(left()) +
                       " are left of the " + mebibytes(headroom.limit) + " of " + headroom.of + " (" +
                       mebibytes(keptFree) + " stay free)");
      }
      // Kept memory is also available.
      shrinkTo(0);
#ifdef __GLIBC__
      malloc_trim(0);
#endif
    }
  }

  // Bytes of blocks in use and of kept blocks with pages.
  size_t resident() const {
    static const size_t page = static_cast<size_t>(sysconf(_SC_PAGESIZE));
    std::vector<unsigned char> isThere((64u << 20) / page);
    size_t pages = 0;
    for (const Block* block : arenas_) {
      for (; block != nullptr; block = block->after) {
        if (block->state == State::cold) continue;
        for (size_t from = 0; from < block->size; from += isThere.size() * page) {
          const size_t length = std::min(block->size - from, isThere.size() * page);
          if (mincore(block->start + from, length, isThere.data()) != 0) return used_ + kept_;  // not to be known
          pages += static_cast<size_t>(std::count_if(isThere.begin(), isThere.begin() + (length + page - 1) / page,
                                                     [](unsigned char flags) { return (flags & 1) != 0; }));
        }
      }
    }
    return std::min(pages * page, used_ + kept_);
  }

  static Block* bestFit(Free& free, size_t size) {
    Block wanted{nullptr, size, State::used, nullptr, nullptr, nullptr, {}};
    const auto fit = free.lower_bound(&wanted);
    return fit == free.end() ? nullptr : *fit;
  }

  size_t allowance(size_t used) const {
    const size_t most = std::max(highest_, used);
    return most + most / 8 + kSlack - used;
  }

  // Adds a block to the free ones, merged with neighbours of the same state.
  void enter(Block* block, State state) {
    const auto join = [&](Block* neighbour) {
      if (neighbour == nullptr || neighbour->state != state) return;
      leave(neighbour);
      Block* first = neighbour->start < block->start ? neighbour : block;
      Block* second = first->after;
      first->size += second->size;
      first->after = second->after;
      if (second->after != nullptr) second->after->before = first;
      delete second;
      block = first;
    };
    join(block->before);
    join(block->after);
    block->state = state;
    if (state == State::kept) {
      block->shelf->kept.insert(block);
      block->age = age_.insert(age_.end(), block);
      kept_ += block->size;
    } else {
      block->shelf->cold.insert(block);
    }
  }

  // Removes a free block from its list; while in use it is not merged with others.
  void leave(Block* block) {
    if (block->state == State::kept) {
      block->shelf->kept.erase(block);
      age_.erase(block->age);
      kept_ -= block->size;
    } else {
      block->shelf->cold.erase(block);
    }
    block->state = State::used;
  }

  // Shortens a block that is in no list to `size` and returns the rest, also in no list.
  static Block* cut(Block* block, size_t size) {
    auto* rest = new Block{block->start + size, block->size - size, State::used, block->shelf, block, block->after, {}};
    if (rest->after != nullptr) rest->after->before = rest;
    block->after = rest;
    block->size = size;
    return rest;
  }

  void shrinkTo(size_t kept) {
    while (kept_ > kept) {
      Block* oldest = age_.front();
      leave(oldest);
      // Not more than requested, so that a large block is not lost to a small request.
      const size_t excess = (kept_ + oldest->size - kept + kHugePage - 1) / kHugePage * kHugePage;
      if (excess < oldest->size) {
        Block* rest = cut(oldest, oldest->size - excess);
        enter(oldest, State::kept);
        oldest = rest;
      }
      madvise(oldest->start, oldest->size, MADV_DONTNEED);
      enter(oldest, State::cold);
    }
  }

  // A new arena as one block in no list; huge pages, so that a pass over weights needs few address translations.
  Block* map(Shelf& shelf, size_t size) {
    for (const size_t wanted : {std::max(size, kArena), size}) {
      const size_t length = (wanted + kHugePage - 1) / kHugePage * kHugePage;
      void* mapped =
          mmap(nullptr, length + kHugePage, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
      if (mapped == MAP_FAILED) continue;  // where promises are limited, what is asked for may still be there
      const uintptr_t start = (reinterpret_cast<uintptr_t>(mapped) + kHugePage - 1) / kHugePage * kHugePage;
      madvise(reinterpret_cast<void*>(start), length, MADV_HUGEPAGE);
      arenas_.push_back(
          new Block{reinterpret_cast<char*>(start), length, State::used, &shelf, nullptr, nullptr, {}});
      return arenas_.back();
    }
    return nullptr;
  }

  std::mutex mutex_;
  Shelf shelves_[2];
  std::unordered_map<void*, Block*> inUse_;
  std::list<Block*> age_;         // kept blocks, longest unused first
  std::vector<Block*> arenas_;    // the first block of each
  size_t used_ = 0, kept_ = 0;
  size_t untouched_ = 0;  // at most so much of both was promised and has no pages yet
  size_t credit_ = 0;     // may be taken before the system is asked again
  size_t highest_ = 0;               // that was ever in use, or since trim() found less
  size_t recent_ = 0, earlier_ = 0;  // most in use since the last call of trim(), and between the two before
};

#else

// On other systems the C library serves all blocks.
class BlockPool {
 public:
  void* take(size_t, size_t*) { return nullptr; }
  size_t give(void*) { return 0; }
  void admit(size_t) {}
  void trim() {}
  void empty() {}
};

#endif

BlockPool& pool() {
  static auto* blocks = new BlockPool();  // outlives every tensor
  return *blocks;
}

// Bytes of all CPU tensors: for large ones the block size, for small ones the C library's allocation.
std::atomic<int64_t> allocated{0};
std::atomic<int64_t> mostAllocated{0};

void count(int64_t bytes) {
  const int64_t now = allocated.fetch_add(bytes, std::memory_order_relaxed) + bytes;
  int64_t most = mostAllocated.load(std::memory_order_relaxed);
  while (now > most && !mostAllocated.compare_exchange_weak(most, now, std::memory_order_relaxed)) {
  }
}

// Approximate overhead of a small tensor: its record, its storage's, and its handle.
constexpr int64_t kRecord = 512;
constexpr int64_t kSmallPiece = 4 << 20;
std::atomic<int64_t> smallTaken{0};  // by small blocks, with records
std::atomic<int64_t> smallAdmitted{0};  // the most that they took together, in pieces that the system was asked for

void admitSmall(int64_t bytes) {
  while (smallTaken.load(std::memory_order_relaxed) + bytes + kRecord >
         smallAdmitted.load(std::memory_order_relaxed)) {
    pool().admit(static_cast<size_t>(kSmallPiece));
    smallAdmitted.fetch_add(kSmallPiece, std::memory_order_relaxed);
  }
}

void countSmall(int64_t bytes, int64_t sign) {
  count(sign * bytes);
  smallTaken.fetch_add(sign * (bytes + kRecord), std::memory_order_relaxed);
}

int64_t sizeOfSmall(void* block) {
#ifdef __APPLE__
  return static_cast<int64_t>(malloc_size(block));
#else
  return static_cast<int64_t>(malloc_usable_size(block));
#endif
}

void release(void* block) {
  if (block == nullptr) return;
  size_t size = pool().give(block);
  if (size > 0) return count(-static_cast<int64_t>(size));
  countSmall(sizeOfSmall(block), -1);
  std::free(block);
}

void refuseBeyondLimit(size_t bytes) {
  const int64_t allowed = limit.load(std::memory_order_relaxed);
  if (allowed == kUnlimited || bytes <= static_cast<size_t>(allowed)) return;
  throw NoMemory("needs " + std::to_string(bytes) + " bytes at once, the limit is " + std::to_string(allowed));
}

c10::DataPtr provide(size_t bytes) {
  refuseBeyondLimit(bytes);
  void* block = nullptr;
  if (bytes < kLarge) {
    admitSmall(static_cast<int64_t>(bytes));
    // From the C library itself, which knows their size; libtorch's own function uses another allocator on some
    // platforms. Null for no bytes.
    if (bytes > 0 && posix_memalign(&block, kAlignment, bytes) != 0) throwNoMemory(bytes);
    if (block != nullptr) countSmall(sizeOfSmall(block), 1);
  } else {
    size_t size = 0;
    block = pool().take(bytes, &size);
    if (block == nullptr) throwNoMemory(bytes);
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

// setAllocationLimit(bytes): null lifts the limit
napi_value setAllocationLimit(Call& call) {
  const int64_t bytes = call.absent(0) ? kUnlimited : call.integer(0, "bytes");
  if (bytes < 0 && !call.absent(0)) throw Refusal("bytes must not be negative, got " + std::to_string(bytes));
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

// emptyCache(): returns all free memory to the system, including the C library's
napi_value emptyCache(Call& call) {
  pool().empty();
#ifdef __GLIBC__
  malloc_trim(0);
  const int64_t taken = smallTaken.load(std::memory_order_relaxed);
  smallAdmitted.store((taken + kSmallPiece - 1) / kSmallPiece * kSmallPiece, std::memory_order_relaxed);
#endif
  return makeUndefined(call.env);
}

// trimCache(): see BlockPool::trim
napi_value trimCache(Call& call) {
  pool().trim();
  return makeUndefined(call.env);
}

const Exports exports{
    {"setAllocationLimit", setAllocationLimit}, {"memoryAllocated", memoryAllocated},
    {"maxMemoryAllocated", maxMemoryAllocated}, {"resetPeakMemoryStats", resetPeakMemoryStats},
    {"emptyCache", emptyCache}, {"trimCache", trimCache}};

}  // namespace

void takeOverCpuMemory() {
  // The allocator belongs to the process: workers that load the addon again use the existing one.
  static std::once_flag once;
  std::call_once(once, [] {
    static auto* allocator = new CountingAllocator();
    c10::SetCPUAllocator(allocator);
  });
}

}  // namespace astra
