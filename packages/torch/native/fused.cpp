// Functions of a training step in bfloat16 that libtorch composes of many passes, each in one: the tanh form of GELU,
// log-probabilities of chosen tokens, and sums of rows. Numbers are float32 inside.
#include <algorithm>
#include <cmath>
#include <vector>

#include <ATen/Parallel.h>
#include <ATen/core/Tensor.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>

#include "engine.h"
#include "pieces.h"
#include "plain-tensor.h"
#include "tiles.h"
#include "vector-math.h"

namespace astra {
namespace {

at::Tensor bfloat16(Call& call, size_t index, const char* name) {
  const at::Tensor tensor = call.tensor(index, name);
  if (!isPlain(tensor, at::kBFloat16)) {
    throw Refusal(std::string(name) + " must be bfloat16 on the CPU, got " + describeTensor(tensor));
  }
  return tensor;
}

// GELU in its tanh form (Hendrycks & Gimpel 2016, arXiv 1606.08415, section 2) is x · σ(b x + a x³).
constexpr float kB = 1.5957691216057308f;  // 2 √(2/π)
constexpr float kA = 0.071354816272600f;   // 0.044715 b

// Beyond ±87 it is 0 and 1 in bfloat16.
inline float sigmoid(float u) {
  const float least = u < -87.0f ? -87.0f : u;
  const float bounded = least > 87.0f ? 87.0f : least;
  return 1.0f / (1.0f + exponentialWithin(-bounded));
}

template <bool backward, typename Number>
ASTRA_INLINE void geluOf(const Number* __restrict input, const Number* __restrict gradient, Number* __restrict output,
                         int64_t count) {
#pragma omp simd
  for (int64_t i = 0; i < count; ++i) {
    const float x = widen(input[i]);
    const float square = x * x;
    const float s = sigmoid((kB + kA * square) * x);
    if constexpr (backward) {
      // d/dx x σ(u) = σ + x u′ σ (1 − σ), with u′ = b + 3 a x²
      store(widen(gradient[i]) * (s + (kB + 3 * kA * square) * (x * (s - s * s))), output[i]);
    } else {
      store(x * s, output[i]);
    }
  }
}

// With a gradient that arrives, that of the input.
ASTRA_VECTOR_LOOP(void, gelu, (const float* input, const float* gradient, float* output, int64_t count),
                  (input, gradient, output, count)) {
  gradient == nullptr ? geluOf<false>(input, gradient, output, count) : geluOf<true>(input, gradient, output, count);
}
ASTRA_VECTOR_LOOP(void, gelu, (const uint16_t* input, const uint16_t* gradient, uint16_t* output, int64_t count),
                  (input, gradient, output, count)) {
  gradient == nullptr ? geluOf<false>(input, gradient, output, count) : geluOf<true>(input, gradient, output, count);
}

#ifdef ASTRA_TILES
// The same with the processor's own powers of 2 and reciprocals, 16 numbers at a time.
ASTRA_TILE_INLINE __m512 sigmoidOf(__m512 u) {
  // The least of both is the second where that is not a number.
  const __m512 power = _mm512_min_ps(_mm512_set1_ps(126.0f), _mm512_mul_ps(u, _mm512_set1_ps(-1.44269504f)));
  const __m512 sum = _mm512_add_ps(_mm512_set1_ps(1.0f), powerOf2(power));
  const __m512 guess = _mm512_rcp14_ps(sum);
  return _mm512_mul_ps(guess, _mm512_fnmadd_ps(sum, guess, _mm512_set1_ps(2.0f)));  // Newton's step
}

ASTRA_TILE_INLINE void storeNarrow(uint16_t* to, __mmask16 mask, __m512 values) {
  _mm256_mask_storeu_epi16(to, mask, reinterpret_cast<__m256i>(_mm512_cvtneps_pbh(values)));
}

template <bool backward>
ASTRA_TILE_CODE void geluOnVectors(const uint16_t* input, const uint16_t* gradient, uint16_t* output, int64_t count) {
  const __m512 a = _mm512_set1_ps(kA), b = _mm512_set1_ps(kB), thrice = _mm512_set1_ps(3 * kA);
  for (int64_t i = 0; i < count; i += kTile) {
    const __mmask16 mask = count - i >= kTile ? __mmask16{0xffff} : static_cast<__mmask16>((1u << (count - i)) - 1);
    const __m512 x = loadWide(input + i, mask);
    const __m512 square = _mm512_mul_ps(x, x);
    const __m512 s = sigmoidOf(_mm512_mul_ps(_mm512_fmadd_ps(a, square, b), x));
    if constexpr (backward) {
      const __m512 slope = _mm512_mul_ps(_mm512_fmadd_ps(thrice, square, b), x);
      const __m512 derivative = _mm512_fmadd_ps(slope, _mm512_fnmadd_ps(s, s, s), s);
      storeNarrow(output + i, mask, _mm512_mul_ps(loadWide(gradient + i, mask), derivative));
    } else {
      storeNarrow(output + i, mask, _mm512_mul_ps(x, s));
    }
  }
}
#endif

// geluTanh(input, gradient): float32 or bfloat16, any shape; with a gradient, that of the input
napi_value geluTanh(Call& call) {
  const at::AutoGradMode mode(false);
  const at::Tensor input = call.tensor(0, "input").contiguous();
  const at::Tensor gradient = call.absent(1) ? at::Tensor() : call.tensor(1, "gradient").contiguous();
  const bool isNarrow = isPlain(input, at::kBFloat16);
  if (!isNarrow && !isPlain(input, at::kFloat)) {
    throw Refusal("input must be float32 or bfloat16 on the CPU, got " + describeTensor(input));
  }
  if (gradient.defined() && (!isPlain(gradient, input.scalar_type()) || gradient.sizes() != input.sizes())) {
    throw Refusal("input and gradient must have one type and shape, got " + describeTensor(input) + " and " +
                  describeTensor(gradient));
  }
  at::Tensor output = at::empty_like(input);
  at::parallel_for(0, input.numel(), kGrain, [&](int64_t from, int64_t to) {
    const int64_t count = to - from;
    if (!isNarrow) {
      const float* arrived = floatsOf(gradient);
      return gelu(floatsOf(input) + from, arrived == nullptr ? nullptr : arrived + from, floatsOf(output) + from, count);
    }
    const uint16_t* arrived = gradient.defined() ? words(gradient) + from : nullptr;
#ifdef ASTRA_TILES
    if (mayUseTiles()) {
      return arrived == nullptr ? geluOnVectors<false>(words(input) + from, arrived, words(output) + from, count)
                                : geluOnVectors<true>(words(input) + from, arrived, words(output) + from, count);
    }
#endif
    gelu(words(input) + from, arrived, words(output) + from, count);
  });
  return wrapTensor(*call.engine, call.env, std::move(output));
}

// What a row's logits are measured by: log Σ exp(logits) = greatest + logSum. Kept apart, since beside a greatest logit of
// −1e9 the rounding of their sum would swallow the logarithm.
struct Normaliser {
  float greatest, logSum;
};

ASTRA_VECTOR_LOOP(Normaliser, normaliserOf, (const uint16_t* __restrict logits, int64_t count), (logits, count)) {
  float greatest = -INFINITY;
#pragma omp simd reduction(max : greatest)
  for (int64_t i = 0; i < count; ++i) {
    const float logit = widen(logits[i]);
    greatest = logit > greatest ? logit : greatest;
  }
  float total = 0;
#pragma omp simd reduction(+ : total)
  for (int64_t i = 0; i < count; ++i) total += exponential(widen(logits[i]) - greatest);
  return {greatest, std::log(total)};
}

ASTRA_VECTOR_LOOP(void, softmaxTimes,
                  (const uint16_t* __restrict logits, Normaliser by, float factor, uint16_t* __restrict output,
                   int64_t count),
                  (logits, by, factor, output, count)) {
#pragma omp simd
  for (int64_t i = 0; i < count; ++i) {
    output[i] = narrow(factor * exponential((widen(logits[i]) - by.greatest) - by.logSum));
  }
}

struct Chosen {
  at::Tensor logits;         // [rows, vocabulary], rows `stride` apart
  at::Tensor indices;        // [chosen], row · vocabulary + token
  int64_t rows, vocabulary, stride;

  uint16_t* row(int64_t at) const { return words(logits) + at * stride; }
};

Chosen chosen(Call& call) {
  Chosen found;
  found.logits = bfloat16(call, 0, "logits");
  const at::Tensor indices = call.tensor(1, "indices");
  if (found.logits.dim() != 2 || found.logits.size(1) == 0) {
    throw Refusal("logits must have rows and a vocabulary, got " + describeTensor(found.logits));
  }
  if (!isPlain(indices, at::kLong) || indices.dim() != 1) {
    throw Refusal("indices must be int64[chosen] on the CPU, got " + describeTensor(indices));
  }
  if (found.logits.stride(1) != 1) found.logits = found.logits.contiguous();
  found.stride = found.logits.stride(0);
  found.indices = indices.contiguous();
  found.rows = found.logits.size(0);
  found.vocabulary = found.logits.size(1);
  const auto* index = static_cast<const int64_t*>(found.indices.data_ptr());
  for (int64_t i = 0; i < found.indices.numel(); ++i) {
    if (index[i] < 0 || index[i] >= found.logits.numel()) {
      throw Refusal("index " + std::to_string(index[i]) + " is outside of " + describeTensor(found.logits));
    }
  }
  return found;
}

// selectiveLogSoftmax(logits, indices): [values of the indices, normalisers [rows, 2]], both float32
napi_value selectiveLogSoftmax(Call& call) {
  const at::AutoGradMode mode(false);
  const Chosen given = chosen(call);
  const auto floats = given.logits.options().dtype(at::kFloat);
  at::Tensor values = at::empty({given.indices.numel()}, floats);
  at::Tensor normalisers = at::empty({given.rows, 2}, floats);
  auto* normaliser = static_cast<Normaliser*>(normalisers.data_ptr());
  at::parallel_for(0, given.rows, std::max<int64_t>(1, kGrain / given.vocabulary), [&](int64_t from, int64_t to) {
    for (int64_t row = from; row < to; ++row) {
      normaliser[row] = normaliserOf(given.row(row), given.vocabulary);
    }
  });
  auto* value = static_cast<float*>(values.data_ptr());
  const auto* index = static_cast<const int64_t*>(given.indices.data_ptr());
  for (int64_t i = 0; i < given.indices.numel(); ++i) {
    const int64_t row = index[i] / given.vocabulary;
    const float logit = widen(given.row(row)[index[i] % given.vocabulary]);
    value[i] = (logit - normaliser[row].greatest) - normaliser[row].logSum;
  }
  return makeArray(call.env, {wrapTensor(*call.engine, call.env, std::move(values)),
                              wrapTensor(*call.engine, call.env, std::move(normalisers))});
}

// selectiveLogSoftmaxBackward(logits, indices, normalisers, gradient): of the logits, bfloat16
napi_value selectiveLogSoftmaxBackward(Call& call) {
  const at::AutoGradMode mode(false);
  const Chosen given = chosen(call);
  const auto floats = [&](size_t at, const char* name, std::vector<int64_t> sizes) {
    const at::Tensor tensor = call.tensor(at, name);
    if (!isPlain(tensor, at::kFloat) || tensor.sizes() != at::IntArrayRef(sizes)) {
      throw Refusal(std::string(name) + " must be float32[" + std::to_string(sizes[0]) +
                    (sizes.size() > 1 ? ", 2]" : "]") + ", got " + describeTensor(tensor));
    }
    return tensor.contiguous();
  };
  const at::Tensor normalisers = floats(2, "normalisers", {given.rows, 2});
  const at::Tensor gradients = floats(3, "gradient", {given.indices.numel()});
  const auto* normaliser = static_cast<const Normaliser*>(normalisers.data_ptr());
  const auto* gradient = static_cast<const float*>(gradients.data_ptr());
  const auto* index = static_cast<const int64_t*>(given.indices.data_ptr());
  // The derivative of a row's logits: what arrives at its chosen tokens, minus the row's sum of it times the softmax.
  std::vector<std::vector<int64_t>> chosenOf(static_cast<size_t>(given.rows));
  for (int64_t i = 0; i < given.indices.numel(); ++i) {
    chosenOf[static_cast<size_t>(index[i] / given.vocabulary)].push_back(i);
  }
  at::Tensor output = at::empty(given.logits.sizes(), given.logits.options());
  at::parallel_for(0, given.rows, std::max<int64_t>(1, kGrain / given.vocabulary), [&](int64_t from, int64_t to) {
    for (int64_t row = from; row < to; ++row) {
      const std::vector<int64_t>& own = chosenOf[static_cast<size_t>(row)];
      float sum = 0;
      for (const int64_t i : own) sum += gradient[i];
      const uint16_t* logits = given.row(row);
      uint16_t* result = words(output) + row * given.vocabulary;
      softmaxTimes(logits, normaliser[row], -sum, result, given.vocabulary);
      // Added in float32 before rounding; a token may have been chosen more than once.
      for (const int64_t i : own) {
        const int64_t token = index[i] - row * given.vocabulary;
        float arrived = 0;
        for (const int64_t other : own) arrived += index[other] == index[i] ? gradient[other] : 0.0f;
        const Normaliser by = normaliser[row];
        result[token] = narrow(arrived - sum * exponential((widen(logits[token]) - by.greatest) - by.logSum));
      }
    }
  });
  return wrapTensor(*call.engine, call.env, std::move(output));
}

constexpr int64_t kStrip = 256;  // columns whose sums stay in the first-level cache

template <typename Number>
ASTRA_INLINE void addRows(const Number* __restrict from, int64_t stride, int64_t rows, int64_t columns,
                          float* __restrict sums) {
  for (int64_t column = 0; column < columns; ++column) sums[column] = 0;
  for (int64_t row = 0; row < rows; ++row) {
    for (int64_t column = 0; column < columns; ++column) sums[column] += widen(from[row * stride + column]);
  }
}

ASTRA_VECTOR_LOOP(void, addBfloat16Rows,
                  (const uint16_t* from, int64_t stride, int64_t rows, int64_t columns, float* sums),
                  (from, stride, rows, columns, sums)) {
  addRows(from, stride, rows, columns, sums);
}

ASTRA_VECTOR_LOOP(void, addFloatRows, (const float* from, int64_t stride, int64_t rows, int64_t columns, float* sums),
                  (from, stride, rows, columns, sums)) {
  addRows(from, stride, rows, columns, sums);
}

// sumOfRows(matrix): float32 [columns] of a float32 or bfloat16 matrix
napi_value sumOfRows(Call& call) {
  const at::AutoGradMode mode(false);
  const at::Tensor given = call.tensor(0, "matrix");
  const bool isWide = isPlain(given, at::kFloat);
  if ((!isWide && !isPlain(given, at::kBFloat16)) || given.dim() != 2) {
    throw Refusal("matrix must be float32 or bfloat16 on the CPU, got " + describeTensor(given));
  }
  const at::Tensor matrix = given.contiguous();
  const int64_t rows = matrix.size(0), columns = matrix.size(1);
  at::Tensor result = at::empty({columns}, matrix.options().dtype(at::kFloat));
  auto* sums = static_cast<float*>(result.data_ptr());
  const int64_t grain = std::max<int64_t>(1, kGrain / (kStrip * std::max<int64_t>(1, rows)));
  at::parallel_for(0, (columns + kStrip - 1) / kStrip, grain, [&](int64_t from, int64_t to) {
    for (int64_t column = from * kStrip; column < std::min(columns, to * kStrip); column += kStrip) {
      const int64_t count = std::min(kStrip, columns - column);
      if (isWide) {
        addFloatRows(static_cast<const float*>(matrix.data_ptr()) + column, columns, rows, count, sums + column);
      } else {
        addBfloat16Rows(words(matrix) + column, columns, rows, count, sums + column);
      }
    }
  });
  return wrapTensor(*call.engine, call.env, std::move(result));
}

const Exports exports{
    {"geluTanh", geluTanh}, {"sumOfRows", sumOfRows}, {"selectiveLogSoftmax", selectiveLogSoftmax},
    {"selectiveLogSoftmaxBackward", selectiveLogSoftmaxBackward}};

}  // namespace

}  // namespace astra
