// Arithmetic for loops over plain memory, written so that compilers vectorise it.
#pragma once

#include <cmath>
#include <cstdint>
#include <cstring>

#include "kernels/isa.h"

// O3, because at O2 loops of unknown length are not vectorised; the width is chosen by the instruction set in force.
// AVX-512 without its 16-bit extension would be slower than AVX2. Products and sums are rounded separately, so that
// results are the same on every machine.
//
//   ASTRA_VECTOR_LOOP(void, twice, (Number* numbers, int64_t count), (numbers, count)) { … }
//
// is the function `twice`, compiled for each of them, where Number is float or, of bfloat16, uint16_t. In the body VL is how
// many float32 numbers a vector register holds.
//
// In ASTRA_PRODUCT_LOOP products and sums may be rounded together: faster, and not the same on every machine to the last bit.
#if defined(__x86_64__) && defined(__GNUC__) && __GNUC__ >= 11 && !defined(__clang__)
#define ASTRA_AVX2 "avx2,fma,f16c,bmi,bmi2,lzcnt,movbe"
#define ASTRA_AVX512 ASTRA_AVX2 ",avx512f,avx512bw,avx512cd,avx512dq,avx512vl"
#define ASTRA_LOOP(contraction, Result, name, parameters, arguments)                           \
  template <int VL, typename Number>                                                           \
  ASTRA_INLINE Result name##Loop parameters;                                                   \
  template <typename Number = float>                                                           \
  __attribute__((optimize("O3", contraction), target(ASTRA_AVX512)))                           \
  Result name##OnAvx512 parameters { return name##Loop<16, Number> arguments; }                \
  template <typename Number = float>                                                           \
  __attribute__((optimize("O3", contraction), target(ASTRA_AVX2)))                             \
  Result name##OnAvx2 parameters { return name##Loop<8, Number> arguments; }                   \
  template <typename Number = float>                                                           \
  __attribute__((optimize("O3", contraction)))                                                 \
  Result name##OnBaseline parameters { return name##Loop<4, Number> arguments; }               \
  template <typename Number = float>                                                           \
  Result name parameters {                                                                     \
    if (isa() >= kIsaAvx512) return name##OnAvx512<Number> arguments;                          \
    return isa() >= kIsaAvx2 ? name##OnAvx2<Number> arguments : name##OnBaseline<Number> arguments;\
  }                                                                                            \
  template <int VL, typename Number>                                                           \
  ASTRA_INLINE Result name##Loop parameters
#else
#define ASTRA_LOOP(contraction, Result, name, parameters, arguments)                           \
  template <int VL, typename Number>                                                           \
  ASTRA_INLINE Result name##Loop parameters;                                                   \
  template <typename Number = float>                                                           \
  Result name parameters { return name##Loop<4, Number> arguments; }                           \
  template <int VL, typename Number>                                                           \
  ASTRA_INLINE Result name##Loop parameters
#endif
#define ASTRA_VECTOR_LOOP(Result, name, parameters, arguments) \
  ASTRA_LOOP("fp-contract=off", Result, name, parameters, arguments)
#define ASTRA_PRODUCT_LOOP(Result, name, parameters, arguments) \
  ASTRA_LOOP("fp-contract=fast", Result, name, parameters, arguments)

// Inlined into the calling loop, and compiled with its options.
#if defined(__GNUC__)
#define ASTRA_INLINE inline __attribute__((always_inline))
#else
#define ASTRA_INLINE inline
#endif

namespace astra {

// Compilers use several registers for one if the processor's are shorter.
template <int VL>
struct Vector {
  typedef float Floats __attribute__((vector_size(4 * VL)));
  typedef uint32_t Words __attribute__((vector_size(4 * VL)));
  typedef uint16_t Halves __attribute__((vector_size(2 * VL)));
};

// From any alignment.
template <typename Register>
ASTRA_INLINE Register load(const void* from) {
  Register result;
  std::memcpy(&result, from, sizeof result);
  return result;
}

// Halves of a vector's sums that lie in `lanes` lanes each are added, x's and then y's side by side.
template <int VL, int lanes>
ASTRA_INLINE typename Vector<VL>::Floats addHalves(const typename Vector<VL>::Floats& x,
                                                   const typename Vector<VL>::Floats& y) {
  typename Vector<VL>::Words first;
  for (int i = 0; i < VL; ++i) first[i] = i / (VL / 2) * VL + i % (VL / 2) / (lanes / 2) * lanes + i % (lanes / 2);
#ifdef __clang__
  typename Vector<VL>::Floats sums;
  for (int i = 0; i < VL; ++i) {
    const auto& from = first[i] < VL ? x : y;
    sums[i] = from[first[i] % VL] + from[(first[i] + lanes / 2) % VL];
  }
  return sums;
#else
  return __builtin_shuffle(x, y, first) + __builtin_shuffle(x, y, first + lanes / 2);
#endif
}

// The sums of `count` vectors, a power of 2 up to VL: each in as many lanes as there is room for, side by side.
template <int VL, int count>
ASTRA_INLINE typename Vector<VL>::Floats sumsOf(const typename Vector<VL>::Floats* vectors) {
  if constexpr (count == 1) {
    return vectors[0];
  } else {
    return addHalves<VL, 2 * VL / count>(sumsOf<VL, count / 2>(vectors), sumsOf<VL, count / 2>(vectors + count / 2));
  }
}

// The sums of all lanes of some vectors. Lanes are added by halves, for any number of vectors.
template <int VL, int count>
ASTRA_INLINE void sumLanes(const typename Vector<VL>::Floats* vectors, float* to) {
  constexpr int together = count >= VL ? VL : count >= VL / 2 ? VL / 2 : VL / 4;
  auto sums = sumsOf<VL, together>(vectors);
  if constexpr (together <= VL / 4) sums = addHalves<VL, 4>(sums, sums);
  if constexpr (together <= VL / 2) sums = addHalves<VL, 2>(sums, sums);
  std::memcpy(to, &sums, together * sizeof(float));
  if constexpr (count > together) sumLanes<VL, count - together>(vectors + together, to + together);
}

// Calls `work(from, to)` for one piece of [0, count) after another, and prefetches the parts of the arrays that are
// read and written two pieces later: in loops with much computation, processors do not look far enough ahead to hide
// the memory latency.
template <typename Work, typename Number, typename... More>
ASTRA_INLINE void fetchingAhead(int64_t count, const Work& work, const Number* first, const More*... more) {
  constexpr int64_t piece = 256, line = 64 / sizeof(Number);
  for (int64_t from = 0; from < count; from += piece) {
    for (int64_t at = from + 2 * piece; at < from + 3 * piece; at += line) {
      __builtin_prefetch(first + at);
      (__builtin_prefetch(more + at), ...);
    }
    work(from, from + piece < count ? from + piece : count);
  }
}

inline float widen(uint16_t bits) {
  const uint32_t word = static_cast<uint32_t>(bits) << 16;
  float value;
  std::memcpy(&value, &word, sizeof value);
  return value;
}

// For loops over numbers of either type.
inline float widen(float value) { return value; }

// As many numbers as a register holds in float32.
template <int VL, typename Number>
ASTRA_INLINE typename Vector<VL>::Floats widened(const Number* from) {
  using Halves = typename Vector<VL>::Halves;
  if constexpr (sizeof(Number) == 4) return load<typename Vector<VL>::Floats>(from);
  typename Vector<VL>::Words words;
  if constexpr (VL == 4) {
    words = __builtin_convertvector(load<Halves>(from), typename Vector<VL>::Words);
  } else {
    asm("vpmovzxwd %1, %0" : "=v"(words) : "m"(*reinterpret_cast<const Halves*>(from)));  // compilers widen by halves
  }
  return reinterpret_cast<typename Vector<VL>::Floats>(words << 16);
}

inline uint16_t narrow(float value) {
  uint32_t word;
  std::memcpy(&word, &value, sizeof word);
  if ((word & 0x7fffffffu) > 0x7f800000u) return 0x7fc0;  // not a number
  return static_cast<uint16_t>((word + 0x7fffu + ((word >> 16) & 1u)) >> 16);
}

// For loops that write numbers of either type.
inline void store(float value, uint16_t& to) { to = narrow(value); }
inline void store(float value, float& to) { to = value; }

// e^x for |x| ≤ 87, with a relative error of 2e-7: x = n·ln 2 + f with |f| ≤ ln 2 / 2, e^f by its series. Without calls
// and branches, so that loops over it are vectorised.
inline float exponentialWithin(float x) {
  const float n = (x * 1.44269504f + 12582912.0f) - 12582912.0f;  // to the nearest integer
  const float f = (x - n * 0.693359375f) + n * 2.12194440e-4f;
  float series = 1.0f / 720;
  series = series * f + 1.0f / 120;
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

ASTRA_VECTOR_LOOP(float, greatestOf, (const float* __restrict scores, int64_t count), (scores, count)) {
  float greatest = -INFINITY;
#pragma omp simd reduction(max : greatest)
  for (int64_t i = 0; i < count; ++i) greatest = scores[i] > greatest ? scores[i] : greatest;
  return greatest;
}

// Converts scores, none above `greatest`, to softmax weights that are not yet divided by their sum, which is returned.
ASTRA_PRODUCT_LOOP(float, weigh, (float* __restrict scores, int64_t count, float greatest), (scores, count, greatest)) {
  float total = 0;
#pragma omp simd reduction(+ : total)
  for (int64_t i = 0; i < count; ++i) {
    scores[i] = exponential(scores[i] - greatest);
    total += scores[i];
  }
  return total;
}

}  // namespace astra
