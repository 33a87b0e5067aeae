// Activations and rotary embeddings, each in one pass where libtorch needs several. Computed in float32.
#include <algorithm>
#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

#include <ATen/Parallel.h>
#include <ATen/core/Tensor.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty_like.h>

#include "engine.h"
#include "pieces.h"
#include "kernels/plain-tensor.h"
#include "kernels/vector-math.h"

namespace astra {
namespace {

// A tensor of `input`'s type and of these sizes.
at::Tensor beside(const at::Tensor& input, at::IntArrayRef sizes, Call& call, size_t index, const char* name) {
  const at::Tensor given = plainTensor(call, index, name);
  if (given.scalar_type() == input.scalar_type() && given.sizes() == sizes) return given;
  throw Refusal(std::string(name) + " does not fit " + describeTensor(input) + ": got " + describeTensor(given));
}

// Beyond ±87 it is 0 and 1 in bfloat16. Integers are compared: for a choice between float32 numbers compilers compute
// both branches, and with a factor of e⁻⁸⁷ results would be subnormal, which costs AVX2 a hundred cycles each.
inline float sigmoid(float u) {
  int32_t bits;
  std::memcpy(&bits, &u, sizeof bits);
  bits = (bits & INT32_MIN) | std::min(bits & INT32_MAX, 0x42ae0000 /* 87 */);
  std::memcpy(&u, &bits, sizeof u);
  return 1.0f / (1.0f + exponentialWithin(-u));
}

// GELU in its tanh form (Hendrycks & Gimpel 2016, arXiv 1606.08415, section 2) is x · σ(b x + a x³).
constexpr float kB = 1.5957691216057308f;  // 2 √(2/π)
constexpr float kA = 0.071354816272600f;   // 0.044715 b

template <bool backward, typename Number>
ASTRA_INLINE void geluOf(const Number* __restrict input, const Number* __restrict gradient, Number* __restrict output,
                         int64_t from, int64_t to) {
#pragma omp simd
  for (int64_t i = from; i < to; ++i) {
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

// Given the output's gradient, that of the input.
ASTRA_PRODUCT_LOOP(void, gelu, (const Number* input, const Number* gradient, Number* output, int64_t count),
                  (input, gradient, output, count)) {
  const auto work = [&](int64_t from, int64_t to) __attribute__((always_inline)) {
    gradient == nullptr ? geluOf<false>(input, gradient, output, from, to) : geluOf<true>(input, gradient, output, from, to);
  };
  fetchingAhead(count, work, input, gradient == nullptr ? input : gradient, output);
}

// geluTanh(input, gradient): any shape; with a gradient, that of the input
napi_value geluTanh(Call& call) {
  const at::AutoGradMode mode(false);
  const at::Tensor input = plainTensor(call, 0, "input");
  const at::Tensor gradient = call.absent(1) ? at::Tensor() : beside(input, input.sizes(), call, 1, "gradient");
  at::Tensor output = at::empty_like(input);
  at::parallel_for(0, input.numel(), kGrain, [&](int64_t from, int64_t to) {
    const auto work = [&](auto zero) {
      using Number = decltype(zero);
      gelu(numbersOf<Number>(input, from), numbersOf<Number>(gradient, from), numbersOf<Number>(output, from), to - from);
    };
    isWide(input) ? work(float{}) : work(uint16_t{});
  });
  return wrapTensor(*call.engine, call.env, std::move(output));
}

// SwiGLU (Shazeer 2020, arXiv 2002.05202): x σ(x) · y of a gate x and a value y.
template <typename Number>
struct Swiglu {
  const Number *gate, *up, *gradient;  // gradient: of the result, or null
  Number *output, *ofUp;               // the result; with a gradient, those of gate and up
  int64_t count;
};

ASTRA_PRODUCT_LOOP(void, swigluOf, (const Swiglu<Number>& work), (work)) {
  const Number *__restrict gate = work.gate, *__restrict up = work.up, *__restrict gradient = work.gradient;
  Number *__restrict output = work.output, *__restrict ofUp = work.ofUp;
  const auto forward = [&](int64_t from, int64_t to) __attribute__((always_inline)) {
#pragma omp simd
    for (int64_t i = from; i < to; ++i) {
      const float x = widen(gate[i]);
      store(x * sigmoid(x) * widen(up[i]), output[i]);
    }
  };
  const auto backward = [&](int64_t from, int64_t to) __attribute__((always_inline)) {
#pragma omp simd
    for (int64_t i = from; i < to; ++i) {
      const float x = widen(gate[i]), arrived = widen(gradient[i]);
      const float s = sigmoid(x);
      store(arrived * widen(up[i]) * (s + x * (s - s * s)), output[i]);
      store(arrived * (x * s), ofUp[i]);
    }
  };
  if (gradient == nullptr) return fetchingAhead(work.count, forward, gate, up, output);
  fetchingAhead(work.count, backward, gate, up, gradient, output, ofUp);
}

// swiglu(gate, up, gradient): [result], any shape; with a gradient, [of gate, of up]
napi_value swiglu(Call& call) {
  const at::AutoGradMode mode(false);
  const at::Tensor gate = plainTensor(call, 0, "gate"), up = beside(gate, gate.sizes(), call, 1, "up");
  const at::Tensor gradient = call.absent(2) ? at::Tensor() : beside(gate, gate.sizes(), call, 2, "gradient");
  const at::Tensor output = at::empty_like(gate), ofUp = gradient.defined() ? at::empty_like(up) : at::Tensor();
  at::parallel_for(0, gate.numel(), kGrain, [&](int64_t from, int64_t to) {
    const auto work = [&](auto zero) {
      using Number = decltype(zero);
      const auto of = [&](const at::Tensor& tensor) { return numbersOf<Number>(tensor, from); };
      swigluOf(Swiglu<Number>{of(gate), of(up), of(gradient), of(output), of(ofUp), to - from});
    };
    isWide(gate) ? work(float{}) : work(uint16_t{});
  });
  const std::vector<at::Tensor> one{output}, both{output, ofUp};
  return wrapTensors(*call.engine, call.env, ofUp.defined() ? both : one);
}

// Rotary position embeddings (Su et al. 2021, arXiv 2104.09864) of the heads of one token: channels i and i + E/2 are a plane.
ASTRA_VECTOR_LOOP(void, rotate,
                  (const Number* from, const Number* __restrict cosine, const Number* __restrict sine, float direction,
                   Number* to, int64_t heads, int64_t half),
                  (from, cosine, sine, direction, to, heads, half)) {
  for (int64_t head = 0; head < heads; ++head, from += 2 * half, to += 2 * half) {
    const Number* __restrict given = from;
    Number* __restrict result = to;
#pragma omp simd
    for (int64_t i = 0; i < half; ++i) {
      const float a = widen(given[i]), b = widen(given[i + half]);
      const float c = widen(cosine[i]), s = direction * widen(sine[i]);
      store(a * c - b * s, result[i]);
      store(b * c + a * s, result[i + half]);
    }
  }
}

// rotary(input, cosine, sine, backwards): [B, T, H, E] rotated by [B, T, E/2], or rotated back
napi_value rotary(Call& call) {
  const at::AutoGradMode mode(false);
  const at::Tensor input = plainTensor(call, 0, "input");
  if (input.dim() != 4 || input.size(3) % 2 != 0) {
    throw Refusal("input must be [B, T, H, E], E even, got " + describeTensor(input));
  }
  const int64_t tokens = input.size(0) * input.size(1), heads = input.size(2), half = input.size(3) / 2;
  const std::vector<int64_t> planes{input.size(0), input.size(1), half};
  const at::Tensor cosine = beside(input, planes, call, 1, "cosine"), sine = beside(input, planes, call, 2, "sine");
  const float direction = call.boolean(3, "backwards") ? -1.0f : 1.0f;
  at::Tensor output = at::empty_like(input);
  at::parallel_for(0, tokens, kGrain / std::max<int64_t>(1, 2 * heads * half) + 1, [&](int64_t first, int64_t last) {
    const auto work = [&](auto zero) {
      using Number = decltype(zero);
      for (int64_t at = first; at < last; ++at) {
        const int64_t from = at * 2 * heads * half;
        rotate(numbersOf<Number>(input, from), numbersOf<Number>(cosine, at * half), numbersOf<Number>(sine, at * half), direction,
               numbersOf<Number>(output, from), heads, half);
      }
    };
    isWide(input) ? work(float{}) : work(uint16_t{});
  });
  return wrapTensor(*call.engine, call.env, std::move(output));
}

const Exports exports{{"geluTanh", geluTanh}, {"swiglu", swiglu}, {"rotary", rotary}};

}  // namespace

}  // namespace astra
