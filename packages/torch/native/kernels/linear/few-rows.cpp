// The product of few rows with a weight, which is bound by memory bandwidth: the weight is read once, in place. Uses
// tiles; few-rows-vectors.cpp works without them, and in float32.
#include <algorithm>
#include <vector>

#include <ATen/Parallel.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>

#include "kernels/plain-tensor.h"
#include "kernels/linear/product.h"
#include "kernels/tiles.h"

namespace astra {

namespace {

constexpr int64_t kMostRows = 192;  // beyond it arithmetic is the bound, and blocks of all operands are faster

#ifdef ASTRA_TILES
// Blocks of 16 outputs that are processed together. A tile takes every n-th output of n blocks, the next tiles those in
// between: each of its 16 lines is then read sequentially from its own memory page, which the hardware prefetcher can
// follow. Adjacent lines would share pages: 28 instead of 35 GB/s.
constexpr int64_t kTogether = 12;
constexpr int kMostGroups = 4;  // of 16 rows that are worked on at once: a tile of sums each

// The input in the layout of the tile product's second operand: [K/32 pieces, groups of 16 rows, 16 pairs of
// neighbouring numbers, 16 rows]; missing rows are 0.
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

// Sums of 16 (or the configured number of) outputs, `apart` from one another, for some of `all` groups of rows: [groups,
// 16 · apart outputs, 16 rows].
ASTRA_TILE_CODE inline void multiply(const uint16_t* weight, const uint16_t* arranged, int64_t inner, int64_t all,
                                     int groups, int64_t apart, float* sums) {
  _tile_zero(0);
  _tile_zero(1);
  _tile_zero(2);
  _tile_zero(3);
  for (int64_t at = 0; at < inner; at += 32, arranged += all * 512) {
    _tile_loadd(4, weight + at, inner * 2 * apart);
    _tile_loadd(5, arranged, 64);
    _tile_dpbf16ps(0, 4, 5);
    if (groups > 1) {
      _tile_loadd(6, arranged + 512, 64);
      _tile_dpbf16ps(1, 4, 6);
    }
    if (groups > 2) {
      _tile_loadd(7, arranged + 1024, 64);
      _tile_dpbf16ps(2, 4, 7);
    }
    if (groups > 3) {
      _tile_loadd(5, arranged + 1536, 64);
      _tile_dpbf16ps(3, 4, 5);
    }
  }
  _tile_stored(0, sums, 64 * apart);
  if (groups > 1) _tile_stored(1, sums + 256 * apart, 64 * apart);
  if (groups > 2) _tile_stored(2, sums + 512 * apart, 64 * apart);
  if (groups > 3) _tile_stored(3, sums + 768 * apart, 64 * apart);
}

struct FewRows {
  const uint16_t* weight;    // [outputs, inner]
  const uint16_t* arranged;  // as arrangeInput leaves it
  const float* bias;         // [outputs] or null
  const float* residual;     // [rows, outputs] or null
  void* result;              // [rows, outputs], float32 where wide, else bfloat16
  bool wide;
  int64_t rows, outputs, inner;
  int groups;  // of 16 rows
};

// Writes `count` outputs from `first` on for some groups of rows, whose sums are `apart` blocks from the next group's.
ASTRA_TILE_CODE void writeOutputs(const FewRows& work, int begin, int end, int64_t first, int count, const float* sums,
                                  int64_t apart) {
  const __mmask16 present = static_cast<__mmask16>((1u << count) - 1);
  const __m512 bias = work.bias == nullptr ? _mm512_setzero_ps() : _mm512_maskz_loadu_ps(present, work.bias + first);
  for (int group = begin; group < end; ++group) {
    __m512i lanes[16];
    for (int output = 0; output < kTile; ++output) {
      const float* from = sums + (group - begin) * apart * 256 + output * 16;
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

// `count` outputs of each of some neighbouring blocks, fewer than 16 only of one block: for one set of rows after
// another, the later ones with weights still in the second-level cache.
ASTRA_TILE_CODE void outputsOf(const FewRows& work, int64_t first, int64_t blocks, int count) {
  alignas(64) float sums[kMostGroups * kTogether * 256];
  const int sets = (work.groups + kMostGroups - 1) / kMostGroups;
  for (int set = 0; set < sets; ++set) {
    const int begin = work.groups * set / sets, end = work.groups * (set + 1) / sets;
    for (int64_t block = 0; block < blocks; ++block) {
      multiply(work.weight + (first + block) * work.inner, work.arranged + begin * 512, work.inner, work.groups,
               end - begin, blocks, sums + block * 16);
    }
    for (int64_t block = 0; block < blocks; ++block) {
      writeOutputs(work, begin, end, first + block * kTile, count, sums + block * 256, blocks);
    }
  }
}

ASTRA_TILE_CODE void blocksOf(const FewRows& work, int64_t from, int64_t to) {
  const int64_t whole = std::min(to, work.outputs / kTile);
  if (from < whole) {
    const TileScope tiles(kTile);
    for (int64_t at = from; at < whole; at += kTogether) outputsOf(work, at * kTile, std::min(kTogether, whole - at), kTile);
  }
  const int rest = static_cast<int>(work.outputs % kTile);
  if (to > whole && rest > 0) {
    const TileScope tiles(rest);
    outputsOf(work, whole * kTile, 1, rest);
  }
}

at::Tensor fewRowsOnTiles(const at::Tensor& input, const at::Tensor& weight, const float* bias, bool wide,
                          const at::Tensor& residual) {
  const int64_t outputs = weight.size(0), inner = weight.size(1);
  const int64_t rows = input.numel() / inner;
  const int groups = static_cast<int>((rows + kTile - 1) / kTile);
  const at::Tensor plain = input.to(at::kBFloat16).contiguous();
  const auto options = at::TensorOptions().dtype(at::kBFloat16);
  // at::empty aligns to 64 bytes, which the aligned stores above rely on.
  const at::Tensor arranged = at::empty({inner / 32, groups, kTile, 32}, options);
  std::vector<int64_t> shape = input.sizes().vec();
  shape.back() = outputs;
  at::Tensor result = at::empty(shape, options.dtype(wide ? at::kFloat : at::kBFloat16));
  arrangeInput(words(plain), rows, inner, groups, words(arranged));
  const FewRows work{words(weight), words(arranged), bias, floatsOf(residual), result.data_ptr(), wide, rows, outputs, inner, groups};
  const int64_t blocks = (outputs + kTile - 1) / kTile;
  // One piece per thread: at the start of each, the prefetcher has to detect its stride again.
  at::parallel_for(0, blocks, (int64_t{1} << 17) / (kTile * inner) + 1,
                   [&](int64_t from, int64_t to) { blocksOf(work, from, to); });
  return result;
}
#endif

}  // namespace

at::Tensor linearOfFewRows(const at::Tensor& input, const at::Tensor& weight, const float* bias, bool wide,
                           const at::Tensor& residual) {
  const bool isNarrow = isPlain(weight, at::kBFloat16);
  if (!isNarrow && !isPlain(weight, at::kFloat)) return {};
  // Line by line: a view that repeats its memory can have any size.
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
