// Attention of several tokens a row and its gradients (Dao 2023, FlashAttention-2, arXiv 2307.08691): bfloat16 on the processor's
// tiles (packing, the forward and the backward pass in separate files), float32 on its vectors
// (fused-attention-vectors.cpp), and what they have in common. docs/performance.md.
//
// | paper            | here                              | what it is                                                        |
// | ---------------- | --------------------------------- | ----------------------------------------------------------------- |
// | Q, K, V, O       | query, key, value, output         | [B, H, T, E]; keys and values [B, G, S, E], G divides H           |
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
// In float32 scores are scaled and biased, and P and ℓ are to base e.
//
// Scores are computed for one block of queries at a time and never leave the caches; the backward pass computes them again.
#pragma once

#include <cstdint>
#include <limits>
#include <vector>

#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>

#include "engine.h"
#include "pieces.h"
#include "kernels/plain-tensor.h"
#include "kernels/vector-math.h"

namespace astra::attention {

// Queries and keys are processed in blocks; fully masked blocks are skipped.
constexpr int64_t kBlockSize = 32;
constexpr int64_t kMostHeadSize = 256;
constexpr int64_t kLane = 16;  // of the float32 pass head sizes are multiples
// Heads times tokens. Views that repeat one number can have any size: up to this limit no product of sizes overflows.
constexpr int64_t kMostRows = int64_t{1} << 36;

constexpr float kForbids = -1e29f;  // biases at or below it
constexpr float kShiftOfNothing = std::numeric_limits<float>::infinity();  // m where nothing may be attended to
constexpr float kForbiddenScore = -kShiftOfNothing;

inline int64_t blocksOf(int64_t count) { return (count + kBlockSize - 1) / kBlockSize; }

// Rows of one head, `stride` numbers apart.
template <typename Number>
struct RowsOf {
  Number* first;
  int64_t stride, count, size;

  Number* at(int64_t row) const { return first + row * stride; }
};

// [batch, heads, rows, size], with any strides of the first three.
template <typename Number>
struct HeadsOf {
  Number* first = nullptr;
  int64_t batchStride = 0, headStride = 0, rowStride = 0, count = 0, size = 0;

  HeadsOf() = default;
  explicit HeadsOf(const at::Tensor& tensor)
      : first(numbersOf<Number>(tensor)), batchStride(tensor.stride(0)), headStride(tensor.stride(1)),
        rowStride(tensor.stride(2)), count(tensor.size(2)), size(tensor.size(3)) {}

  RowsOf<Number> at(int64_t row, int64_t head) const {
    return {first + row * batchStride + head * headStride, rowStride, count, size};
  }
};

// How a block of scores is processed.
enum : uint8_t {
  kHasAllowed = 1,  // some score of it is not forbidden
  kHasBias = 2,     // not all of its biases are 0, or not all of its columns are there
};

struct Bias {
  at::Tensor tensor;  // [B·G, (H/G)·T, S], or undefined
  at::Tensor kinds;   // bytes [B·G, heads of a group · blocks of queries, blocks of keys]

  // For one block of queries, by block of keys.
  const uint8_t* kindsOf(int64_t group, int64_t block) const {
    return static_cast<const uint8_t*>(kinds.data_ptr()) + group * kinds.stride(0) + block * kinds.stride(1);
  }

  // Null if there is none.
  template <typename Number>
  const Number* row(int64_t group, int64_t query) const {
    if (!tensor.defined()) return nullptr;
    return numbersOf<Number>(tensor) + group * tensor.stride(0) + query * tensor.stride(1);
  }

  int64_t rowStride() const { return tensor.defined() ? tensor.stride(1) : 0; }
};

// Attention of one segment: queries attend only to keys of their own segment.
template <typename Number>
struct WorkOf {
  HeadsOf<Number> query, key, value;
  Bias bias;
  int64_t batch, heads, groups, queries, columns, size;
  int64_t queryBlocks, keyBlocks, sizeBlocks;
  int64_t firstQuery, allQueries;  // its place among the queries of all segments
  float scale;

  int64_t shared() const { return heads / groups; }
  // Index of a number of [B, H, T].
  int64_t place(int64_t row, int64_t head, int64_t query) const {
    return (row * heads + head) * allQueries + firstQuery + query;
  }
};

// The greatest of all segments.
struct Extent {
  int64_t queryBlocks = 0, keyBlocks = 0, sizeBlocks = 0, shared = 0;
};

// Description of a call: all tokens attend to all under one bias or none, or tokens are packed in segments that each
// have their own bias, with as many columns as the segment has tokens.
struct Given {
  at::Tensor query, key, value;
  std::vector<at::Tensor> biases;
  double scale;

  explicit Given(const Call& call)
      : query(call.tensor(0, "query")), key(call.tensor(1, "key")), value(call.tensor(2, "value")),
        biases(call.tensors(3, "biases")), scale(call.number(4, "scale")) {}

  int64_t shared() const { return query.size(1) / key.size(1); }
  int64_t width() const { return query.size(1) * query.size(3); }
  std::vector<int64_t> measuresShape() const { return {2, query.size(0), query.size(1), query.size(2)}; }

  // Whether an implementation supports the arguments.
  bool applies() const;

 private:
  bool fitsBias(const at::Tensor& bias, int64_t queries) const;
};

template <typename Number>
class SegmentsOf {
 public:
  using Heads = HeadsOf<Number>;
  using Work = WorkOf<Number>;

  explicit SegmentsOf(const Given& given) {
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

constexpr int64_t kWorth = 64;  // blocks of scores that are worth a thread's start

// Inputs of the backward pass, contiguous; [2, B, H, T] of measures from the forward pass.
struct Arrived {
  at::Tensor output, gradient, measures;
};

struct Gradients {
  at::Tensor query, key, value;
};

// Of float32 numbers.
void forwardOnVectors(const Given& given, const at::Tensor& output, const at::Tensor& measures);
void backwardOnVectors(const Given& given, const Arrived& arrived, const Gradients& results);
// Of bfloat16 numbers.
void forwardOnTiles(const Given& given, const at::Tensor& output, const at::Tensor& measures);
void backwardOnTiles(const Given& given, const Arrived& arrived, const Gradients& results);

}  // namespace astra::attention
