// Intel's tiles (AMX): 16 × 16 sums of products of bfloat16 pairs in one instruction. ASTRA_TILES is defined if the
// compiler supports them; the processor is checked at run time. If it only multiplies vectors of such pairs
// (AVX512-BF16), addPairs() replaces tiles, with operands in their layout.
#pragma once

#include "kernels/isa.h"

#ifdef ASTRA_TILES
#define ASTRA_TILE_CODE __attribute__((target("amx-tile,amx-bf16,avx512f,avx512bw,avx512vl,avx512bf16")))
#define ASTRA_TILE_INLINE ASTRA_TILE_CODE inline __attribute__((always_inline))

#include <immintrin.h>

#include <cstdint>
#include <cstring>

namespace astra {

constexpr int kTile = 16;  // rows of a tile, and its columns in 32-bit lanes

struct alignas(64) TileConfiguration {
  uint8_t palette = 1, startRow = 0, reserved[14] = {};
  uint16_t rowBytes[16] = {};
  uint8_t rows[16] = {};
};

// Tiles 0 … 4 have `lines` rows (sums, and a piece of what has so many lines), 5 … 7 all. For the lifetime of this
// object: oneDNN's kernels run on the same threads, and their configuration is restored.
class TileScope {
 public:
  ASTRA_TILE_CODE explicit TileScope(int lines) {
    if (!hasTiles()) return;
    _tile_storeconfig(&before_);
    isReadOrWritten(&before_);
    TileConfiguration now;
    for (int tile = 0; tile < 8; ++tile) {
      now.rowBytes[tile] = 64;
      now.rows[tile] = static_cast<uint8_t>(tile < 5 ? lines : kTile);
    }
    isReadOrWritten(&now);
    _tile_loadconfig(&now);
  }
  ASTRA_TILE_CODE ~TileScope() {
    if (!hasTiles()) return;
    if (before_.palette == 0) {
      _tile_release();
    } else {
      isReadOrWritten(&before_);
      _tile_loadconfig(&before_);
    }
  }
  TileScope(const TileScope&) = delete;
  TileScope& operator=(const TileScope&) = delete;

 private:
  // GCC 12 assumes that a configuration is 8 bytes long and might omit stores beyond them.
  static void isReadOrWritten(TileConfiguration* configuration) { asm volatile("" : : "r"(configuration) : "memory"); }

  TileConfiguration before_;
};

// Where something lies, in numbers. Of a step, 32 numbers of the inner dimension, a line has all side by side, 32 numbers
// after those of the line before, and a group of 16 columns 16 pairs of each.
struct Left {
  const uint16_t* numbers;
  int64_t step;
};
struct Right {
  const uint16_t* numbers;
  int64_t group, step;
};
struct Sums {
  float* numbers;
  int64_t line, group;
};

// Adds the products of L lines with G groups of columns, L · G ≤ 24. Each sum is accumulated pair by pair, for any L
// and G.
template <int L, int G>
ASTRA_TILE_INLINE void addPairs(const Left& left, const Right& right, int64_t steps, bool begin, const Sums& to) {
  __m512 sums[L][G] = {};
#pragma GCC unroll 16
  for (int line = 0; line < L; ++line) {
    if (begin) break;
#pragma GCC unroll 2
    for (int group = 0; group < G; ++group) {
      sums[line][group] = _mm512_loadu_ps(to.numbers + line * to.line + group * to.group);
    }
  }
  for (int64_t step = 0; step < steps; ++step) {
    const uint16_t *lines = left.numbers + step * left.step, *columns = right.numbers + step * right.step;
#pragma GCC unroll 2
    for (int pair = 0; pair < kTile; ++pair) {
      __m512bh pairs[G];
#pragma GCC unroll 2
      for (int group = 0; group < G; ++group) {
        pairs[group] = reinterpret_cast<__m512bh>(_mm512_loadu_si512(columns + group * right.group + pair * 32));
      }
#pragma GCC unroll 16
      for (int line = 0; line < L; ++line) {
        int own;
        std::memcpy(&own, lines + line * 32 + 2 * pair, sizeof own);
        const auto everywhere = reinterpret_cast<__m512bh>(_mm512_set1_epi32(own));
#pragma GCC unroll 2
        for (int group = 0; group < G; ++group) {
          sums[line][group] = _mm512_dpbf16_ps(sums[line][group], pairs[group], everywhere);
        }
      }
    }
  }
#pragma GCC unroll 16
  for (int line = 0; line < L; ++line) {
#pragma GCC unroll 2
    for (int group = 0; group < G; ++group) {
      _mm512_storeu_ps(to.numbers + line * to.line + group * to.group, sums[line][group]);
    }
  }
}

// The same for two groups of 16 lines and two of columns.
ASTRA_TILE_INLINE void addPairsOfPanels(const Left& left, const Right& right, int64_t steps, bool begin, const Sums& to) {
  for (int line = 0; line < 2 * kTile; line += 8) {
    addPairs<8, 2>({left.numbers + line * 32, left.step}, right, steps, begin, {to.numbers + line / kTile * 512 + line % kTile * to.line, to.line, to.group});
  }
}

// Alternating numbers of two vectors, as pairs of a tile.
alignas(64) inline constexpr uint16_t kInterleaved[32] = {
    0, 16, 1, 17, 2,  18, 3,  19, 4,  20, 5,  21, 6,  22, 7,  23,
    8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15, 31,
};

// 16 bfloat16 numbers, 0 where masked out.
ASTRA_TILE_INLINE __m512 loadWide(const uint16_t* from, __mmask16 mask) {
  const __m256i stored = _mm256_maskz_loadu_epi16(mask, from);
  return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(stored), 16));
}

// 2^x, with a relative error of 3e-6; 0 where it would be subnormal. The polynomial with four terms and 1 that
// minimizes the maximum error within ±1/2.
ASTRA_TILE_INLINE __m512 powerOf2(__m512 x) {
  const __mmask16 normal = _mm512_cmp_ps_mask(x, _mm512_set1_ps(-126.0f), _CMP_NLT_UQ);
  const __m512 rounding = _mm512_set1_ps(12582912.0f);
  const __m512 n = _mm512_sub_ps(_mm512_add_ps(x, rounding), rounding);  // to the nearest integer
  const __m512 f = _mm512_sub_ps(x, n);
  __m512 series = _mm512_fmadd_ps(_mm512_set1_ps(0.009582873f), f, _mm512_set1_ps(0.055906481f));
  series = _mm512_fmadd_ps(series, f, _mm512_set1_ps(0.240240986f));
  series = _mm512_fmadd_ps(series, f, _mm512_set1_ps(0.693124187f));
  series = _mm512_fmadd_ps(series, f, _mm512_set1_ps(1.0f));
  return _mm512_maskz_scalef_ps(normal, series, n);
}

// 16 × 16 lanes of 32 bits, in place.
ASTRA_TILE_INLINE void transpose(__m512i (&r)[16]) {
  __m512i t[16];
  for (int i = 0; i < 16; i += 2) {
    t[i] = _mm512_unpacklo_epi32(r[i], r[i + 1]);
    t[i + 1] = _mm512_unpackhi_epi32(r[i], r[i + 1]);
  }
  for (int i = 0; i < 16; i += 4) {
    r[i] = _mm512_unpacklo_epi64(t[i], t[i + 2]);
    r[i + 1] = _mm512_unpackhi_epi64(t[i], t[i + 2]);
    r[i + 2] = _mm512_unpacklo_epi64(t[i + 1], t[i + 3]);
    r[i + 3] = _mm512_unpackhi_epi64(t[i + 1], t[i + 3]);
  }
  for (int i = 0; i < 4; ++i) {
    t[i] = _mm512_shuffle_i32x4(r[i], r[i + 4], 0x88);
    t[i + 4] = _mm512_shuffle_i32x4(r[i], r[i + 4], 0xdd);
    t[i + 8] = _mm512_shuffle_i32x4(r[i + 8], r[i + 12], 0x88);
    t[i + 12] = _mm512_shuffle_i32x4(r[i + 8], r[i + 12], 0xdd);
  }
  for (int i = 0; i < 8; ++i) {
    r[i] = _mm512_shuffle_i32x4(t[i], t[i + 8], 0x88);
    r[i + 8] = _mm512_shuffle_i32x4(t[i], t[i + 8], 0xdd);
  }
}

}  // namespace astra
#endif
