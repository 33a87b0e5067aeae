// Packing for attention on tiles: blocks of rows in the tiles' layout, and the classification of blocks by bias.
#include <algorithm>

#include "kernels/fused-attention/tiles.h"

namespace astra::attention {

#ifdef ASTRA_TILES
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
    for (int64_t column = 0; column < rows.size; column += kBlockSize) {
      const int64_t present = rows.size - column;
      const __mmask32 mask = present >= kBlockSize ? ~__mmask32{0} : (__mmask32{1} << present) - 1;
      uint16_t* block = to + column * kBlockSize;
      __m512i lanes[kTile];
      for (int64_t i = 0; i < kTile; ++i) {
        const uint16_t* from = rows.first + (first + i) * rows.stride + column;
        lanes[i] = first + i < rows.count ? _mm512_maskz_loadu_epi16(mask, from) : _mm512_setzero_si512();
        if (first + i + kBlockSize < rows.count) __builtin_prefetch(from + kBlockSize * rows.stride);
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
template void arrange<Form::lines>(const Rows&, int64_t, uint16_t*);
template void arrange<Form::words>(const Rows&, int64_t, uint16_t*);
template void arrange<Form::pairs>(const Rows&, int64_t, uint16_t*);
template void arrange<Form::columns>(const Rows&, int64_t, uint16_t*);

ASTRA_TILE_CODE void addBias(const Work& work, int64_t group, int64_t head, int64_t queryBlock, int64_t keyBlock,
                             float* scores) {
  const int64_t column = keyBlock * kBlockSize, query = queryBlock * kBlockSize;
  const int64_t there = work.columns - column;
  const __mmask32 present = there >= kBlockSize ? ~__mmask32{0} : (__mmask32{1} << there) - 1;
  const __m512 perScale = _mm512_set1_ps(1.0f / work.scale);
  const __m512 forbids = _mm512_set1_ps(kForbids), never = _mm512_set1_ps(kForbiddenScore);
  const int64_t rows = std::min(kBlockSize, work.queries - query);
  const uint16_t* bias = work.bias.row<uint16_t>(group, head * work.queries + query);
  const int64_t stride = work.bias.rowStride();
  for (int64_t row = 0; row < rows; ++row) {
    for (int64_t half = 0; half < 2; ++half) {
      const __mmask16 mask = static_cast<__mmask16>(present >> (16 * half));
      float* at = scores + row * kBlockSize + half * kTile;
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
ASTRA_TILE_CODE void writeLines(const float* sums, const float* factors, const Rows& to, int64_t line, int64_t column) {
  const int64_t present = to.size - column;
  const __mmask32 mask = present >= kBlockSize ? ~__mmask32{0} : (__mmask32{1} << present) - 1;
  const int64_t rows = std::min(kBlockSize, to.count - line);
  for (int64_t row = 0; row < rows; ++row) {
    const __m512 factor = _mm512_set1_ps(factors[row]);
    const __m512 first = _mm512_mul_ps(_mm512_load_ps(sums + row * kBlockSize), factor);
    const __m512 second = _mm512_mul_ps(_mm512_load_ps(sums + row * kBlockSize + kTile), factor);
    _mm512_mask_storeu_epi16(to.first + (line + row) * to.stride + column, mask, rounded(first, second));
  }
}
#endif

}  // namespace astra::attention
