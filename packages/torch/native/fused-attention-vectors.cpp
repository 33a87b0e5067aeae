// Attention of float32 numbers on vector registers: fused-attention.h. Products of a block of queries with all blocks of keys
// that it may attend to lie side by side, as lines of [32, width]: scores and then probabilities in one of them, gradients of
// either in another.
#include <algorithm>
#include <cmath>
#include <vector>

#include "fused-attention.h"

namespace astra::attention {
namespace {

using Rows = RowsOf<float>;
using Heads = HeadsOf<float>;
using Work = WorkOf<float>;
using Segments = SegmentsOf<float>;

// C = A · B, or C + A · B. Of A any number stands alone, so that it may be turned; B and C lie by rows.
struct Product {
  const float* a;
  int64_t aRow, aInner;
  const float* b;
  int64_t bRow;
  float* c;
  int64_t cRow;
  int64_t rows, columns, inner;  // columns: a multiple of 16
  bool begins;
};

// MR rows and NR registers of columns. Each number is added to along the inner dimension, one after the other.
template <int VL, int MR, int NR>
ASTRA_INLINE void addTile(const Product& work, int64_t row, int64_t column) {
  using Floats = typename Vector<VL>::Floats;
  const float* a[MR];
  Floats sums[MR][NR] = {};
  const auto to = [&](int m, int n) {
    return work.c + std::min(row + m, work.rows - 1) * work.cRow + column + n * VL;  // some of them twice
  };
  for (int m = 0; m < MR; ++m) {
    a[m] = work.a + std::min(row + m, work.rows - 1) * work.aRow;
    for (int n = 0; n < NR && !work.begins; ++n) sums[m][n] = load<Floats>(to(m, n));
  }
  const float* b = work.b + column;
  for (int64_t k = 0; k < work.inner; ++k, b += work.bRow) {
    Floats right[NR];
#pragma GCC unroll 2
    for (int n = 0; n < NR; ++n) right[n] = load<Floats>(b + n * VL);
#pragma GCC unroll 8
    for (int m = 0; m < MR; ++m) {
      const float left = a[m][k * work.aInner];
#pragma GCC unroll 2
      for (int n = 0; n < NR; ++n) sums[m][n] += left * right[n];
    }
  }
  for (int m = 0; m < MR; ++m) {
    for (int n = 0; n < NR; ++n) std::memcpy(to(m, n), &sums[m][n], sizeof sums[m][n]);
  }
}

ASTRA_PRODUCT_LOOP(void, multiply, (const Product& work), (work)) {
  constexpr int MR = VL < 16 ? 4 : 8;
  for (int64_t column = 0; column < work.columns; column += 2 * VL) {
    const bool isWhole = column + 2 * VL <= work.columns;
    for (int64_t row = 0; row < work.rows; row += MR) {
      isWhole ? addTile<VL, MR, 2>(work, row, column) : addTile<VL, MR, 1>(work, row, column);
    }
  }
}

// The scores of a block as products have left them.
struct Scores {
  float* lines;
  int64_t width, rows, present;
  float scale;
  const float* bias;  // of the first line, or null
  int64_t biasStride;
};

// Scaled and biased, and −∞ what is forbidden or not there.
ASTRA_VECTOR_LOOP(void, finishScores, (const Scores& work), (work)) {
  for (int64_t row = 0; row < work.rows; ++row) {
    float* __restrict line = work.lines + row * work.width;
    const float* __restrict bias = work.bias + row * work.biasStride;
    if (work.bias == nullptr) {
#pragma omp simd
      for (int64_t i = 0; i < kBlockSize; ++i) line[i] *= work.scale;
    } else {
#pragma omp simd
      for (int64_t i = 0; i < work.present; ++i) {
        line[i] = bias[i] <= kForbids ? kForbiddenScore : line[i] * work.scale + bias[i];
      }
    }
    for (int64_t i = work.present; i < kBlockSize; ++i) line[i] = kForbiddenScore;
  }
}

struct Measure {
  float rowMax, rowSum;
};

// Scores of one query to probabilities, not yet divided by their sum.
ASTRA_VECTOR_LOOP(Measure, exponentiate, (float* __restrict scores, int64_t count), (scores, count)) {
  float greatest = kForbiddenScore, sum = 0;
#pragma omp simd reduction(max : greatest)
  for (int64_t i = 0; i < count; ++i) greatest = scores[i] > greatest ? scores[i] : greatest;
  if (greatest == kForbiddenScore) greatest = kShiftOfNothing;
#pragma omp simd reduction(+ : sum)
  for (int64_t i = 0; i < count; ++i) {
    scores[i] = exponential(scores[i] - greatest);
    sum += scores[i];
  }
  return {greatest, sum};
}

// What the backward pass knows of one query.
struct Known {
  float rowMax, logRowSum, scale;
  const float *output, *outputGradient;
  int64_t size;
};

// S and dP of one query to P and dS.
ASTRA_VECTOR_LOOP(void, differentiate,
                  (float* __restrict scores, float* __restrict gradients, int64_t count, const Known& known),
                  (scores, gradients, count, known)) {
  float delta = 0;
#pragma omp simd reduction(+ : delta)
  for (int64_t e = 0; e < known.size; ++e) delta += known.output[e] * known.outputGradient[e];
#pragma omp simd
  for (int64_t i = 0; i < count; ++i) {
    const float probability = exponential((scores[i] - known.rowMax) - known.logRowSum);
    scores[i] = probability;
    gradients[i] = probability * (gradients[i] - delta) * known.scale;
  }
}

// Keys or values as right operands of products along the head's size: [B·G, blocks, E, 32].
at::Tensor turned(const Work& work, const Heads& heads) {
  at::Tensor result = at::empty({work.batch * work.groups * work.keyBlocks * work.size * kBlockSize},
                                at::TensorOptions().dtype(at::kFloat));
  float* const to = floatsOf(result);
  inPieces(work.batch * work.groups * work.keyBlocks, kWorth, [&](int64_t from, int64_t end) {
    for (int64_t at = from; at < end; ++at) {
      const int64_t group = at / work.keyBlocks, line = at % work.keyBlocks * kBlockSize;
      const Rows rows = heads.at(group / work.groups, group % work.groups);
      float* const block = to + at * work.size * kBlockSize;
      for (int64_t i = 0; i < kBlockSize; ++i) {
        const float* row = rows.at(std::min(line + i, rows.count - 1));
        for (int64_t e = 0; e < work.size; ++e) block[e * kBlockSize + i] = row[e];
      }
    }
  });
  return result;
}

// One block of queries of one head of a segment.
struct Block {
  const Work& work;
  int64_t batch, head, line, rows;

  Block(const Work& work, int64_t batch, int64_t head, int64_t queryBlock)
      : work(work), batch(batch), head(head), line(queryBlock * kBlockSize),
        rows(std::min(kBlockSize, work.queries - line)) {}

  int64_t group() const { return batch * work.groups + head / work.shared(); }
};

// Memory of one thread.
struct Room {
  int64_t width;
  float *scores, *gradients;
  std::vector<int64_t> seen;  // blocks of keys
};

// Rooms of all threads, each with `kinds` times 32 lines.
class Rooms {
 public:
  Rooms(const Extent& extent, int64_t kinds) {
    // Lines that lie a power of 2 apart would share few places of the caches.
    const int64_t width = extent.keyBlocks * kBlockSize + kLane, size = kBlockSize * width;
    memory_ = at::empty({at::get_num_threads(), kinds * size}, at::TensorOptions().dtype(at::kFloat));
    for (int64_t thread = 0; thread < memory_.size(0); ++thread) {
      float* const first = floatsOf(memory_) + thread * kinds * size;
      rooms_.push_back({width, first, first + (kinds - 1) * size, {}});
    }
  }
  Room& own() { return rooms_[static_cast<size_t>(at::get_thread_num())]; }

 private:
  at::Tensor memory_;
  std::vector<Room> rooms_;
};

// Products of rows with all blocks of keys, or of values, that are seen.
void multiplySeen(const Block& block, const Room& room, const Rows& rows, const float* turned, float* to) {
  for (size_t at = 0; at < room.seen.size(); ++at) {
    const float* right = turned + (block.group() * block.work.keyBlocks + room.seen[at]) * rows.size * kBlockSize;
    multiply({rows.at(block.line), rows.stride, 1, right, kBlockSize, to + static_cast<int64_t>(at) * kBlockSize,
              room.width, block.rows, kBlockSize, rows.size, true});
  }
}

void computeScores(const Block& block, Room& room, const float* keys) {
  const Work& work = block.work;
  const int64_t within = block.head % work.shared();
  const uint8_t* kinds = work.bias.kindsOf(block.group(), within, work.shared(), block.line / kBlockSize);
  room.seen.clear();
  for (int64_t keyBlock = 0; keyBlock < work.keyBlocks; ++keyBlock) {
    if ((kinds[keyBlock] & kHasAllowed) != 0) room.seen.push_back(keyBlock);
  }
  multiplySeen(block, room, work.query.at(block.batch, block.head), keys, room.scores);
  const float* bias = work.bias.row<float>(block.group(), within, block.line);
  for (size_t at = 0; at < room.seen.size(); ++at) {
    const int64_t first = room.seen[at] * kBlockSize;
    const bool isBiased = bias != nullptr && (kinds[room.seen[at]] & kHasBias) != 0;
    finishScores(Scores{room.scores + static_cast<int64_t>(at) * kBlockSize, room.width, block.rows,
                        std::min(kBlockSize, work.columns - first), work.scale, isBiased ? bias + first : nullptr,
                        isBiased ? work.bias.rowStride() : 0});
  }
}

// Calls `visit` with the first column of the room, the first key and the number of keys of blocks that follow one another.
template <typename Visit>
void forEachRun(const Block& block, const Room& room, const Visit& visit) {
  const auto& seen = room.seen;
  for (size_t begin = 0, end = 0; begin < seen.size(); begin = end) {
    for (end = begin + 1; end < seen.size() && seen[end] == seen[end - 1] + 1;) ++end;
    const int64_t key = seen[begin] * kBlockSize;
    const int64_t last = std::min(block.work.columns, (seen[end - 1] + 1) * kBlockSize);
    visit(static_cast<int64_t>(begin) * kBlockSize, key, last - key);
  }
}

void zero(const Rows& rows, int64_t line, int64_t count) {
  for (int64_t row = line; row < line + count; ++row) std::fill_n(rows.at(row), rows.size, 0.0f);
}

struct Forward {
  const Work& work;
  Heads output;
  at::Tensor keys;
  float *rowMax, *logRowSum;  // [B, H, all T]: of scores that are scaled and biased; to base e
};

void forwardBlock(const Forward& forward, Room& room, const Block& block) {
  const Work& work = forward.work;
  computeScores(block, room, floatsOf(forward.keys));
  const int64_t count = static_cast<int64_t>(room.seen.size()) * kBlockSize;
  const int64_t place = work.place(block.batch, block.head, block.line);
  const Rows output = forward.output.at(block.batch, block.head);
  const Rows values = work.value.at(block.batch, block.head / work.shared());
  zero(output, block.line, block.rows);
  float factors[kBlockSize];
  for (int64_t row = 0; row < block.rows; ++row) {
    const Measure of = exponentiate(room.scores + row * room.width, count);
    forward.rowMax[place + row] = of.rowMax;
    forward.logRowSum[place + row] = of.rowSum == 0 ? 0 : std::log(of.rowSum);
    factors[row] = of.rowSum == 0 ? 0 : 1 / of.rowSum;
  }
  forEachRun(block, room, [&](int64_t column, int64_t key, int64_t keys) {
    multiply({room.scores + column, room.width, 1, values.at(key), values.stride, output.at(block.line), output.stride,
              block.rows, work.size, keys, false});
  });
  for (int64_t row = 0; row < block.rows; ++row) {
    float* const to = output.at(block.line + row);
    for (int64_t e = 0; e < work.size; ++e) to[e] *= factors[row];
  }
}

struct Backward {
  const Work& work;
  Heads output, outputGradient;
  at::Tensor keys, values;  // turned
  const float *rowMax, *logRowSum;
  Heads query, key, value;  // results
};

// Adds what one block of queries gives to the gradients of its keys and values.
void backwardBlock(const Backward& backward, Room& room, const Block& block) {
  const Work& work = backward.work;
  const int64_t group = block.head / work.shared();
  const Rows query = work.query.at(block.batch, block.head), keys = work.key.at(block.batch, group);
  const Rows gradient = backward.outputGradient.at(block.batch, block.head);
  const Rows output = backward.output.at(block.batch, block.head);
  const Rows ofQuery = backward.query.at(block.batch, block.head), ofKey = backward.key.at(block.batch, group);
  const Rows ofValue = backward.value.at(block.batch, group);
  computeScores(block, room, floatsOf(backward.keys));
  multiplySeen(block, room, gradient, floatsOf(backward.values), room.gradients);
  const int64_t count = static_cast<int64_t>(room.seen.size()) * kBlockSize;
  const int64_t place = work.place(block.batch, block.head, block.line);
  for (int64_t row = 0; row < block.rows; ++row) {
    const Known known{backward.rowMax[place + row], backward.logRowSum[place + row], work.scale,
                      output.at(block.line + row), gradient.at(block.line + row), work.size};
    differentiate(room.scores + row * room.width, room.gradients + row * room.width, count, known);
  }
  zero(ofQuery, block.line, block.rows);
  forEachRun(block, room, [&](int64_t column, int64_t key, int64_t count) {
    const float *probabilities = room.scores + column, *gradients = room.gradients + column;
    multiply({gradients, room.width, 1, keys.at(key), keys.stride, ofQuery.at(block.line), ofQuery.stride, block.rows,
              work.size, count, false});
    multiply({gradients, 1, room.width, query.at(block.line), query.stride, ofKey.at(key), ofKey.stride, count, work.size,
              block.rows, false});
    multiply({probabilities, 1, room.width, gradient.at(block.line), gradient.stride, ofValue.at(key), ofValue.stride,
              count, work.size, block.rows, false});
  });
}
}  // namespace

void forwardOnVectors(const Given& given, const at::Tensor& output, const at::Tensor& measures) {
  const Segments segments(given);
  float* const rowMax = floatsOf(measures);
  std::vector<Forward> parts;
  std::vector<int64_t> counts;
  for (const Work& work : segments.works()) {
    parts.push_back({work, Segments::headsOf(work, output), turned(work, work.key), rowMax, rowMax + measures.numel() / 2});
    counts.push_back(work.batch * work.heads * work.queryBlocks);
  }
  Rooms rooms(segments.extent(), 1);
  inPiecesOf(counts, kWorth / segments.extent().keyBlocks + 1, [&](size_t at, int64_t from, int64_t to) {
    const Work& work = parts[at].work;
    for (int64_t block = from; block < to; ++block) {
      const int64_t head = block / work.queryBlocks;
      forwardBlock(parts[at], rooms.own(), {work, head / work.heads, head % work.heads, block % work.queryBlocks});
    }
  });
}

void backwardOnVectors(const Given& given, const Arrived& arrived, const Gradients& results) {
  const Segments segments(given);
  const float* const rowMax = floatsOf(arrived.measures);
  std::vector<Backward> parts;
  std::vector<int64_t> groups;
  for (const Work& work : segments.works()) {
    parts.push_back({work, Segments::headsOf(work, arrived.output), Segments::headsOf(work, arrived.gradient),
                     turned(work, work.key), turned(work, work.value), rowMax, rowMax + arrived.measures.numel() / 2,
                     Segments::part(results.query, work.firstQuery, work.queries),
                     Segments::part(results.key, work.firstQuery, work.columns),
                     Segments::part(results.value, work.firstQuery, work.columns)});
    groups.push_back(work.batch * work.groups);
  }
  Rooms rooms(segments.extent(), 2);
  // Whoever works on a group adds up what all queries of its heads give.
  inPiecesOf(groups, 1, [&](size_t at, int64_t from, int64_t to) {
    const Backward& backward = parts[at];
    const Work& work = backward.work;
    for (int64_t at = from; at < to; ++at) {
      const int64_t batch = at / work.groups, group = at % work.groups;
      for (const Heads* heads : {&backward.key, &backward.value}) zero(heads->at(batch, group), 0, work.columns);
      for (int64_t head = group * work.shared(); head < (group + 1) * work.shared(); ++head) {
        for (int64_t block = 0; block < work.queryBlocks; ++block) {
          backwardBlock(backward, rooms.own(), {work, batch, head, block});
        }
      }
    }
  });
}

}  // namespace astra::attention
