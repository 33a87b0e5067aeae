// Attention of float32 numbers on vector registers: fused-attention.h. The scores (which become P) and dP (which
// becomes dS) of a block of queries and all blocks of keys that it may attend to are stored as lines, with keys
// adjacent.
#include <algorithm>
#include <cmath>
#include <vector>

#include "kernels/fused-attention/fused-attention.h"

namespace astra::attention {
namespace {

using Rows = RowsOf<float>;
using Heads = HeadsOf<float>;
using Work = WorkOf<float>;
using Segments = SegmentsOf<float>;

// C = A · B, or C + A · B. Numbers of A are read one by one, so A may be transposed; B and C are row-major.
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

// MR rows and NR registers of columns. Each number is summed along the inner dimension, one product after the other.
template <int VL, int MR, int NR>
ASTRA_INLINE void addTile(const Product& work, int64_t row, int64_t column) {
  using Floats = typename Vector<VL>::Floats;
  const auto within = [&](int m) { return std::min(row + m, work.rows - 1); };  // the last row several times
  const auto to = [&](int m, int n) { return work.c + within(m) * work.cRow + column + n * VL; };
  const float* a[MR];
  Floats sums[MR][NR] = {};
  for (int m = 0; m < MR; ++m) {
    a[m] = work.a + within(m) * work.aRow;
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

// Scores of one query with a block of keys, scaled and biased; −∞ if masked or missing.
template <bool isBiased>
ASTRA_INLINE void finishLine(float* __restrict scores, const float* __restrict bias, float scale, int64_t present) {
#pragma omp simd
  for (int64_t i = 0; i < present; ++i) {
    const float score = scores[i] * scale;
    scores[i] = !isBiased ? score : bias[i] <= kForbids ? kForbiddenScore : score + bias[i];
  }
  for (int64_t i = present; i < kBlockSize; ++i) scores[i] = kForbiddenScore;
}

ASTRA_VECTOR_LOOP(void, finishScores,
                  (float* scores, int64_t width, int64_t rows, const float* bias, int64_t stride, float scale, int64_t present),
                  (scores, width, rows, bias, stride, scale, present)) {
  for (int64_t row = 0; row < rows; ++row, scores += width) {
    bias == nullptr ? finishLine<false>(scores, bias, scale, present)
                    : finishLine<true>(scores, bias + row * stride, scale, present);
  }
}

// S and dP of one query to P and dS.
ASTRA_PRODUCT_LOOP(void, differentiate,
                  (float* __restrict scores, float* __restrict gradients, int64_t count, const float* output,
                   const float* outputGradient, int64_t size, float rowMax, float logRowSum, float scale),
                  (scores, gradients, count, output, outputGradient, size, rowMax, logRowSum, scale)) {
  float delta = 0;
#pragma omp simd reduction(+ : delta)
  for (int64_t e = 0; e < size; ++e) delta += output[e] * outputGradient[e];
#pragma omp simd
  for (int64_t i = 0; i < count; ++i) {
    const float probability = exponential((scores[i] - rowMax) - logRowSum);
    scores[i] = probability;
    gradients[i] = probability * (gradients[i] - delta) * scale;
  }
}

// Keys or values as right operands of products along the head's size: [B·G, blocks, E, 32].
at::Tensor turned(const Work& work, const Heads& heads) {
  const int64_t blocks = work.batch * work.groups * work.keyBlocks, numbers = work.size * kBlockSize;
  const at::Tensor result = at::empty({blocks * numbers}, at::TensorOptions().dtype(at::kFloat));
  float* const first = floatsOf(result);
  inPieces(blocks, kWorth / 8, [&](int64_t from, int64_t end) {
    for (int64_t at = from; at < end; ++at) {
      const int64_t group = at / work.keyBlocks, line = at % work.keyBlocks * kBlockSize;
      const Rows rows = heads.at(group / work.groups, group % work.groups);
      for (int64_t i = 0; i < kBlockSize; ++i) {
        const float* __restrict row = rows.at(std::min(line + i, rows.count - 1));
        float* __restrict to = first + at * numbers + i;
        for (int64_t e = 0; e < work.size; ++e) to[e * kBlockSize] = row[e];
      }
    }
  });
  return result;
}

// A segment, and the data that the passes read and write besides query, key and value.
struct Pass {
  const Work& work;
  at::Tensor keys, values;    // turned
  Heads output;
  float *rowMax, *logRowSum;  // [B, H, all T]: of scores that are scaled and biased; to base e
  Heads outputGradient, ofQuery, ofKey, ofValue;  // in the backward pass
};

// The blocks of queries of a head in turn, in the memory of one thread.
class Room {
 public:
  Room(const Pass& pass, bool isBackward)
      // Lines at distances of a power of 2 would map to few cache sets.
      : pass_(pass), width_(pass.work.keyBlocks * kBlockSize + kLane),
        memory_(at::empty({(isBackward ? 2 : 1) * kBlockSize * width_}, at::TensorOptions().dtype(at::kFloat))),
        scores_(floatsOf(memory_)), gradients_(scores_ + kBlockSize * width_) {}

  void forward(int64_t batch, int64_t head, int64_t queryBlock) {
    const Work& work = pass_.work;
    begin(batch, head, queryBlock);
    const Rows output = pass_.output.at(batch, head), values = work.value.at(batch, head / work.shared());
    zero(output, line_, rows_);
    float factors[kBlockSize];
    for (int64_t row = 0; row < rows_; ++row) {
      float* const scores = scores_ + row * width_;
      const float greatest = greatestOf(scores, count());
      const float shift = greatest == kForbiddenScore ? kShiftOfNothing : greatest;
      const float sum = weigh(scores, count(), shift);
      pass_.rowMax[place_ + row] = shift;
      pass_.logRowSum[place_ + row] = sum == 0 ? 0 : std::log(sum);
      factors[row] = sum == 0 ? 0 : 1 / sum;
    }
    forEachRun([&](int64_t column, int64_t key, int64_t keys) {
      multiply({scores_ + column, width_, 1, values.at(key), values.stride, output.at(line_), output.stride, rows_,
                work.size, keys, false});
    });
    for (int64_t row = 0; row < rows_; ++row) {
      for (int64_t e = 0; e < work.size; ++e) output.at(line_ + row)[e] *= factors[row];
    }
  }

  // Adds to the gradients of keys and values.
  void backward(int64_t batch, int64_t head, int64_t queryBlock) {
    const Work& work = pass_.work;
    begin(batch, head, queryBlock);
    const int64_t group = head / work.shared();
    const Rows query = work.query.at(batch, head), keys = work.key.at(batch, group);
    const Rows output = pass_.output.at(batch, head), gradient = pass_.outputGradient.at(batch, head);
    const Rows ofQuery = pass_.ofQuery.at(batch, head), ofKey = pass_.ofKey.at(batch, group);
    const Rows ofValue = pass_.ofValue.at(batch, group);
    multiplySeen(gradient, pass_.values, batch * work.groups + group, gradients_);
    for (int64_t row = 0; row < rows_; ++row) {
      differentiate(scores_ + row * width_, gradients_ + row * width_, count(), output.at(line_ + row),
                    gradient.at(line_ + row), work.size, pass_.rowMax[place_ + row], pass_.logRowSum[place_ + row],
                    work.scale);
    }
    zero(ofQuery, line_, rows_);
    forEachRun([&](int64_t column, int64_t key, int64_t count) {
      const float *probabilities = scores_ + column, *gradients = gradients_ + column;
      multiply({gradients, width_, 1, keys.at(key), keys.stride, ofQuery.at(line_), ofQuery.stride, rows_, work.size,
                count, false});
      multiply({gradients, 1, width_, query.at(line_), query.stride, ofKey.at(key), ofKey.stride, count, work.size, rows_,
                false});
      multiply({probabilities, 1, width_, gradient.at(line_), gradient.stride, ofValue.at(key), ofValue.stride, count,
                work.size, rows_, false});
    });
  }

  static void zero(const Rows& rows, int64_t line, int64_t count) {
    for (int64_t row = line; row < line + count; ++row) std::fill_n(rows.at(row), rows.size, 0.0f);
  }

 private:
  int64_t count() const { return static_cast<int64_t>(seen_.size()) * kBlockSize; }

  // Scores with all visible blocks of keys.
  void begin(int64_t batch, int64_t head, int64_t queryBlock) {
    const Work& work = pass_.work;
    const int64_t shared = work.shared(), group = batch * work.groups + head / shared, within = head % shared;
    line_ = queryBlock * kBlockSize;
    rows_ = std::min(kBlockSize, work.queries - line_);
    place_ = work.place(batch, head, line_);
    const uint8_t* kinds = work.bias.kindsOf(group, within * work.queryBlocks + queryBlock);
    seen_.clear();
    for (int64_t block = 0; block < work.keyBlocks; ++block) {
      if ((kinds[block] & kHasAllowed) != 0) seen_.push_back(block);
    }
    multiplySeen(work.query.at(batch, head), pass_.keys, group, scores_);
    const float* bias = work.bias.row<float>(group, within * work.queries + line_);
    for (size_t at = 0; at < seen_.size(); ++at) {
      const int64_t first = seen_[at] * kBlockSize;
      const bool isBiased = bias != nullptr && (kinds[seen_[at]] & kHasBias) != 0;
      finishScores(scores_ + static_cast<int64_t>(at) * kBlockSize, width_, rows_, isBiased ? bias + first : nullptr,
                   work.bias.rowStride(), work.scale, std::min(kBlockSize, work.columns - first));
    }
  }

  void multiplySeen(const Rows& rows, const at::Tensor& turned, int64_t group, float* to) const {
    for (size_t at = 0; at < seen_.size(); ++at) {
      const float* right = floatsOf(turned) + (group * pass_.work.keyBlocks + seen_[at]) * rows.size * kBlockSize;
      multiply({rows.at(line_), rows.stride, 1, right, kBlockSize, to + static_cast<int64_t>(at) * kBlockSize, width_, rows_,
                kBlockSize, rows.size, true});
    }
  }

  // Calls `visit` with the first column here, the first key and the number of keys of adjacent blocks.
  template <typename Visit>
  void forEachRun(const Visit& visit) const {
    for (size_t begin = 0, end = 0; begin < seen_.size(); begin = end) {
      for (end = begin + 1; end < seen_.size() && seen_[end] == seen_[end - 1] + 1;) ++end;
      const int64_t key = seen_[begin] * kBlockSize;
      const int64_t last = std::min(pass_.work.columns, (seen_[end - 1] + 1) * kBlockSize);
      visit(static_cast<int64_t>(begin) * kBlockSize, key, last - key);
    }
  }

  const Pass& pass_;
  int64_t width_;
  at::Tensor memory_;
  float *scores_, *gradients_;  // [32, width]
  std::vector<int64_t> seen_;   // blocks of keys
  int64_t line_ = 0, rows_ = 0, place_ = 0;
};
}  // namespace

void forwardOnVectors(const Given& given, const at::Tensor& output, const at::Tensor& measures) {
  const Segments segments(given);
  float* const rowMax = floatsOf(measures);
  std::vector<Pass> passes;
  std::vector<int64_t> blocks;
  for (const Work& work : segments.works()) {
    passes.push_back({work, turned(work, work.key), {}, Segments::headsOf(work, output), rowMax,
                      rowMax + measures.numel() / 2, {}, {}, {}, {}});
    blocks.push_back(work.batch * work.heads * work.queryBlocks);
  }
  inPiecesOf(blocks, kWorth / segments.extent().keyBlocks + 1, [&](size_t at, int64_t from, int64_t to) {
    const Work& work = passes[at].work;
    Room room(passes[at], false);
    for (int64_t block = from; block < to; ++block) {
      const int64_t head = block / work.queryBlocks;
      room.forward(head / work.heads, head % work.heads, block % work.queryBlocks);
    }
  });
}

void backwardOnVectors(const Given& given, const Arrived& arrived, const Gradients& results) {
  const Segments segments(given);
  float* const rowMax = floatsOf(arrived.measures);
  std::vector<Pass> passes;
  std::vector<int64_t> groups;
  for (const Work& work : segments.works()) {
    const auto part = [&](const at::Tensor& tensor, int64_t count) {
      return Segments::part(tensor, work.firstQuery, count);
    };
    passes.push_back({work, turned(work, work.key), turned(work, work.value), Segments::headsOf(work, arrived.output), rowMax,
                      rowMax + arrived.measures.numel() / 2, Segments::headsOf(work, arrived.gradient),
                      part(results.query, work.queries), part(results.key, work.columns), part(results.value, work.columns)});
    groups.push_back(work.batch * work.groups);
  }
  // The thread that processes a group sums the contributions of all queries of its heads.
  inPiecesOf(groups, 1, [&](size_t at, int64_t from, int64_t to) {
    const Work& work = passes[at].work;
    Room room(passes[at], true);
    for (int64_t all = from; all < to; ++all) {
      const int64_t batch = all / work.groups, group = all % work.groups;
      Room::zero(passes[at].ofKey.at(batch, group), 0, work.columns);
      Room::zero(passes[at].ofValue.at(batch, group), 0, work.columns);
      for (int64_t block = 0; block < work.shared() * work.queryBlocks; ++block) {
        room.backward(batch, group * work.shared() + block / work.queryBlocks, block % work.queryBlocks);
      }
    }
  });
}

}  // namespace astra::attention
