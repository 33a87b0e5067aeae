// Arithmetic for loops over plain memory, written so that compilers vectorise it.
#pragma once

#include <cstdint>
#include <cstring>

// O3, because at O2 loops of unknown length are not vectorised; the width is chosen by the machine that runs it. AVX-512
// without its part for 16-bit numbers would be slower than AVX2. Products and sums are rounded apart, so that results are the
// same on every machine.
#if defined(__x86_64__) && defined(__GLIBC__) && defined(__GNUC__) && __GNUC__ >= 12 && !defined(__clang__)
#define ASTRA_VECTOR_CLONES \
  __attribute__((optimize("O3", "fp-contract=off"), target_clones("arch=x86-64-v4", "arch=x86-64-v3", "default")))
#else
#define ASTRA_VECTOR_CLONES
#endif
// Part of the loop that calls it, and compiled as that is.
#if defined(__GNUC__)
#define ASTRA_INLINE inline __attribute__((always_inline))
#else
#define ASTRA_INLINE inline
#endif

namespace astra {

inline float widen(uint16_t bits) {
  const uint32_t word = static_cast<uint32_t>(bits) << 16;
  float value;
  std::memcpy(&value, &word, sizeof value);
  return value;
}

// For loops over numbers of either type.
inline float widen(float value) { return value; }

inline uint16_t narrow(float value) {
  uint32_t word;
  std::memcpy(&word, &value, sizeof word);
  if ((word & 0x7fffffffu) > 0x7f800000u) return 0x7fc0;  // not a number
  return static_cast<uint16_t>((word + 0x7fffu + ((word >> 16) & 1u)) >> 16);
}

// e^x for |x| ≤ 87, to 3e-6 of itself: x = n·ln 2 + f with |f| ≤ ln 2 / 2, e^f by its series. No call and no choice
// inside, so that loops over it are vectorised.
inline float exponentialWithin(float x) {
  const float n = (x * 1.44269504f + 12582912.0f) - 12582912.0f;  // to the nearest integer
  const float f = (x - n * 0.693359375f) + n * 2.12194440e-4f;
  float series = 1.0f / 120;
  series = series * f + 1.0f / 24;
  series = series * f + 1.0f / 6;
  series = series * f + 0.5f;
  series = series * f + 1.0f;
  series = series * f + 1.0f;
  const int32_t power = (static_cast<int32_t>(n) + 127) << 23;
  float scale;
  std::memcpy(&scale, &power, sizeof scale);
  return series * scale;
}

// e^x for x ≤ 0; 0 where it would be subnormal.
inline float exponential(float x) {
  const float value = exponentialWithin(x < -87.0f ? -87.0f : x);
  return x < -87.0f ? 0.0f : value;
}

}  // namespace astra
