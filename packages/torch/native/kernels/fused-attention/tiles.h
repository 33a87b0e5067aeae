// Attention of bfloat16 numbers on the processor's tiles: blocks of numbers and their products.
#pragma once

#include <utility>

#include "kernels/fused-attention/fused-attention.h"
#include "kernels/tiles.h"

#ifdef ASTRA_TILES
namespace astra::attention {

// On tiles a block of 32 × 32 numbers is, as a left operand, two tiles of 16 lines each, as a right operand two tiles of 16
// columns each, as a product in float32 its lines one after the other.
constexpr int64_t kBlockNumbers = kBlockSize * kBlockSize;
// Maximum number of blocks of queries that the backward pass keeps between two sums over queries, so that their columns
// stay in the first-level cache, and of pairs of blocks: 512 KiB of the second-level cache.
constexpr int64_t kMostQueryBlocks = 8, kMostKeptBlocks = 128;

constexpr float kLog2E = 1.4426950408889634f;

using Rows = RowsOf<uint16_t>;
using Heads = HeadsOf<uint16_t>;
using Work = WorkOf<uint16_t>;
using Segments = SegmentsOf<uint16_t>;

// Layout of the numbers of a block.
enum class Form {
  lines,    // left operand, line by line: summed along the lines
  words,    // right operand, by pairs of numbers of one line: summed along the lines
  pairs,    // right operand, by pairs of lines: summed over the lines
  columns,  // left operand, column by column: summed over the lines
};

// The 32 lines from `line` on with all their numbers, block by block; missing numbers are 0.
template <Form form>
ASTRA_TILE_CODE void arrange(const Rows& rows, int64_t line, uint16_t* to);

// GCC 12 does not know that tile loads read memory: their data must have been written before.
inline __attribute__((always_inline)) void isWritten() { asm volatile("" : : : "memory"); }

// The sums of a block are in tiles 0 … 3 until they are stored; without tiles they are where they will be stored.
ASTRA_TILE_INLINE void beginSums(float* to) {
  if (!hasTiles()) {
    std::fill_n(to, kBlockNumbers, 0.0f);
    return;
  }
  _tile_zero(0);
  _tile_zero(1);
  _tile_zero(2);
  _tile_zero(3);
}

ASTRA_TILE_INLINE void storeSums(float* to) {
  if (!hasTiles()) return;
  _tile_stored(0, to, 128);
  _tile_stored(1, to + 16, 128);
  _tile_stored(2, to + 512, 128);
  _tile_stored(3, to + 528, 128);
}

ASTRA_TILE_INLINE void addProduct(const uint16_t* left, const uint16_t* right, float* to) {
  if (!hasTiles()) return addPairsOfPanels({left, 0}, {right, 512, 0}, 1, false, {to, kBlockSize, kTile});
  _tile_loadd(4, left, 64);
  _tile_loadd(6, right, 64);
  _tile_dpbf16ps(0, 4, 6);
  _tile_loadd(7, right + 512, 64);
  _tile_dpbf16ps(1, 4, 7);
  _tile_loadd(5, left + 512, 64);
  _tile_dpbf16ps(2, 5, 6);
  _tile_dpbf16ps(3, 5, 7);
}

// All numbers that two blocks of lines share.
ASTRA_TILE_INLINE void product(const uint16_t* left, const uint16_t* right, int64_t blocks, float* to) {
  beginSums(to);
  for (int64_t block = 0; block < blocks; ++block) {
    addProduct(left + block * kBlockNumbers, right + block * kBlockNumbers, to);
  }
  storeSums(to);
}

ASTRA_TILE_INLINE __m512i rounded(__m512 first, __m512 second) {
  return reinterpret_cast<__m512i>(_mm512_cvtne2ps_pbh(second, first));
}

// Adds the biases of one block of scores. A bias of 0 changes no bit.
ASTRA_TILE_CODE void addBias(const Work& work, int64_t group, int64_t head, int64_t queryBlock, int64_t keyBlock,
                             float* scores);

// Lines of one block of sums, each times its factor, to a block of rows from `line` and `column` on.
ASTRA_TILE_CODE void writeLines(const float* sums, const float* factors, const Rows& to, int64_t line, int64_t column);

// Memory of each thread, reused for every piece of work so that it stays in the core's caches.
template <typename Room>
class Rooms {
 public:
  explicit Rooms(const Extent& extent) {
    const int64_t threads = at::get_num_threads(), bytes = Room::blocksOf(extent) * kBlockNumbers * 2;
    memory_ = at::empty({threads, bytes}, at::TensorOptions().dtype(at::kByte));
    for (int64_t thread = 0; thread < threads; ++thread) {
      rooms_.emplace_back(extent, static_cast<uint16_t*>(memory_.data_ptr()) + thread * bytes / 2);
    }
  }
  Room& own() { return rooms_[static_cast<size_t>(at::get_thread_num())]; }

 private:
  at::Tensor memory_;
  std::vector<Room> rooms_;
};

// The next `blocks` blocks of some memory.
inline uint16_t* take(uint16_t*& memory, int64_t blocks) { return std::exchange(memory, memory + blocks * kBlockNumbers); }
// The same in float32, which takes twice as much.
inline float* takeSums(uint16_t*& memory, int64_t blocks) { return reinterpret_cast<float*>(take(memory, 2 * blocks)); }

// Whether keys and values of other heads must be packed.
template <typename Room>
bool isNew(Room& room, const Work& work, int64_t group) {
  const bool isNew = room.arranged != &work || room.arrangedGroup != group;
  room.arranged = &work;
  room.arrangedGroup = group;
  return isNew;
}
}  // namespace astra::attention
#endif
