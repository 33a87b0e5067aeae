// Attention of several tokens a row, softmax(q kᵀ · scale + bias) v, and its gradients, on the processor's tiles.
// Scores are kept for 32 queries at a time; the backward pass computes them again from what the forward pass saved of
// each row (Dao 2023, arXiv 2307.08691): its greatest score, and apart from it the logarithm of its sum, which would be lost
// in the rounding of a greatest score of −1e8.
#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>
#include <vector>

#include <ATen/core/Tensor.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>

#include "engine.h"
#include "pieces.h"
#include "plain-tensor.h"
#include "tiles.h"

namespace astra {
namespace {

#ifdef ASTRA_TILES
// Everything is worked on in blocks of 32 × 32 numbers: as a left operand two tiles of 16 lines each, as a right
// operand two tiles of 16 columns each, as a product in float32 its lines one after the other.
constexpr int64_t kBlock = 32;
constexpr int64_t kNumbers = kBlock * kBlock;
constexpr int64_t kMostHeadSize = 256;
// Heads times tokens. Views that repeat one number can claim any size: up to here no product of sizes overflows.
constexpr int64_t kMostRows = int64_t{1} << 36;
// Between two sums over queries the backward pass keeps at most so many blocks of queries, whose columns stay in the
// first-level cache, and so many pairs of blocks, 512 KiB of the second-level cache.
constexpr int64_t kMostPlaces = 8, kMostKept = 128;

constexpr float kForbids = -1e29f;  // biases at or below it
constexpr float kLog2E = 1.4426950408889634f;
constexpr float kNone = std::numeric_limits<float>::infinity();  // subtracted where nothing may be attended to
constexpr float kNever = -kNone;                                 // the product of what is forbidden

int64_t blocksOf(int64_t count) { return (count + kBlock - 1) / kBlock; }

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
  kSeen = 1,     // some score of it is not forbidden
  kChanged = 2,  // not all of its biases are 0, or not all of its columns are there
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

// The biases of one row that differ from 0, and from what forbids, added to what is known of its blocks.
ASTRA_TILE_CODE void inspectRow(const uint16_t* bias, int64_t columns, uint8_t* kinds) {
  const __m512i least = _mm512_set1_epi16(static_cast<int16_t>(0xefa2));  // the first bfloat16 below kForbids
  const __m512i infinite = _mm512_set1_epi16(static_cast<int16_t>(0xff80));
  const __m512i magnitude = _mm512_set1_epi16(0x7fff);
  for (int64_t column = 0; column < columns; column += kBlock) {
    const __mmask32 present = columns - column >= kBlock ? ~__mmask32{0} : (__mmask32{1} << (columns - column)) - 1;
    const __m512i biases = _mm512_maskz_loadu_epi16(present, bias + column);
    const __mmask32 forbidden =
        _mm512_cmpge_epu16_mask(biases, least) & _mm512_cmple_epu16_mask(biases, infinite) & present;
    uint8_t kind = forbidden == present ? 0 : kSeen;
    if (_mm512_test_epi16_mask(biases, magnitude) != 0) kind |= kChanged;
    kinds[column / kBlock] |= kind;
  }
}

Bias biasOf(const at::Tensor& tensor, int64_t groups, int64_t shared, int64_t queries, int64_t columns) {
  Bias bias;
  bias.queries = queries;
  bias.queryBlocks = blocksOf(queries);
  bias.keyBlocks = blocksOf(columns);
  if (tensor.defined()) {
    bias.tensor = tensor.stride(2) == 1 || columns == 1 ? tensor : tensor.contiguous();
    bias.perGroup = groups > 1 && tensor.size(0) > 1;
    bias.perQuery = tensor.size(1) > 1;
  }
  const int64_t lines = (bias.perGroup ? groups : 1) * (bias.perQuery ? shared * bias.queryBlocks : 1);
  bias.kinds = at::empty({lines, bias.keyBlocks}, at::TensorOptions().dtype(at::kByte));
  auto* const kinds = static_cast<uint8_t*>(bias.kinds.data_ptr());
  std::fill_n(kinds, lines * bias.keyBlocks, tensor.defined() ? 0 : kSeen);
  if (tensor.defined()) {
    const int64_t perGroup = bias.perQuery ? shared * bias.queryBlocks : 1;
    const int64_t piece = std::max<int64_t>(1, (1 << 12) / (columns + 1));
    inPieces(lines, piece, [&](int64_t from, int64_t to) {
      for (int64_t line = from; line < to; ++line) {
        const int64_t within = line % perGroup;
        const int64_t head = within / bias.queryBlocks, first = within % bias.queryBlocks * kBlock;
        const int64_t rows = bias.perQuery ? std::min(kBlock, queries - first) : 1;
        const uint16_t* row = bias.row(line / perGroup, head, first);
        for (int64_t at = 0; at < rows; ++at) {
          inspectRow(row + at * bias.rowStride(), columns, kinds + line * bias.keyBlocks);
        }
      }
    });
  }
  if (columns % kBlock != 0) {
    for (int64_t line = 1; line <= lines; ++line) {
      kinds[line * bias.keyBlocks - 1] |= kChanged;
    }
  }
  return bias;
}

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
ASTRA_TILE_CODE void arrange(const Rows& rows, int64_t line, uint16_t* to) {
  alignas(64) static constexpr uint16_t kPaired[64] = {
      0,  32, 1,  33, 2,  34, 3,  35, 4,  36, 5,  37, 6,  38, 7,  39, 8,  40, 9,  41, 10, 42,
      11, 43, 12, 44, 13, 45, 14, 46, 15, 47, 16, 48, 17, 49, 18, 50, 19, 51, 20, 52, 21, 53,
      22, 54, 23, 55, 24, 56, 25, 57, 26, 58, 27, 59, 28, 60, 29, 61, 30, 62, 31, 63,
  };
  const __m512i low = _mm512_load_si512(kPaired), high = _mm512_load_si512(kPaired + 32);
  for (int64_t tile = 0; tile < 2; ++tile) {
    const int64_t first = line + tile * kTile;
    for (int64_t column = 0; column < rows.size; column += kBlock) {
      const int64_t present = rows.size - column;
      const __mmask32 mask = present >= kBlock ? ~__mmask32{0} : (__mmask32{1} << present) - 1;
      uint16_t* block = to + column * kBlock;
      __m512i lanes[kTile];
      for (int64_t i = 0; i < kTile; ++i) {
        const uint16_t* from = rows.first + (first + i) * rows.stride + column;
        lanes[i] = first + i < rows.count ? _mm512_maskz_loadu_epi16(mask, from) : _mm512_setzero_si512();
        if (first + i + kBlock < rows.count) __builtin_prefetch(from + kBlock * rows.stride);
      }
      if constexpr (form == Form::lines || form == Form::words) {
        if constexpr (form == Form::words) transpose(lanes);
        for (int64_t i = 0; i < kTile; ++i) _mm512_store_si512(block + (tile * kTile + i) * 32, lanes[i]);
      } else {
        for (int64_t pair = 0; pair < kTile / 2; ++pair) {
          uint16_t* half = block + (tile * kTile / 2 + pair) * 32;
          _mm512_store_si512(half, _mm512_permutex2var_epi16(lanes[2 * pair], low, lanes[2 * pair + 1]));
          _mm512_store_si512(half + 512, _mm512_permutex2var_epi16(lanes[2 * pair], high, lanes[2 * pair + 1]));
        }
      }
    }
  }
  if constexpr (form == Form::columns) {
    for (int64_t tile = 0; tile < 2 * blocksOf(rows.size); ++tile) {
      __m512i lanes[kTile];
      for (int64_t i = 0; i < kTile; ++i) lanes[i] = _mm512_load_si512(to + tile * 512 + i * 32);
      transpose(lanes);
      for (int64_t i = 0; i < kTile; ++i) _mm512_store_si512(to + tile * 512 + i * 32, lanes[i]);
    }
  }
}

// GCC 12 does not know that loads of tiles read memory: what they read has to be written by then.
inline __attribute__((always_inline)) void isWritten() { asm volatile("" : : : "memory"); }

// The sums of a block are in tiles 0 … 3.
ASTRA_TILE_INLINE void beginSums() {
  _tile_zero(0);
  _tile_zero(1);
  _tile_zero(2);
  _tile_zero(3);
}

ASTRA_TILE_INLINE void storeSums(float* to) {
  _tile_stored(0, to, 128);
  _tile_stored(1, to + 16, 128);
  _tile_stored(2, to + 512, 128);
  _tile_stored(3, to + 528, 128);
}

ASTRA_TILE_INLINE void addProduct(const uint16_t* left, const uint16_t* right) {
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
  beginSums();
  for (int64_t block = 0; block < blocks; ++block) addProduct(left + block * kNumbers, right + block * kNumbers);
  storeSums(to);
}

ASTRA_TILE_INLINE __m512i rounded(__m512 first, __m512 second) {
  return reinterpret_cast<__m512i>(_mm512_cvtne2ps_pbh(second, first));
}

// Biases of one block of products q · k, `perScale` = 1 / scale. A bias of 0 changes no bit.
ASTRA_TILE_CODE void addBias(const Work& work, int64_t group, int64_t head, int64_t queryBlock, int64_t keyBlock,
                             float* products) {
  const int64_t column = keyBlock * kBlock, query = queryBlock * kBlock;
  const int64_t there = work.columns - column;
  const __mmask32 present = there >= kBlock ? ~__mmask32{0} : (__mmask32{1} << there) - 1;
  const __m512 perScale = _mm512_set1_ps(1.0f / work.scale);
  const __m512 forbids = _mm512_set1_ps(kForbids), never = _mm512_set1_ps(kNever);
  const int64_t rows = std::min(kBlock, work.queries - query);
  const uint16_t* bias = work.bias.row(group, head, query);
  const int64_t stride = bias == nullptr ? 0 : work.bias.rowStride();
  for (int64_t row = 0; row < rows; ++row) {
    for (int64_t half = 0; half < 2; ++half) {
      const __mmask16 mask = static_cast<__mmask16>(present >> (16 * half));
      float* at = products + row * kBlock + half * kTile;
      __m512 sums = _mm512_load_ps(at);
      __mmask16 allowed = mask;
      if (bias != nullptr) {
        const __m512 biases = loadWide(bias + row * stride + column + half * kTile, mask);
        allowed = _mm512_mask_cmp_ps_mask(mask, biases, forbids, _CMP_NLE_UQ);
        sums = _mm512_fmadd_ps(biases, perScale, sums);
      }
      _mm512_store_ps(at, _mm512_mask_blend_ps(allowed, never, sums));
    }
  }
}

// Lines of one block of sums, each times its factor, to a block of rows from `line` and `column` on.
ASTRA_TILE_CODE void writeLines(const float* sums, const float* factors, const Rows& to, int64_t line, int64_t column) {
  const int64_t present = to.size - column;
  const __mmask32 mask = present >= kBlock ? ~__mmask32{0} : (__mmask32{1} << present) - 1;
  const int64_t rows = std::min(kBlock, to.count - line);
  for (int64_t row = 0; row < rows; ++row) {
    const __m512 factor = _mm512_set1_ps(factors[row]);
    const __m512 first = _mm512_mul_ps(_mm512_load_ps(sums + row * kBlock), factor);
    const __m512 second = _mm512_mul_ps(_mm512_load_ps(sums + row * kBlock + kTile), factor);
    _mm512_mask_storeu_epi16(to.first + (line + row) * to.stride + column, mask, rounded(first, second));
  }
}

// The greatest of all segments.
struct Extent {
  int64_t queryBlocks = 0, keyBlocks = 0, sizeBlocks = 0, shared = 0;
};

// Memory of each thread, the same at every piece of work: it stays in the caches of its core.
template <typename Room>
class Rooms {
 public:
  explicit Rooms(const Extent& extent) {
    const int64_t threads = at::get_num_threads(), bytes = Room::blocksOf(extent) * kNumbers * 2;
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
uint16_t* take(uint16_t*& memory, int64_t blocks) { return std::exchange(memory, memory + blocks * kNumbers); }
// The same in float32, which takes twice as much.
float* takeSums(uint16_t*& memory, int64_t blocks) { return reinterpret_cast<float*>(take(memory, 2 * blocks)); }

struct ForwardRoom {
  ForwardRoom(const Extent& extent, uint16_t* memory) : seen(static_cast<size_t>(extent.keyBlocks)) {
    keys = take(memory, extent.keyBlocks * extent.sizeBlocks);
    values = take(memory, extent.keyBlocks * extent.sizeBlocks);
    query = take(memory, extent.sizeBlocks);
    scores = takeSums(memory, extent.keyBlocks);
    sums = takeSums(memory, 1);
  }
  static int64_t blocksOf(const Extent& extent) {
    return extent.keyBlocks * (2 * extent.sizeBlocks + 2) + extent.sizeBlocks + 2;
  }

  const Work* arranged = nullptr;  // whose keys and values are here, and of which of its groups
  int64_t arrangedGroup = 0;
  uint16_t *keys, *values;         // by words, by pairs
  uint16_t* query;                 // lines of one block
  float *scores, *sums;
  std::vector<int64_t> seen;       // blocks of keys
};

struct Forward {
  const Work& work;
  Heads output;
  float *greatest, *logSums;  // [B, H, all T]: divided by the scale; to base 2, of weights whose greatest is 1
};

// Whether keys and values of other heads are to be arranged.
template <typename Room>
bool isNew(Room& room, const Work& work, int64_t group) {
  const bool isNew = room.arranged != &work || room.arrangedGroup != group;
  room.arranged = &work;
  room.arrangedGroup = group;
  return isNew;
}

// Weights, 2^((score − shift) · factor), take the place of the scores, in half of their room.
ASTRA_TILE_INLINE void weigh(float* scores, int64_t rows, __m512 factor, const float* shifts, __m512* totals) {
  auto* weights = reinterpret_cast<uint16_t*>(scores);
  for (int64_t row = 0; row < rows; ++row) {
    const __m512 shift = _mm512_set1_ps(shifts[row]);
    const float* at = scores + row * kBlock;
    const __m512 first = powerOf2(_mm512_mul_ps(_mm512_sub_ps(_mm512_load_ps(at), shift), factor));
    const __m512 second = powerOf2(_mm512_mul_ps(_mm512_sub_ps(_mm512_load_ps(at + kTile), shift), factor));
    totals[row] = _mm512_add_ps(totals[row], _mm512_add_ps(first, second));
    _mm512_store_si512(weights + row * kBlock, rounded(first, second));
  }
}

ASTRA_TILE_CODE void attendBlock(const Forward& forward, ForwardRoom& room, int64_t batch, int64_t head,
                                 int64_t queryBlock) {
  const Work& work = forward.work;
  const int64_t shared = work.shared(), group = batch * work.groups + head / shared, within = head % shared;
  const int64_t line = queryBlock * kBlock, rows = std::min(kBlock, work.queries - line);
  arrange<Form::lines>(work.query.at(batch, head), line, room.query);
  isWritten();
  const uint8_t* kinds = work.bias.kindsOf(group, within, shared, queryBlock);
  __m512 greatest[kBlock];
  for (int64_t row = 0; row < rows; ++row) greatest[row] = _mm512_set1_ps(kNever);
  int64_t count = 0;
  for (int64_t keyBlock = 0; keyBlock < work.keyBlocks; ++keyBlock) {
    if ((kinds[keyBlock] & kSeen) == 0) continue;
    float* products = room.scores + count * kNumbers;
    product(room.query, room.keys + keyBlock * work.sizeBlocks * kNumbers, work.sizeBlocks, products);
    if ((kinds[keyBlock] & kChanged) != 0) addBias(work, group, within, queryBlock, keyBlock, products);
    for (int64_t row = 0; row < rows; ++row) {
      const float* at = products + row * kBlock;
      greatest[row] = _mm512_max_ps(greatest[row], _mm512_max_ps(_mm512_load_ps(at), _mm512_load_ps(at + kTile)));
    }
    room.seen[static_cast<size_t>(count++)] = keyBlock;
  }

  const __m512 factor = _mm512_set1_ps(work.scale * kLog2E);
  float shifts[kBlock], factors[kBlock];
  __m512 totals[kBlock];
  for (int64_t row = 0; row < rows; ++row) {
    shifts[row] = _mm512_reduce_max_ps(greatest[row]);
    if (shifts[row] == kNever) shifts[row] = kNone;
    totals[row] = _mm512_setzero_ps();
  }
  // While weights are computed, those before them are multiplied with the first block of their values.
  const auto* weights = reinterpret_cast<const uint16_t*>(room.scores);
  const auto valuesOf = [&](int64_t at, int64_t column) {
    return room.values + (room.seen[static_cast<size_t>(at)] * work.sizeBlocks + column) * kNumbers;
  };
  beginSums();
  for (int64_t at = 0; at < count; ++at) {
    if (at > 0) addProduct(weights + 2 * (at - 1) * kNumbers, valuesOf(at - 1, 0));
    weigh(room.scores + at * kNumbers, rows, factor, shifts, totals);
    isWritten();
  }
  const int64_t place = work.place(batch, head, line);
  for (int64_t row = 0; row < rows; ++row) {
    const float total = _mm512_reduce_add_ps(totals[row]);
    forward.greatest[place + row] = shifts[row];
    forward.logSums[place + row] = shifts[row] == kNone ? 0 : std::log2(total);
    factors[row] = total == 0 ? 0 : 1 / total;
  }
  for (int64_t column = 0; column < work.sizeBlocks; ++column) {
    if (column > 0) beginSums();
    for (int64_t at = column > 0 ? 0 : std::max<int64_t>(0, count - 1); at < count; ++at) {
      addProduct(weights + 2 * at * kNumbers, valuesOf(at, column));
    }
    storeSums(room.sums);
    writeLines(room.sums, factors, forward.output.at(batch, head), line, column * kBlock);
  }
}

// Blocks of queries `from` … `to` − 1 of all heads.
ASTRA_TILE_CODE void attendBlocks(const Forward& forward, ForwardRoom& room, int64_t from, int64_t to) {
  const Work& work = forward.work;
  const TileScope tiles(kTile);
  for (int64_t block = from; block < to; ++block) {
    const int64_t head = block / work.queryBlocks, batch = head / work.heads;
    const int64_t group = head / work.shared();
    if (isNew(room, work, group)) {
      const Rows keys = work.key.at(batch, group % work.groups), values = work.value.at(batch, group % work.groups);
      for (int64_t keyBlock = 0; keyBlock < work.keyBlocks; ++keyBlock) {
        const int64_t at = keyBlock * work.sizeBlocks * kNumbers;
        arrange<Form::words>(keys, keyBlock * kBlock, room.keys + at);
        arrange<Form::pairs>(values, keyBlock * kBlock, room.values + at);
      }
    }
    attendBlock(forward, room, batch, head % work.heads, block % work.queryBlocks);
  }
}

struct BackwardRoom {
  BackwardRoom(const Extent& extent, uint16_t* memory)
      : most(mostOf(extent)), seen(static_cast<size_t>(extent.keyBlocks)),
        places(static_cast<size_t>(most * extent.keyBlocks)) {
    const int64_t all = extent.keyBlocks * extent.sizeBlocks;
    keys = take(memory, all);
    values = take(memory, all);
    keyPairs = take(memory, all);
    query = take(memory, extent.sizeBlocks);
    gradient = take(memory, extent.sizeBlocks);
    queryColumns = take(memory, most * extent.sizeBlocks);
    gradientColumns = take(memory, most * extent.sizeBlocks);
    kept = take(memory, 2 * most * extent.keyBlocks);
    scoreGradients = take(memory, extent.keyBlocks);
    products = takeSums(memory, 4);
    sums = takeSums(memory, extent.shared == 1 ? 2 * all : 0);
  }
  static int64_t mostOf(const Extent& extent) {
    return std::clamp<int64_t>(kMostKept / extent.keyBlocks, 1, std::min(kMostPlaces, extent.queryBlocks));
  }
  static int64_t blocksOf(const Extent& extent) {
    const int64_t all = extent.keyBlocks * extent.sizeBlocks, most = mostOf(extent);
    const int64_t sums = extent.shared == 1 ? 4 * all : 0;
    return 3 * all + sums + 2 * (1 + most) * extent.sizeBlocks + (2 * most + 1) * extent.keyBlocks + 8;
  }

  int64_t most;                    // blocks of queries between two sums over queries
  const Work* arranged = nullptr;  // whose keys and values are here, and of which of its groups
  int64_t arrangedGroup = 0;
  uint16_t *keys, *values;         // by words
  uint16_t* keyPairs;              // by pairs
  uint16_t *query, *gradient;      // lines of one block of queries
  uint16_t *queryColumns, *gradientColumns;
  uint16_t* kept;                  // weights and their scores' gradients, by pairs of queries
  uint16_t* scoreGradients;        // lines
  float* products;                 // scores, and gradients of weights, of two blocks
  float* sums;                     // of one head, where no other shares its keys
  std::vector<int64_t> seen;       // blocks of keys
  std::vector<int64_t> places;     // [blocks of queries, blocks of keys] of what is kept, or −1
};

struct Backward {
  const Work& work;
  Heads output, gradient;  // of the forward pass, and what arrives for it
  const float *greatest, *logSums;  // [B, H, all T], of the forward pass
  Heads query, key, value;  // results
  // Sums of each head whose keys others share: [B, H, values and keys, blocks of keys, blocks of E, 32 of E, 32 keys]
  float* sums;
};

// A quarter of the products with one block of keys and values: scores, and gradients of weights.
ASTRA_TILE_INLINE void productsInPart(const BackwardRoom& room, int64_t sizeBlocks, int64_t keyBlock, int part,
                                      float* to) {
  const uint16_t* left = part < 2 ? room.query : room.gradient;
  const uint16_t* right = (part < 2 ? room.keys : room.values) + keyBlock * sizeBlocks * kNumbers;
  const int64_t middle = (sizeBlocks + 1) / 2;
  if (part % 2 == 0) beginSums();
  for (int64_t at = part % 2 == 0 ? 0 : middle; at < (part % 2 == 0 ? middle : sizeBlocks); ++at) {
    addProduct(left + at * kNumbers, right + at * kNumbers);
  }
  if (part % 2 == 1) storeSums(to + part / 2 * kNumbers);
}

// A quarter of the pairs of rows of one block: from scores and gradients of weights to weights and gradients of scores.
ASTRA_TILE_INLINE void differentiateInPart(const float* scores, int part, __m512 factor, const float* shifts,
                                           const float* logSums, const float* means, uint16_t* kept,
                                           uint16_t* gradientLines) {
  const float* ofWeights = scores + kNumbers;
  for (int64_t pair = part * kTile / 4; pair < (part + 1) * kTile / 4; ++pair) {
    __m512i weights[2], gradients[2];
    for (int64_t i = 0; i < 2; ++i) {
      const int64_t row = 2 * pair + i;
      const __m512 shift = _mm512_set1_ps(shifts[row]), mean = _mm512_set1_ps(means[row]);
      const __m512 logSum = _mm512_set1_ps(logSums[row]);
      const float *score = scores + row * kBlock, *ofWeight = ofWeights + row * kBlock;
      const __m512 first =
          powerOf2(_mm512_fmsub_ps(_mm512_sub_ps(_mm512_load_ps(score), shift), factor, logSum));
      const __m512 second =
          powerOf2(_mm512_fmsub_ps(_mm512_sub_ps(_mm512_load_ps(score + kTile), shift), factor, logSum));
      weights[i] = rounded(first, second);
      gradients[i] = rounded(_mm512_mul_ps(first, _mm512_sub_ps(_mm512_load_ps(ofWeight), mean)),
                             _mm512_mul_ps(second, _mm512_sub_ps(_mm512_load_ps(ofWeight + kTile), mean)));
      _mm512_store_si512(gradientLines + row * kBlock, gradients[i]);
    }
    uint16_t* to = kept + pair * 32;
    _mm512_store_si512(to, _mm512_unpacklo_epi16(weights[0], weights[1]));
    _mm512_store_si512(to + 512, _mm512_unpackhi_epi16(weights[0], weights[1]));
    _mm512_store_si512(to + kNumbers, _mm512_unpacklo_epi16(gradients[0], gradients[1]));
    _mm512_store_si512(to + kNumbers + 512, _mm512_unpackhi_epi16(gradients[0], gradients[1]));
  }
}

// Scores again, and from them and the gradients of the output those of the scores, which are the gradient of the query.
// Weights and gradients of scores are kept by pairs of queries for the sums over queries; the keys of a block are then
// in the order that interleaving within parts of 128 bits leaves.
ASTRA_TILE_CODE void differentiateBlock(const Backward& backward, BackwardRoom& room, int64_t batch, int64_t head,
                                        int64_t queryBlock, int64_t place, int64_t& kept) {
  const Work& work = backward.work;
  const int64_t shared = work.shared(), group = batch * work.groups + head / shared, within = head % shared;
  const int64_t line = queryBlock * kBlock, rows = std::min(kBlock, work.queries - line);
  const Rows query = work.query.at(batch, head), gradient = backward.gradient.at(batch, head);
  const Rows output = backward.output.at(batch, head);
  arrange<Form::lines>(query, line, room.query);
  arrange<Form::lines>(gradient, line, room.gradient);
  arrange<Form::columns>(query, line, room.queryColumns + place * work.sizeBlocks * kNumbers);
  arrange<Form::columns>(gradient, line, room.gradientColumns + place * work.sizeBlocks * kNumbers);
  isWritten();

  // Of rows that are not there: weights 0.
  float shifts[kBlock], logSums[kBlock], means[kBlock];
  const int64_t firstPlace = work.place(batch, head, line);
  for (int64_t row = 0; row < kBlock; ++row) {
    shifts[row] = row < rows ? backward.greatest[firstPlace + row] : kNone;
    logSums[row] = row < rows ? backward.logSums[firstPlace + row] : 0;
    __m512 sum = _mm512_setzero_ps();
    for (int64_t column = 0; row < rows && column < work.size; column += kTile) {
      const int64_t present = work.size - column;
      const __mmask16 mask = static_cast<__mmask16>(present >= kTile ? ~0u : (1u << present) - 1);
      const __m512 a = loadWide(gradient.first + (line + row) * gradient.stride + column, mask);
      const __m512 b = loadWide(output.first + (line + row) * output.stride + column, mask);
      sum = _mm512_fmadd_ps(a, b, sum);
    }
    means[row] = _mm512_reduce_add_ps(sum);
  }

  const uint8_t* kinds = work.bias.kindsOf(group, within, shared, queryBlock);
  const __m512 factor = _mm512_set1_ps(work.scale * kLog2E);
  int64_t count = 0;
  const int64_t firstKept = kept;
  for (int64_t keyBlock = 0; keyBlock < work.keyBlocks; ++keyBlock) {
    const bool isSeen = (kinds[keyBlock] & kSeen) != 0;
    room.places[static_cast<size_t>(place * work.keyBlocks + keyBlock)] = isSeen ? kept++ : -1;
    if (isSeen) room.seen[static_cast<size_t>(count++)] = keyBlock;
  }
  // The tiles multiply one block while vectors are made of the one before.
  for (int part = 0; part < 4 && count > 0; ++part) {
    productsInPart(room, work.sizeBlocks, room.seen[0], part, room.products);
  }
  for (int64_t at = 0; at < count; ++at) {
    const int64_t keyBlock = room.seen[static_cast<size_t>(at)];
    float* scores = room.products + at % 2 * 2 * kNumbers;
    float* next = room.products + (at + 1) % 2 * 2 * kNumbers;
    if ((kinds[keyBlock] & kChanged) != 0) addBias(work, group, within, queryBlock, keyBlock, scores);
    for (int part = 0; part < 4; ++part) {
      if (at + 1 < count) {
        productsInPart(room, work.sizeBlocks, room.seen[static_cast<size_t>(at + 1)], part, next);
      }
      differentiateInPart(scores, part, factor, shifts, logSums, means, room.kept + 2 * (firstKept + at) * kNumbers,
                          room.scoreGradients + at * kNumbers);
    }
  }
  isWritten();

  float factors[kBlock];
  std::fill_n(factors, kBlock, work.scale);
  for (int64_t column = 0; column < work.sizeBlocks; ++column) {
    beginSums();
    for (int64_t at = 0; at < count; ++at) {
      const int64_t keyBlock = room.seen[static_cast<size_t>(at)];
      addProduct(room.scoreGradients + at * kNumbers,
                 room.keyPairs + (keyBlock * work.sizeBlocks + column) * kNumbers);
    }
    storeSums(room.products);
    writeLines(room.products, factors, backward.query.at(batch, head), line, column * kBlock);
  }
}

// Sums over blocks of queries for 16 keys and for as many of E: what is kept is read once, all the rest comes from the
// first-level cache. `left` and `to` are of the first tile of E, `right` is of the keys.
template <int tiles>
ASTRA_TILE_INLINE void sumTiles(const Work& work, const BackwardRoom& room, int64_t count, int64_t keyBlock, bool begin,
                                const uint16_t* left, const uint16_t* right, float* to) {
  if (begin) {
    beginSums();
  } else {
    _tile_loadd(0, to, 128);
    _tile_loadd(1, to + 512, 128);
    if constexpr (tiles > 2) _tile_loadd(2, to + 1024, 128);
    if constexpr (tiles > 2) _tile_loadd(3, to + 1536, 128);
  }
  for (int64_t place = 0; place < count; ++place) {
    const int64_t kept = room.places[static_cast<size_t>(place * work.keyBlocks + keyBlock)];
    if (kept < 0) continue;
    const uint16_t* columns = left + place * work.sizeBlocks * kNumbers;
    _tile_loadd(7, right + 2 * kept * kNumbers, 64);
    _tile_loadd(4, columns, 64);
    _tile_dpbf16ps(0, 4, 7);
    _tile_loadd(5, columns + 512, 64);
    _tile_dpbf16ps(1, 5, 7);
    if constexpr (tiles > 2) {
      _tile_loadd(6, columns + 1024, 64);
      _tile_dpbf16ps(2, 6, 7);
      _tile_loadd(4, columns + 1536, 64);
      _tile_dpbf16ps(3, 4, 7);
    }
  }
  _tile_stored(0, to, 128);
  _tile_stored(1, to + 512, 128);
  if constexpr (tiles > 2) _tile_stored(2, to + 1024, 128);
  if constexpr (tiles > 2) _tile_stored(3, to + 1536, 128);
}

// What `count` blocks of queries give, added unless they begin them, to the gradients of values and keys:
// sums[values and keys, blocks of keys, blocks of E], each block 32 of E × 32 keys.
ASTRA_TILE_CODE void sumOverQueries(const Work& work, const BackwardRoom& room, int64_t count, bool begin,
                                    float* sums) {
  isWritten();
  for (int64_t side = 0; side < 2; ++side) {
    for (int64_t column = 0; column < work.sizeBlocks; column += 2) {
      const uint16_t* left = (side == 0 ? room.gradientColumns : room.queryColumns) + column * kNumbers;
      for (int64_t keyBlock = 0; keyBlock < work.keyBlocks; ++keyBlock) {
        float* to = sums + ((side * work.keyBlocks + keyBlock) * work.sizeBlocks + column) * kNumbers;
        for (int64_t half = 0; half < 2; ++half) {
          const uint16_t* right = room.kept + side * kNumbers + half * kNumbers / 2;
          if (column + 1 < work.sizeBlocks) {
            sumTiles<4>(work, room, count, keyBlock, begin, left, right, to + half * kTile);
          } else {
            sumTiles<2>(work, room, count, keyBlock, begin, left, right, to + half * kTile);
          }
        }
      }
    }
  }
}

// One block of sums [32 of E, 32 keys], added up over `heads`, each `apart` numbers from the next: as rows of keys.
ASTRA_TILE_CODE void writeTurned(const float* sums, int64_t heads, int64_t apart, float factor, const Rows& to,
                                 int64_t line, int64_t column) {
  const int64_t present = to.size - column;
  const __mmask32 mask = present >= kBlock ? ~__mmask32{0} : (__mmask32{1} << present) - 1;
  const __m512i paired = _mm512_load_si512(kInterleaved);
  const __m512 times = _mm512_set1_ps(factor);
  for (int64_t half = 0; half < 2; ++half) {
    __m512i lanes[kTile];
    for (int64_t pair = 0; pair < kTile; ++pair) {
      const float* at = sums + pair * 2 * kBlock + half * kTile;
      __m512 even = _mm512_load_ps(at), odd = _mm512_load_ps(at + kBlock);
      for (int64_t head = 1; head < heads; ++head) {
        even = _mm512_add_ps(even, _mm512_load_ps(at + head * apart));
        odd = _mm512_add_ps(odd, _mm512_load_ps(at + head * apart + kBlock));
      }
      const __m512i both = rounded(_mm512_mul_ps(even, times), _mm512_mul_ps(odd, times));
      lanes[pair] = _mm512_permutexvar_epi16(paired, both);
    }
    transpose(lanes);
    for (int64_t i = 0; i < kTile; ++i) {
      // The order of the columns is that of the interleaved pairs.
      const int64_t row = line + i / 4 * 8 + half * 4 + i % 4;
      if (row < to.count) _mm512_mask_storeu_epi16(to.first + row * to.stride + column, mask, lanes[i]);
    }
  }
}

int64_t sumsOfHead(const Work& work) { return 2 * work.keyBlocks * work.sizeBlocks * kNumbers; }

// Gradients of one head's values and keys from the sums of `heads` heads.
void writeSums(const Backward& backward, const float* sums, int64_t heads, int64_t batch, int64_t group) {
  const Work& work = backward.work;
  const int64_t all = work.keyBlocks * work.sizeBlocks;
  for (int64_t block = 0; block < all; ++block) {
    const int64_t line = block / work.sizeBlocks * kBlock, column = block % work.sizeBlocks * kBlock;
    const float* own = sums + block * kNumbers;
    writeTurned(own, heads, sumsOfHead(work), 1, backward.value.at(batch, group), line, column);
    writeTurned(own + all * kNumbers, heads, sumsOfHead(work), work.scale, backward.key.at(batch, group), line, column);
  }
}

// Heads `from` … `to` − 1 of all rows of the batch.
ASTRA_TILE_CODE void differentiateHeads(const Backward& backward, BackwardRoom& room, int64_t from, int64_t to) {
  const Work& work = backward.work;
  const TileScope tiles(kTile);
  for (int64_t head = from; head < to; ++head) {
    const int64_t batch = head / work.heads, group = head / work.shared();
    if (isNew(room, work, group)) {
      const Rows keys = work.key.at(batch, group % work.groups), values = work.value.at(batch, group % work.groups);
      for (int64_t keyBlock = 0; keyBlock < work.keyBlocks; ++keyBlock) {
        const int64_t at = keyBlock * work.sizeBlocks * kNumbers;
        arrange<Form::words>(keys, keyBlock * kBlock, room.keys + at);
        arrange<Form::pairs>(keys, keyBlock * kBlock, room.keyPairs + at);
        arrange<Form::words>(values, keyBlock * kBlock, room.values + at);
      }
    }
    float* sums = work.shared() == 1 ? room.sums : backward.sums + head * sumsOfHead(work);
    for (int64_t first = 0; first < work.queryBlocks; first += room.most) {
      const int64_t count = std::min(room.most, work.queryBlocks - first);
      int64_t kept = 0;
      for (int64_t place = 0; place < count; ++place) {
        differentiateBlock(backward, room, batch, head % work.heads, first + place, place, kept);
      }
      sumOverQueries(work, room, count, first == 0, sums);
    }
    if (work.shared() == 1) writeSums(backward, sums, 1, batch, group % work.groups);
  }
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

  bool fitsBias(const at::Tensor& bias, int64_t queries) const {
    return bias.defined() && isPlain(bias, at::kBFloat16) && bias.dim() == 3 && bias.numel() > 0 &&
           (bias.size(0) == 1 || bias.size(0) == query.size(0) * key.size(1)) &&
           (bias.size(1) == 1 || bias.size(1) == shared() * queries);
  }

  bool applies() const {
    for (const at::Tensor* tensor : {&query, &key, &value}) {
      if (!isPlain(*tensor, at::kBFloat16) || tensor->dim() != 4 || tensor->numel() == 0) return false;
      if (tensor->stride(3) != 1 && tensor->size(3) != 1) return false;
    }
    if (query.size(3) > kMostHeadSize || query.size(1) % key.size(1) != 0 || key.size(0) != query.size(0) ||
        key.size(3) != query.size(3) || value.sizes() != key.sizes()) {
      return false;
    }
    const int64_t rows = query.size(0) * query.size(1);
    if (rows > kMostRows || std::max(query.size(2), key.size(2)) > kMostRows / rows) return false;
    // Biases divided by the scale stay finite.
    if (!(scale >= 1e-6 && scale <= 1e6)) return false;
    if (biases.size() == 1) {
      if (!fitsBias(biases[0], query.size(2)) || biases[0].size(2) != key.size(2)) return false;
    } else if (biases.size() > 1) {
      int64_t tokens = 0;
      for (const at::Tensor& bias : biases) {
        if (!bias.defined() || bias.dim() != 3 || !fitsBias(bias, bias.size(2))) return false;
        tokens += bias.size(2);
      }
      if (tokens != query.size(2) || tokens != key.size(2)) return false;
    }
    return mayUseTiles();
  }
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
  void add(const Given& given, const at::Tensor& bias, int64_t first, int64_t queries, int64_t columns) {
    const int64_t batch = given.query.size(0), groups = given.key.size(1);
    works_.push_back({part(given.query, first, queries), part(given.key, first, columns),
                      part(given.value, first, columns),
                      biasOf(bias, batch * groups, given.shared(), queries, columns), batch, given.query.size(1),
                      groups, queries, columns, given.query.size(3), blocksOf(queries), blocksOf(columns),
                      blocksOf(given.query.size(3)), first, given.query.size(2), static_cast<float>(given.scale)});
    const Work& work = works_.back();
    extent_ = {std::max(extent_.queryBlocks, work.queryBlocks), std::max(extent_.keyBlocks, work.keyBlocks),
               work.sizeBlocks, work.shared()};
    next_ += queries;
  }

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

std::vector<int64_t> measuresOf(const at::Tensor& query) { return {2, query.size(0), query.size(1), query.size(2)}; }

constexpr int64_t kWorth = 64;  // blocks of scores that are worth a thread's start
#endif

// fusedAttention(query, key, value, biases, scale): [[B, T, H·E], measures [2, B, H, T]: greatest scores divided by the
// scale, and logarithms of the sums], or null where it does not apply
napi_value fusedAttention(Call& call) {
#ifdef ASTRA_TILES
  const at::AutoGradMode mode(false);
  const Given given(call);
  if (!given.applies()) return makeNull(call.env);
  const Segments segments(given);
  const at::Tensor& query = given.query;
  at::Tensor output = at::empty({query.size(0), query.size(2), given.width()}, query.options());
  at::Tensor measures = at::empty(measuresOf(query), query.options().dtype(at::kFloat));
  auto* greatest = static_cast<float*>(measures.data_ptr());
  std::vector<Forward> parts;
  std::vector<int64_t> counts;
  int64_t blocks = 0;
  for (const Work& work : segments.works()) {
    parts.push_back({work, Segments::headsOf(work, output), greatest, greatest + measures.numel() / 2});
    counts.push_back(work.batch * work.heads * work.queryBlocks);
    blocks += counts.back();
  }
  Rooms<ForwardRoom> rooms(segments.extent());
  // Neighbouring blocks share what is arranged of their keys and values.
  const int64_t even = blocks / (4 * at::get_num_threads());
  inPiecesOf(counts, std::max({int64_t{1}, even, kWorth / segments.extent().keyBlocks}),
             [&](size_t at, int64_t from, int64_t to) { attendBlocks(parts[at], rooms.own(), from, to); });
  return makeArray(call.env, {wrapTensor(*call.engine, call.env, std::move(output)),
                              wrapTensor(*call.engine, call.env, std::move(measures))});
#else
  return makeNull(call.env);
#endif
}

// fusedAttentionBackward(query, key, value, biases, scale, output, measures, gradient): of the query, key and value
napi_value fusedAttentionBackward(Call& call) {
#ifdef ASTRA_TILES
  const at::AutoGradMode mode(false);
  const Given given(call);
  const at::Tensor output = call.tensor(5, "output");
  const at::Tensor measures = call.tensor(6, "measures");
  const at::Tensor gradient = call.tensor(7, "gradient");
  if (!given.applies()) throw Refusal("there is no fused attention of these tensors");
  const std::vector<int64_t> outputShape{given.query.size(0), given.query.size(2), given.width()};
  for (const at::Tensor* tensor : {&output, &gradient}) {
    if (!isPlain(*tensor, at::kBFloat16) || tensor->sizes() != outputShape) {
      throw Refusal("output and gradient must be bfloat16[B, T, H·E], got " + describeTensor(*tensor));
    }
  }
  if (!isPlain(measures, at::kFloat) || measures.sizes() != at::IntArrayRef(measuresOf(given.query))) {
    throw Refusal("measures must be float32[2, B, H, T], got " + describeTensor(measures));
  }
  const Segments segments(given);
  const at::Tensor plainOutput = output.contiguous(), plainGradient = gradient.contiguous();
  const at::Tensor plainMeasures = measures.contiguous();
  const auto* greatest = static_cast<const float*>(plainMeasures.data_ptr());
  // Token by token, as the projections before the attention are written and read.
  const auto like = [](const at::Tensor& tensor) {
    const std::vector<int64_t> byToken{tensor.size(0), tensor.size(2), tensor.size(1), tensor.size(3)};
    return at::empty(byToken, tensor.options()).transpose(1, 2);
  };
  at::Tensor ofQuery = like(given.query), ofKey = like(given.key), ofValue = like(given.value);
  int64_t numbers = 0;
  for (const Work& work : segments.works()) {
    if (work.shared() > 1) numbers += work.batch * work.heads * sumsOfHead(work);
  }
  const at::Tensor sums = at::empty({numbers}, given.query.options().dtype(at::kFloat));
  auto* next = static_cast<float*>(sums.data_ptr());
  std::vector<Backward> parts;
  std::vector<int64_t> heads, groups;
  for (const Work& work : segments.works()) {
    parts.push_back({work, Segments::headsOf(work, plainOutput), Segments::headsOf(work, plainGradient),
                     greatest, greatest + plainMeasures.numel() / 2,
                     Segments::part(ofQuery, work.firstQuery, work.queries),
                     Segments::part(ofKey, work.firstQuery, work.columns),
                     Segments::part(ofValue, work.firstQuery, work.columns), next});
    heads.push_back(work.batch * work.heads);
    groups.push_back(work.batch * work.groups);
    if (work.shared() > 1) next += heads.back() * sumsOfHead(work);
  }
  const Extent& extent = segments.extent();
  Rooms<BackwardRoom> rooms(extent);
  inPiecesOf(heads, std::max<int64_t>(1, kWorth / (extent.queryBlocks * extent.keyBlocks)),
             [&](size_t at, int64_t from, int64_t to) { differentiateHeads(parts[at], rooms.own(), from, to); });
  if (extent.shared > 1) {
    inPiecesOf(groups, std::max<int64_t>(1, kWorth / extent.keyBlocks), [&](size_t at, int64_t from, int64_t to) {
      const Work& work = parts[at].work;
      for (int64_t group = from; group < to; ++group) {
        writeSums(parts[at], parts[at].sums + group * work.shared() * sumsOfHead(work), work.shared(),
                  group / work.groups, group % work.groups);
      }
    });
  }
  return makeArray(call.env, {wrapTensor(*call.engine, call.env, std::move(ofQuery)),
                              wrapTensor(*call.engine, call.env, std::move(ofKey)),
                              wrapTensor(*call.engine, call.env, std::move(ofValue))});
#else
  throw Refusal("there is no fused attention on this machine");
#endif
}

}  // namespace

void defineFusedAttention(napi_env env, napi_value exports, Engine* engine) {
  define(env, exports, engine, "fusedAttention", fusedAttention);
  define(env, exports, engine, "fusedAttentionBackward", fusedAttentionBackward);
}

}  // namespace astra
