// The product of few rows with a weight, where the memory's rate is the bound: the weight is read once, as it lies. On
// tiles here; few-rows-vectors.cpp does it without them, and in float32.
#include <algorithm>
#include <vector>

#include <ATen/Parallel.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>

#include "plain-tensor.h"
#include "product.h"
#include "tiles.h"

namespace astra {

namespace {

constexpr int64_t kMostRows = 64;  // beyond it arithmetic is the bound, and blocks of all operands are faster

#ifdef ASTRA_TILES
// Blocks of 16 outputs that are worked on together. A tile takes every n-th output of n blocks, the next tiles those in
// between: each of its 16 lines is then read on where it ended, from a page of memory of its own, which is what the
// processor's fetching ahead can follow. Lines side by side lie several in one page: 28 instead of 35 GB/s.
constexpr int64_t kTogether = 12;

// The input as the tile product wants its second operand: [K/32 pieces, groups of 16 rows, 16 pairs of neighbouring
// numbers, 16 rows]; missing rows are 0.
ASTRA_TILE_CODE void arrangeInput(const uint16_t* input, int64_t rows, int64_t inner, int groups, uint16_t* arranged) {
  for (int64_t piece = 0; piece < inner / 32; ++piece) {
    for (int group = 0; group < groups; ++group) {
      __m512i lanes[16];
      for (int row = 0; row < kTile; ++row) {
        const int64_t at = group * kTile + row;
        lanes[row] = at < rows ? _mm512_loadu_si512(input + at * inner + piece * 32) : _mm512_setzero_si512();
      }
      transpose(lanes);
      uint16_t* to = arranged + (piece * groups + group) * 512;
      for (int pair = 0; pair < kTile; ++pair) _mm512_store_si512(to + pair * 32, lanes[pair]);
    }
  }
}

// Sums of 16 (or the configured number of) outputs, `apart` from one another, for all rows: [groups, 16 · apart outputs, 16
// rows].
template <int groups>
ASTRA_TILE_CODE inline void multiply(const uint16_t* weight, const uint16_t* arranged, int64_t inner, int64_t apart,
                                     float* sums) {
  _tile_zero(0);
  if constexpr (groups > 1) _tile_zero(1);
  if constexpr (groups > 2) _tile_zero(2);
  if constexpr (groups > 3) _tile_zero(3);
  for (int64_t at = 0; at < inner; at += 32) {
    _tile_loadd(4, weight + at, inner * 2 * apart);
    const uint16_t* piece = arranged + (at / 32) * groups * 512;
    _tile_loadd(5, piece, 64);
    _tile_dpbf16ps(0, 4, 5);
    if constexpr (groups > 1) {
      _tile_loadd(6, piece + 512, 64);
      _tile_dpbf16ps(1, 4, 6);
    }
    if constexpr (groups > 2) {
      _tile_loadd(7, piece + 1024, 64);
      _tile_dpbf16ps(2, 4, 7);
    }
    if constexpr (groups > 3) {
      _tile_loadd(5, piece + 1536, 64);
      _tile_dpbf16ps(3, 4, 5);
    }
  }
  _tile_stored(0, sums, 64 * apart);
  if constexpr (groups > 1) _tile_stored(1, sums + 256 * apart, 64 * apart);
  if constexpr (groups > 2) _tile_stored(2, sums + 512 * apart, 64 * apart);
  if constexpr (groups > 3) _tile_stored(3, sums + 768 * apart, 64 * apart);
}

struct FewRows {
  const uint16_t* weight;    // [outputs, inner]
  const uint16_t* arranged;  // as arrangeInput leaves it
  const void* bias;          // [outputs] or null
  bool wideBias;             // float32, else bfloat16
  const float* residual;     // [rows, outputs] or null
  void* result;              // [rows, outputs], float32 where wide, else bfloat16
  bool wide;
  int64_t rows, outputs, inner;
};

// Writes `count` outputs from `first` on, whose sums for each group of rows are `apart` blocks from the next.
template <int groups>
ASTRA_TILE_CODE void writeOutputs(const FewRows& work, int64_t first, int count, const float* sums, int64_t apart) {
  const __mmask16 present = static_cast<__mmask16>((1u << count) - 1);
  __m512 bias = _mm512_setzero_ps();
  if (work.bias != nullptr && work.wideBias) {
    bias = _mm512_maskz_loadu_ps(present, static_cast<const float*>(work.bias) + first);
  } else if (work.bias != nullptr) {
    bias = loadWide(static_cast<const uint16_t*>(work.bias) + first, present);
  }
  for (int group = 0; group < groups; ++group) {
    __m512i lanes[16];
    for (int output = 0; output < kTile; ++output) {
      const float* from = sums + group * apart * 256 + output * 16;
      lanes[output] = output < count ? _mm512_load_si512(from) : _mm512_setzero_si512();
    }
    transpose(lanes);  // [outputs, rows] → [rows, outputs]
    const int64_t rows = std::min<int64_t>(kTile, work.rows - group * kTile);
    for (int64_t row = 0; row < rows; ++row) {
      __m512 values = _mm512_add_ps(_mm512_castsi512_ps(lanes[row]), bias);
      const int64_t to = (group * kTile + row) * work.outputs + first;
      if (work.residual != nullptr) {
        values = _mm512_add_ps(values, _mm512_maskz_loadu_ps(present, work.residual + to));
      }
      if (work.wide) {
        _mm512_mask_storeu_ps(static_cast<float*>(work.result) + to, present, values);
      } else {
        _mm256_mask_storeu_epi16(static_cast<uint16_t*>(work.result) + to, present,
                                 reinterpret_cast<__m256i>(_mm512_cvtneps_pbh(values)));
      }
    }
  }
}

// `count` outputs of each of some neighbouring blocks; fewer than 16 only of one block.
template <int groups>
ASTRA_TILE_CODE void outputsOf(const FewRows& work, int64_t first, int64_t blocks, int count) {
  alignas(64) float sums[groups * kTogether * 256];
  for (int64_t block = 0; block < blocks; ++block) {
    const uint16_t* weight = work.weight + (first + block) * work.inner;
    multiply<groups>(weight, work.arranged, work.inner, blocks, sums + block * 16);
  }
  for (int64_t block = 0; block < blocks; ++block) {
    writeOutputs<groups>(work, first + block * kTile, count, sums + block * 256, blocks);
  }
}

template <int groups>
ASTRA_TILE_CODE void blocksOf(const FewRows& work, int64_t from, int64_t to) {
  const int64_t whole = work.outputs / kTile;
  if (from < std::min(to, whole)) {
    const TileScope tiles(kTile);
    for (int64_t block = from; block < std::min(to, whole); block += kTogether) {
      outputsOf<groups>(work, block * kTile, std::min(kTogether, std::min(to, whole) - block), kTile);
    }
  }
  const int rest = static_cast<int>(work.outputs % kTile);
  if (to > whole && rest > 0) {
    const TileScope tiles(rest);
    outputsOf<groups>(work, whole * kTile, 1, rest);
  }
}

at::Tensor fewRowsOnTiles(const at::Tensor& input, const at::Tensor& weight, const at::Tensor& bias, bool wide,
                          const at::Tensor& residual) {
  const int64_t outputs = weight.size(0), inner = weight.size(1);
  const int64_t rows = input.numel() / inner;
  const int groups = static_cast<int>((rows + kTile - 1) / kTile);
  const at::Tensor plain = input.to(at::kBFloat16).contiguous();
  const at::Tensor offset = bias.defined() ? bias.contiguous() : bias;
  const auto options = at::TensorOptions().dtype(at::kBFloat16);
  // at::empty aligns to 64 bytes, which the aligned stores above rely on.
  const at::Tensor arranged = at::empty({inner / 32, groups, kTile, 32}, options);
  std::vector<int64_t> shape = input.sizes().vec();
  shape.back() = outputs;
  at::Tensor result = at::empty(shape, options.dtype(wide ? at::kFloat : at::kBFloat16));
  arrangeInput(words(plain), rows, inner, groups, words(arranged));
  const void* offsets = offset.defined() ? offset.data_ptr() : nullptr;
  const bool wideBias = offset.defined() && offset.scalar_type() == at::kFloat;
  const FewRows work{words(weight), words(arranged), offsets, wideBias, floatsOf(residual), result.data_ptr(), wide, rows, outputs,
                     inner};
  const int64_t blocks = (outputs + kTile - 1) / kTile;
  // One piece a thread: at the start of each, fetching ahead has to find its stride again.
  at::parallel_for(0, blocks, (int64_t{1} << 17) / (kTile * inner) + 1, [&](int64_t from, int64_t to) {
    switch (groups) {
      case 1: return blocksOf<1>(work, from, to);
      case 2: return blocksOf<2>(work, from, to);
      case 3: return blocksOf<3>(work, from, to);
      default: return blocksOf<4>(work, from, to);
    }
  });
  return result;
}
#endif

}  // namespace

at::Tensor linearOfFewRows(const at::Tensor& input, const at::Tensor& weight, const at::Tensor& bias, bool wide,
                           const at::Tensor& residual) {
  const bool isNarrow = isPlain(weight, at::kBFloat16);
  if (!isNarrow && !isPlain(weight, at::kFloat)) return {};
  // Each line by itself: a view that repeats its memory could claim any size.
  if (weight.stride(1) != 1 || weight.stride(0) < weight.size(1)) return {};
  const int64_t rows = input.numel() / weight.size(1);
  if (rows < 1) return {};
#ifdef ASTRA_TILES
  if (isNarrow && hasTiles()) {
    if (rows > kMostRows || !weight.is_contiguous() || weight.size(1) % 32 != 0) return {};
    return fewRowsOnTiles(input, weight, bias, wide, residual);
  }
#endif
  return fewRowsOnVectors(input, weight, bias, wide, residual);
}

}  // namespace astra
