// Products of bfloat16 numbers with sums in float32, for operands of either type and either memory order: master
// weights, their gradients and activations are multiplied on tiles without being copied first.
#include <algorithm>
#include <cstring>
#include <vector>

#include <ATen/core/Tensor.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_strided.h>

#include "engine.h"
#include "pieces.h"
#include "kernels/plain-tensor.h"
#include "kernels/linear/product.h"
#include "kernels/tiles.h"

namespace astra {
namespace {

#ifdef ASTRA_TILES
// One side of a product: its lines are the rows of the left or the columns of the right, each `inner` numbers long.
struct Operand {
  const char* numbers;
  bool wide;  // float32, else bfloat16
  int64_t lines, inner;
  int64_t lineStride, innerStride;  // in numbers; one of them is 1

  const char* at(int64_t line, int64_t k) const {
    return numbers + (line * lineStride + k * innerStride) * (wide ? 4 : 2);
  }
};

// Layout of 16 lines × 32 numbers in a tile: the left side's in reading order, the right side's by pairs of numbers.
enum class Form { left, right };

constexpr int64_t kStep = 32;                      // numbers of a line in one tile
constexpr int64_t kPanel = 32;                     // lines worked on together: two tiles
constexpr int64_t kStepNumbers = kPanel * kStep;   // of one panel in one step
constexpr int64_t kMostSteps = 16;                 // of a block: its panel, 32 KiB, stays in the first-level cache
constexpr int64_t kMostStaying = 24 * 24;          // steps of all panels of a group: 1.1 MiB of a second-level cache
constexpr int64_t kLarge = 4 << 20;                // bytes of a result that no second-level cache holds
constexpr int64_t kMostKept = 384;                 // pairs of panels whose sums wait for their next block: 1.5 MiB
constexpr int64_t kSums = 4 * kTile * kTile;       // of a pair of panels

int64_t ceilingOf(int64_t value, int64_t divisor) { return (value + divisor - 1) / divisor; }

// 16 lines from `line` on and 32 numbers from `k` on; missing ones are 0.
template <bool wide, bool alongLines>
ASTRA_TILE_CODE inline void packTile(const Operand& side, Form form, int64_t line, int64_t k, __m512i interleave,
                                     uint16_t* packed) {
  constexpr int64_t size = wide ? 4 : 2, runs = alongLines ? kTile : kStep, length = alongLines ? kStep : kTile;
  const int64_t lines = side.lines - line, inner = side.inner - k;
  const char* from = side.at(line, k);
  int64_t stride = (alongLines ? side.lineStride : side.innerStride) * size;
  char whole[runs * length * size];
  if (lines < kTile || inner < kStep) {
    std::memset(whole, 0, sizeof whole);
    const int64_t present = std::min(length, alongLines ? inner : lines);
    for (int64_t run = 0; run < std::min(runs, alongLines ? lines : inner) && present > 0; ++run) {
      std::memcpy(whole + run * length * size, from + run * stride, static_cast<size_t>(present * size));
    }
    from = whole;
    stride = length * size;
  }
  __m512i lanes[16];
  for (int i = 0; i < kTile; ++i) {
    const char* first = from + (alongLines ? i : 2 * i) * stride;
    const char* second = alongLines ? first + 64 : first + stride;
    if constexpr (wide) {
      const __m512bh both = _mm512_cvtne2ps_pbh(_mm512_loadu_ps(second), _mm512_loadu_ps(first));
      lanes[i] = reinterpret_cast<__m512i>(both);
      if constexpr (!alongLines) lanes[i] = _mm512_permutexvar_epi16(interleave, lanes[i]);
    } else if constexpr (alongLines) {
      lanes[i] = _mm512_loadu_si512(first);
    } else {
      const __m512i even = _mm512_cvtepu16_epi32(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(first)));
      const __m512i odd = _mm512_cvtepu16_epi32(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(second)));
      lanes[i] = _mm512_or_si512(even, _mm512_slli_epi32(odd, 16));
    }
  }
  if (alongLines == (form == Form::right)) transpose(lanes);
  for (int i = 0; i < kTile; ++i) _mm512_store_si512(packed + i * 32, lanes[i]);
}

// Panels `from` … `to` − 1 of a side for `steps` steps from `step` on: [panels, steps, 2 tiles, 512 numbers].
template <bool wide, bool alongLines>
ASTRA_TILE_CODE void packPanels(const Operand& side, Form form, int64_t from, int64_t to, int64_t step, int64_t steps,
                                uint16_t* packed) {
  const __m512i interleave = _mm512_load_si512(kInterleaved);
  const int64_t lines = (to - from) * kPanel;
  // In memory order: adjacent numbers of a line, or of adjacent lines, are read in sequence.
  for (int64_t outer = 0; outer < (alongLines ? lines / kTile : steps); ++outer) {
    for (int64_t inner = 0; inner < (alongLines ? steps : lines / kTile); ++inner) {
      const int64_t line = (alongLines ? outer : inner) * kTile, s = alongLines ? inner : outer;
      uint16_t* tile = packed + (line / kPanel * steps + s) * kStepNumbers + line % kPanel * kStep;
      packTile<wide, alongLines>(side, form, from * kPanel + line, (step + s) * kStep, interleave, tile);
    }
  }
}

ASTRA_TILE_CODE void pack(const Operand& side, Form form, int64_t from, int64_t to, int64_t step, int64_t steps,
                          uint16_t* packed) {
  const auto packAs = side.wide ? (side.innerStride == 1 ? packPanels<true, true> : packPanels<true, false>)
                                : (side.innerStride == 1 ? packPanels<false, true> : packPanels<false, false>);
  packAs(side, form, from, to, step, steps, packed);
}

// Adds the products of two panels to sums [2 left tiles, 2 right tiles, 16 rows, 16 columns]. The panel of the moving
// side is multiplied with many others and stays in the first-level cache; the others are streamed.
template <Form moves>
ASTRA_TILE_CODE inline void multiply(const uint16_t* left, const uint16_t* right, int64_t steps, bool begin,
                                     float* sums) {
  if (!hasTiles()) {
    return addPairsOfPanels({left, kStepNumbers}, {right, 512, kStepNumbers}, steps, begin, {sums, kTile, 256});
  }
  if (begin) {
    _tile_zero(0);
    _tile_zero(1);
    _tile_zero(2);
    _tile_zero(3);
  } else {
    _tile_loadd(0, sums, 64);
    _tile_loadd(1, sums + 256, 64);
    _tile_loadd(2, sums + 512, 64);
    _tile_loadd(3, sums + 768, 64);
  }
  const int64_t lines = ceilingOf(kSums / 16, steps);
  for (int64_t step = 0; step < steps; ++step) {
    const uint16_t* l = left + step * kStepNumbers;
    const uint16_t* r = right + step * kStepNumbers;
    if constexpr (moves == Form::left) {
      _tile_loadd(4, l, 64);
      _tile_stream_loadd(6, r, 64);
      _tile_dpbf16ps(0, 4, 6);
      _tile_stream_loadd(7, r + 512, 64);
      _tile_dpbf16ps(1, 4, 7);
      _tile_loadd(5, l + 512, 64);
    } else {
      _tile_stream_loadd(4, l, 64);
      _tile_loadd(6, r, 64);
      _tile_dpbf16ps(0, 4, 6);
      _tile_loadd(7, r + 512, 64);
      _tile_dpbf16ps(1, 4, 7);
      _tile_stream_loadd(5, l + 512, 64);
    }
    _tile_dpbf16ps(2, 5, 6);
    _tile_dpbf16ps(3, 5, 7);
    // The next sums to add to.
    for (int64_t line = step * lines; line < (step + 1) * lines; ++line) {
      __builtin_prefetch(sums + kSums + 16 * line, 1, 3);
    }
  }
  _tile_stored(0, sums, 64);
  _tile_stored(1, sums + 256, 64);
  _tile_stored(2, sums + 512, 64);
  _tile_stored(3, sums + 768, 64);
}

struct Result {
  char* numbers;  // [rows, columns]
  bool wide;
  bool passes;  // too large to be found in the caches again: whole lines are written past them
  const float* bias;      // [columns] or null
  const float* residual;  // [rows, columns] or null; the result is wide then
  int64_t rows, columns, rowStride;
};

// The part of a row that lies in one panel of the right side.
ASTRA_TILE_CODE inline void write(const Result& result, int64_t row, int64_t rightPanel, const float* sums) {
  const int64_t column = rightPanel * kPanel;
  const int64_t present = std::min(kPanel, result.columns - column);
  const __mmask32 mask = present == kPanel ? ~__mmask32{0} : (__mmask32{1} << present) - 1;
  const __mmask16 low = static_cast<__mmask16>(mask), high = static_cast<__mmask16>(mask >> 16);
  const float* from = sums + row % kPanel / kTile * 512 + row % kTile * kTile;
  __m512 first = _mm512_load_ps(from), second = _mm512_load_ps(from + 256);
  if (result.bias != nullptr) {
    first = _mm512_add_ps(first, _mm512_maskz_loadu_ps(low, result.bias + column));
    second = _mm512_add_ps(second, _mm512_maskz_loadu_ps(high, result.bias + column + kTile));
  }
  const int64_t to = row * result.rowStride + column;
  const bool passes = result.passes && present == kPanel;
  if (!result.wide) {
    const __m512i rounded = reinterpret_cast<__m512i>(_mm512_cvtne2ps_pbh(second, first));
    auto* numbers = reinterpret_cast<uint16_t*>(result.numbers) + to;
    if (passes) {
      _mm512_stream_si512(reinterpret_cast<__m512i*>(numbers), rounded);
    } else {
      _mm512_mask_storeu_epi16(numbers, mask, rounded);
    }
    return;
  }
  if (result.residual != nullptr) {
    const float* added = result.residual + row * result.columns + column;
    first = _mm512_add_ps(first, _mm512_maskz_loadu_ps(low, added));
    second = _mm512_add_ps(second, _mm512_maskz_loadu_ps(high, added + kTile));
  }
  auto* numbers = reinterpret_cast<float*>(result.numbers) + to;
  if (passes) {
    _mm512_stream_ps(numbers, first);
    _mm512_stream_ps(numbers + kTile, second);
  } else {
    _mm512_mask_storeu_ps(numbers, low, first);
    _mm512_mask_storeu_ps(numbers + kTile, high, second);
  }
}

struct Work {
  Operand left, right;
  Result result;
  bool leftMoves;            // the side with more lines is packed as it is needed; the other one stays packed
  const uint16_t* resident;  // [blocks, panels of the other side, steps of a block, kStepNumbers]
  int64_t steps, blocks, mostSteps;
  int64_t others, group;     // panels of the side that stays, and how many of them are worked on together
  int64_t packedTogether;    // panels of the side that moves, while they are packed
  int64_t atOnce;            // panels of the side that moves whose sums wait for the next block

  const Operand& moving() const { return leftMoves ? left : right; }
  const Operand& staying() const { return leftMoves ? right : left; }
  int64_t blockStart(int64_t block) const { return steps * block / blocks; }
};

// Panels `from` … `to` − 1 of the moving side with all of the other.
template <Form moves>
ASTRA_TILE_CODE void productsOf(const Work& work, int64_t from, int64_t to) {
  const at::Tensor room =
      at::empty({work.packedTogether * work.mostSteps * kStepNumbers}, at::TensorOptions().dtype(at::kBFloat16));
  uint16_t* const panels = words(room);
  const at::Tensor kept = at::empty({(work.atOnce * work.group + 1) * kSums}, at::TensorOptions().dtype(at::kFloat));
  const TileScope tiles(kTile);
  for (int64_t begin = from; begin < to; begin += work.atOnce) {
    const int64_t end = std::min(to, begin + work.atOnce);
    for (int64_t first = 0; first < work.others; first += work.group) {
      const int64_t last = std::min(work.others, first + work.group);
      float* const sums = static_cast<float*>(kept.data_ptr());
      const auto sumsOf = [=](int64_t moving, int64_t other) {
        return sums + ((moving - begin) * (last - first) + other - first) * kSums;
      };
      for (int64_t block = 0; block < work.blocks; ++block) {
        const int64_t start = work.blockStart(block), steps = work.blockStart(block + 1) - start;
        const uint16_t* resident = work.resident + start * work.others * kStepNumbers;
        for (int64_t moving = begin; moving < end; ++moving) {
          const int64_t packed = (moving - begin) % work.packedTogether;
          if (packed == 0) {
            pack(work.moving(), moves, moving, std::min(end, moving + work.packedTogether), start, steps, panels);
          }
          const uint16_t* panel = panels + packed * steps * kStepNumbers;
          for (int64_t other = first; other < last; ++other) {
            const uint16_t* staying = resident + other * steps * kStepNumbers;
            const bool left = moves == Form::left;
            multiply<moves>(left ? panel : staying, left ? staying : panel, steps, block == 0, sumsOf(moving, other));
          }
        }
      }
      // Along the rows, so that writes are contiguous.
      const int64_t firstRow = (moves == Form::left ? begin : first) * kPanel;
      const int64_t lastRow = std::min((moves == Form::left ? end : last) * kPanel, work.result.rows);
      for (int64_t row = firstRow; row < lastRow; ++row) {
        const int64_t own = row / kPanel;
        if constexpr (moves == Form::left) {
          for (int64_t other = first; other < last; ++other) write(work.result, row, other, sumsOf(own, other));
        } else {
          for (int64_t moving = begin; moving < end; ++moving) write(work.result, row, moving, sumsOf(moving, own));
        }
      }
    }
  }
  _mm_sfence();
}

// A matrix whose lines, or whose k-th numbers of all lines, are contiguous.
at::Tensor orderly(const at::Tensor& matrix) {
  const bool rows = matrix.stride(1) == 1 || matrix.size(1) == 1;
  const bool columns = matrix.stride(0) == 1 || matrix.size(0) == 1;
  return rows || columns ? matrix : matrix.contiguous();
}

Operand operandOf(const at::Tensor& matrix, int64_t linesAt) {
  const int64_t innerAt = 1 - linesAt;
  Operand side{static_cast<const char*>(matrix.data_ptr()), matrix.scalar_type() == at::kFloat, matrix.size(linesAt),
               matrix.size(innerAt), matrix.stride(linesAt), matrix.stride(innerAt)};
  // The stride of a dimension of size 1 is arbitrary, but here it determines how the matrix is read.
  if (side.inner == 1) side.innerStride = 1;
  if (side.lines == 1 && side.innerStride != 1) side.lineStride = 1;
  return side;
}

// `shape` has as many numbers as the product's rows and columns. In large results rows start at cache lines, so there
// may be gaps between them.
at::Tensor productOnTiles(const at::Tensor& left, const at::Tensor& right, const float* bias, bool wide,
                          const at::Tensor& residual, at::IntArrayRef shape) {
  const at::Tensor plainLeft = orderly(left), plainRight = orderly(right);
  Work work{};
  work.left = operandOf(plainLeft, 0);
  work.right = operandOf(plainRight, 1);
  const int64_t size = wide ? 4 : 2;
  const bool large = work.left.lines * work.right.lines * size >= kLarge;
  const int64_t rowStride = large ? ceilingOf(work.right.lines * size, 64) * 64 / size : work.right.lines;
  std::vector<int64_t> strides(shape.size(), 1);
  for (size_t at = shape.size() - 1; at-- > 0;) {
    strides[at] = at + 2 == shape.size() ? rowStride : strides[at + 1] * shape[at + 1];
  }
  at::Tensor result = at::empty_strided(shape, strides, at::TensorOptions().dtype(wide ? at::kFloat : at::kBFloat16));
  auto* numbers = static_cast<char*>(result.data_ptr());
  work.result = {numbers, wide, large && reinterpret_cast<uintptr_t>(numbers) % 64 == 0,
                 bias, floatsOf(residual),
                 work.left.lines, work.right.lines, rowStride};
  work.leftMoves = work.left.lines > work.right.lines;
  work.steps = ceilingOf(work.left.inner, kStep);
  work.blocks = ceilingOf(work.steps, kMostSteps);
  work.mostSteps = ceilingOf(work.steps, work.blocks);
  const int64_t panels = work.others = ceilingOf(work.staying().lines, kPanel);
  const int64_t groups = ceilingOf(panels * work.mostSteps, kMostStaying);
  work.group = ceilingOf(panels, groups);
  const int64_t movingPanels = ceilingOf(work.moving().lines, kPanel);
  const at::Tensor packed = at::empty({work.steps * panels * kStepNumbers}, at::TensorOptions().dtype(at::kBFloat16));
  uint16_t* resident = words(packed);
  work.resident = resident;
  const Form form = work.leftMoves ? Form::right : Form::left;
  inPieces(panels * work.blocks, ceilingOf(64, work.mostSteps), [&](int64_t from, int64_t until) {
    for (int64_t task = from; task < until; ++task) {
      const int64_t block = task / panels, panel = task % panels;
      const int64_t start = work.blockStart(block), steps = work.blockStart(block + 1) - start;
      uint16_t* to = resident + (start * panels + panel * steps) * kStepNumbers;
      pack(work.staying(), form, panel, panel + 1, start, steps, to);
    }
  });
  // If the stationary side fits the second-level cache, few sums are kept; otherwise it is streamed once for all of
  // them.
  const int64_t share = ceilingOf(movingPanels, at::get_num_threads());
  const bool fits = work.blocks * work.mostSteps * panels <= kMostStaying;
  work.atOnce = std::min(share, std::max<int64_t>(1, fits ? 4 : kMostKept / work.group));
  work.atOnce = ceilingOf(share, ceilingOf(share, work.atOnce));
  const int64_t together = std::min(work.atOnce, std::max<int64_t>(1, 96 / work.group));
  work.packedTogether = work.moving().innerStride == 1 ? 1 : together;
  const int64_t even = ceilingOf(movingPanels, 4 * at::get_num_threads());
  // Steps that justify starting a thread: 12 µs of tiles, 40 µs of pairs.
  const int64_t worth = ceilingOf(hasTiles() ? 256 : 128, work.steps * panels);
  const int64_t piece = ceilingOf(std::max(even, worth), work.atOnce) * work.atOnce;
  inPieces(movingPanels, piece, [&](int64_t from, int64_t to) {
    if (work.leftMoves) {
      productsOf<Form::left>(work, from, to);
    } else {
      productsOf<Form::right>(work, from, to);
    }
  });
  return result;
}
#endif

// Undefined if there are neither tiles nor pairs, or they cannot read the operands.
at::Tensor product(const at::Tensor& left, const at::Tensor& right, bool wide) {
  if (left.dim() != 2 || right.dim() != 2 || left.size(1) != right.size(0)) {
    throw Refusal("matrices must fit, got " + describeTensor(left) + " and " + describeTensor(right));
  }
#ifdef ASTRA_TILES
  if (isReadable(left) && isReadable(right) && left.numel() > 0 && right.numel() > 0 && mayUseTiles()) {
    return productOnTiles(left, right, nullptr, wide, at::Tensor(), {left.size(0), right.size(1)});
  }
#endif
  return {};
}

napi_value wrapOrNull(Call& call, at::Tensor result) {
  return result.defined() ? wrapTensor(*call.engine, call.env, std::move(result)) : makeNull(call.env);
}

// bfloat16Product(left, right, wide): left · right, both of them float32 or bfloat16; float32 if `wide`. This and the
// functions below return null where they do not apply
napi_value bfloat16Product(Call& call) {
  const at::AutoGradMode mode(false);
  return wrapOrNull(call, product(call.tensor(0, "left"), call.tensor(1, "right"), call.boolean(2, "wide")));
}

// bfloat16WeightGradient(gradient, input, weight): gradientᵀ · input, in the weight's type and layout
napi_value bfloat16WeightGradient(Call& call) {
  const at::AutoGradMode mode(false);
  const at::Tensor& gradient = call.tensor(0, "gradient");
  const at::Tensor& input = call.tensor(1, "input");
  const at::Tensor& weight = call.tensor(2, "weight");
  if (gradient.dim() != 2 || input.dim() != 2 || weight.dim() != 2) throw Refusal("matrices are wanted");
  const bool wide = weight.scalar_type() != at::kBFloat16;
  const bool byOutput = weight.stride(1) == 1;
  if (byOutput) return wrapOrNull(call, product(gradient.t(), input, wide));
  const at::Tensor turned = product(input.t(), gradient, wide);
  return wrapOrNull(call, turned.defined() ? turned.t() : turned);
}

// The arguments of at::linear and the terms added to its result.
struct Linear {
  at::Tensor input, weight, residual;  // [..., K], [N, K], as the result or undefined
  std::vector<float> biases;           // [N] or empty
  bool wide, isReadable;               // a float32 result; numbers that loops may read
  std::vector<int64_t> shape;          // of the result

  const float* bias() const { return biases.empty() ? nullptr : biases.data(); }
};

// (input, weight, transposed, bias, wide, residual); only a wide result has a residual
Linear linearOf(Call& call) {
  const at::Tensor& stored = call.tensor(1, "weight");
  if (stored.dim() != 2) throw Refusal("weight must be a matrix, got " + describeTensor(stored));
  Linear given{call.tensor(0, "input"), call.boolean(2, "transposed") ? stored.t() : stored, {}, {}, false, false, {}};
  const auto& [input, weight, residual, biases, wide, readable, shape] = given;
  const at::Tensor bias = call.absent(3) ? at::Tensor() : call.tensor(3, "bias");
  given.wide = call.boolean(4, "wide");
  if (!call.absent(5)) given.residual = call.tensor(5, "residual");
  if (input.dim() < 1 || input.size(-1) != weight.size(1)) {
    throw Refusal("input must be [..., " + std::to_string(weight.size(1)) + "] for a weight " + describeTensor(weight) +
                  ", got " + describeTensor(input));
  }
  if (bias.defined() && (bias.dim() != 1 || bias.size(0) != weight.size(0))) {
    throw Refusal("bias must have " + std::to_string(weight.size(0)) + " numbers, got " + describeTensor(bias));
  }
  given.shape = input.sizes().vec();
  given.shape.back() = weight.size(0);
  if (residual.defined() && (!wide || !isPlain(residual, at::kFloat) || residual.sizes() != at::IntArrayRef(shape))) {
    throw Refusal("the residual must be float32 and as the result, got " + describeTensor(residual));
  }
  given.isReadable = isReadable(input) && isReadable(weight) && (!bias.defined() || isReadable(bias)) &&
                     input.numel() > 0 && weight.numel() > 0;
  if (given.isReadable && residual.defined()) given.residual = residual.contiguous();
  if (given.isReadable && bias.defined()) given.biases = floatNumbers(bias);
  return given;
}

// bfloat16Linear(input, weight, transposed, bias, wide, residual): at::linear of operands rounded to bfloat16, without
// gradients, plus the residual if there is one
napi_value bfloat16Linear(Call& call) {
  const at::AutoGradMode mode(false);
  const Linear given = linearOf(call);
  const auto& [input, weight, residual, biases, wide, isReadable, shape] = given;
  at::Tensor result;
  if (isReadable && !isWide(weight)) result = linearOfFewRows(input, weight, given.bias(), wide, residual);
#ifdef ASTRA_TILES
  if (isReadable && !result.defined() && mayUseTiles()) {
    result = productOnTiles(input.reshape({-1, input.size(-1)}), weight.t(), given.bias(), wide, residual, shape);
  }
#endif
  return wrapOrNull(call, std::move(result));
}

// floatLinear(input, weight, transposed, bias, true, residual): the same for float32 numbers, where libtorch's own
// product is not faster
napi_value floatLinear(Call& call) {
  const at::AutoGradMode mode(false);
  const Linear given = linearOf(call);
  if (!given.isReadable || !given.wide || given.weight.scalar_type() != at::kFloat) return makeNull(call.env);
  return wrapOrNull(call, linearOfFewRows(given.input, given.weight, given.bias(), true, given.residual));
}

const Exports exports{
    {"bfloat16Linear", bfloat16Linear}, {"floatLinear", floatLinear}, {"bfloat16Product", bfloat16Product},
    {"bfloat16WeightGradient", bfloat16WeightGradient}};

}  // namespace

}  // namespace astra
