// Attention of several tokens a row and its gradients, on the processor's tiles (Dao 2023, FlashAttention-2, arXiv 2307.08691):
// what packing (fused-attention-pack.cpp), the forward pass and the backward pass have in common. docs/kernels.md.
//
// | paper            | here                              | what it is                                                        |
// | ---------------- | --------------------------------- | ----------------------------------------------------------------- |
// | Q, K, V, O       | query, key, value, output         | bfloat16 [B, H, T, E]; keys and values [B, G, S, E], G divides H  |
// | B_r, B_c         | kBlockSize                        | queries and keys of a block, both 32                              |
// | T_r, T_c         | queryBlocks, keyBlocks            | blocks that T queries and S keys make; sizeBlocks those of E      |
// | S                | scores                            | Q Kᵀ + bias / scale: not scaled yet                               |
// | P                | probabilities                     | 2^((S − m) · scale · log₂ e), not divided by ℓ in the forward pass |
// | m                | rowMax, shifts                    | the greatest score of a query                                     |
// | ℓ                | rowSum; logRowSum                 | the sum of its P; log₂ ℓ                                          |
// | L = m + log ℓ    | measures                          | m and log₂ ℓ apart: beside m = −1e8 the logarithm would be rounded away |
// | D                | delta                             | the sum of dO ∘ O over E                                          |
// | dO, dP, dS       | outputGradient, probabilityGradients, scoreGradients | dS = P ∘ (dP − D)                              |
//
// Scores are computed for one block of queries at a time and never leave the caches; the backward pass computes them again.
#pragma once

#include <cstdint>
#include <limits>
#include <utility>
#include <vector>

#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>

#include "engine.h"
#include "pieces.h"
#include "plain-tensor.h"
#include "tiles.h"

namespace astra::attention {

// The gradients of fusedAttention, which defineFusedAttention exports with it.
napi_value fusedAttentionBackward(Call& call);

#ifdef ASTRA_TILES
// Everything is worked on in blocks of 32 × 32 numbers: as a left operand two tiles of 16 lines each, as a right
// operand two tiles of 16 columns each, as a product in float32 its lines one after the other.
constexpr int64_t kBlockSize = 32;
constexpr int64_t kBlockNumbers = kBlockSize * kBlockSize;
constexpr int64_t kMostHeadSize = 256;
// Heads times tokens. Views that repeat one number can claim any size: up to here no product of sizes overflows.
constexpr int64_t kMostRows = int64_t{1} << 36;
// Between two sums over queries the backward pass keeps at most so many blocks of queries, whose columns stay in the
// first-level cache, and so many pairs of blocks, 512 KiB of the second-level cache.
constexpr int64_t kMostQueryBlocks = 8, kMostKeptBlocks = 128;

constexpr float kForbids = -1e29f;  // biases at or below it
constexpr float kLog2E = 1.4426950408889634f;
constexpr float kShiftOfNothing = std::numeric_limits<float>::infinity();  // m where nothing may be attended to
constexpr float kForbiddenScore = -kShiftOfNothing;

inline int64_t blocksOf(int64_t count) { return (count + kBlockSize - 1) / kBlockSize; }

// Rows of one head, `stride` numbers apart.
struct Rows {
  uint16_t* first;
  int64_t stride, count, size;
};

// [batch, heads, rows, size], whatever the strides of the first three.
struct Heads {
  uint16_t* first;
  int64_t batchStride, headStride, rowStride, count, size;

  explicit Heads(const at::Tensor& tensor)
      : first(words(tensor)), batchStride(tensor.stride(0)), headStride(tensor.stride(1)),
        rowStride(tensor.stride(2)), count(tensor.size(2)), size(tensor.size(3)) {}

  Rows at(int64_t row, int64_t head) const {
    return {first + row * batchStride + head * headStride, rowStride, count, size};
  }
};

// What is done to a block of scores.
enum : uint8_t {
  kHasAllowed = 1,  // some score of it is not forbidden
  kHasBias = 2,     // not all of its biases are 0, or not all of its columns are there
};

struct Bias {
  at::Tensor tensor;  // [B·G or 1, (H/G)·T or 1, S], or undefined
  bool perGroup = false, perQuery = false;
  int64_t queries = 0, queryBlocks = 0, keyBlocks = 0;
  at::Tensor kinds;  // bytes [B·G or 1, heads of a group, blocks of queries (or 1, 1), blocks of keys]

  // Of one block of queries, for each block of keys.
  const uint8_t* kindsOf(int64_t group, int64_t head, int64_t shared, int64_t queryBlock) const {
    const int64_t at = (perGroup ? group * (perQuery ? shared : 1) : 0) + (perQuery ? head : 0);
    return static_cast<const uint8_t*>(kinds.data_ptr()) + (perQuery ? at * queryBlocks + queryBlock : at) * keyBlocks;
  }

  // Null where there is none.
  const uint16_t* row(int64_t group, int64_t head, int64_t query) const {
    if (!tensor.defined()) return nullptr;
    return words(tensor) + (perGroup ? group * tensor.stride(0) : 0) +
           (perQuery ? (head * queries + query) * tensor.stride(1) : 0);
  }

  int64_t rowStride() const { return perQuery ? tensor.stride(1) : 0; }
};

// Attention of one segment: queries attend to keys of their own segment only.
struct Work {
  Heads query, key, value;
  Bias bias;
  int64_t batch, heads, groups, queries, columns, size;
  int64_t queryBlocks, keyBlocks, sizeBlocks;
  int64_t firstQuery, allQueries;  // its place among the queries of all segments
  float scale;

  int64_t shared() const { return heads / groups; }
  // Place of a number of [B, H, T].
  int64_t place(int64_t row, int64_t head, int64_t query) const {
    return (row * heads + head) * allQueries + firstQuery + query;
  }
};

// How the numbers of a block lie.
enum class Form {
  lines,    // left operand, line by line: summed along the lines
  words,    // right operand, by pairs of numbers of one line: summed along the lines
  pairs,    // right operand, by pairs of lines: summed over the lines
  columns,  // left operand, column by column: summed over the lines
};

// The 32 lines from `line` on, all of their numbers: one block after the other. What is not there is 0.
template <Form form>
ASTRA_TILE_CODE void arrange(const Rows& rows, int64_t line, uint16_t* to);

// GCC 12 does not know that loads of tiles read memory: what they read has to be written by then.
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

// All that two blocks of lines have in common.
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

// Biases of one block of scores. A bias of 0 changes no bit.
ASTRA_TILE_CODE void addBias(const Work& work, int64_t group, int64_t head, int64_t queryBlock, int64_t keyBlock,
                             float* scores);

// Lines of one block of sums, each times its factor, to a block of rows from `line` and `column` on.
ASTRA_TILE_CODE void writeLines(const float* sums, const float* factors, const Rows& to, int64_t line, int64_t column);

// The greatest of all segments.
struct Extent {
  int64_t queryBlocks = 0, keyBlocks = 0, sizeBlocks = 0, shared = 0;
};

// Memory of each thread, the same at every piece of work: it stays in the caches of its core.
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

// The next `blocks` of some memory.
inline uint16_t* take(uint16_t*& memory, int64_t blocks) { return std::exchange(memory, memory + blocks * kBlockNumbers); }
// The same in float32, which takes twice as much.
inline float* takeSums(uint16_t*& memory, int64_t blocks) { return reinterpret_cast<float*>(take(memory, 2 * blocks)); }

// Whether keys and values of other heads are to be arranged.
template <typename Room>
bool isNew(Room& room, const Work& work, int64_t group) {
  const bool isNew = room.arranged != &work || room.arrangedGroup != group;
  room.arranged = &work;
  room.arrangedGroup = group;
  return isNew;
}

// What a call is about: all tokens attend to all under one bias or none, or tokens lie end to end in segments that each
// have a bias of their own, with as many columns as the segment has tokens.
struct Given {
  at::Tensor query, key, value;
  std::vector<at::Tensor> biases;
  double scale;

  explicit Given(const Call& call)
      : query(call.tensor(0, "query")), key(call.tensor(1, "key")), value(call.tensor(2, "value")),
        biases(call.tensors(3, "biases")), scale(call.number(4, "scale")) {}

  int64_t shared() const { return query.size(1) / key.size(1); }
  int64_t width() const { return query.size(1) * query.size(3); }

  // Whether the tiles take what was given.
  bool applies() const;

 private:
  bool fitsBias(const at::Tensor& bias, int64_t queries) const;
};

class Segments {
 public:
  explicit Segments(const Given& given) {
    const int64_t tokens = given.query.size(2), columns = given.key.size(2);
    if (given.biases.size() <= 1) {
      add(given, given.biases.empty() ? at::Tensor() : given.biases[0], 0, tokens, columns);
    } else {
      for (const at::Tensor& bias : given.biases) add(given, bias, next_, bias.size(2), bias.size(2));
    }
  }

  const std::vector<Work>& works() const { return works_; }
  const Extent& extent() const { return extent_; }

  // Heads of [B, T, H·E].
  static Heads headsOf(const Work& work, const at::Tensor& tensor) {
    const at::Tensor byHead = tensor.view({work.batch, work.allQueries, work.heads, work.size}).transpose(1, 2);
    return part(byHead, work.firstQuery, work.queries);
  }
  static Heads part(const at::Tensor& tensor, int64_t first, int64_t count) {
    return Heads(tensor.narrow(2, first, count));
  }

 private:
  void add(const Given& given, const at::Tensor& bias, int64_t first, int64_t queries, int64_t columns);

  std::vector<Work> works_;
  Extent extent_;
  int64_t next_ = 0;
};

// Work on what several segments consist of, one after the other: `counts` of each.
template <typename Part>
void inPiecesOf(const std::vector<int64_t>& counts, int64_t piece, const Part& part) {
  int64_t total = 0;
  for (const int64_t count : counts) total += count;
  inPieces(total, piece, [&](int64_t from, int64_t to) {
    int64_t first = 0;
    for (size_t at = 0; at < counts.size() && first < to; first += counts[at++]) {
      const int64_t begin = std::max<int64_t>(0, from - first), end = std::min(counts[at], to - first);
      if (begin < end) part(at, begin, end);
    }
  });
}

inline std::vector<int64_t> measuresOf(const at::Tensor& query) { return {2, query.size(0), query.size(1), query.size(2)}; }

constexpr int64_t kWorth = 64;  // blocks of scores that are worth a thread's start
#endif

}  // namespace astra::attention
