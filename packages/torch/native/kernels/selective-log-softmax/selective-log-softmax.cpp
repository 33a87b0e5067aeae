// Log-probabilities of chosen tokens, in one pass where libtorch needs many. Computed in float32.
#include <algorithm>
#include <cmath>
#include <unordered_map>
#include <vector>

#include <ATen/Parallel.h>
#include <ATen/core/Tensor.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>

#include "engine.h"
#include "pieces.h"
#include "kernels/plain-tensor.h"
#include "kernels/vector-math.h"

namespace astra {
namespace {

// The normaliser of a row's logits: log Σ exp(logits) = greatest + logSum. Stored separately, since with a greatest
// logit of −1e9 the rounding of their sum would lose the logarithm.
struct Normaliser {
  float greatest, logSum;
};

ASTRA_VECTOR_LOOP(Normaliser, normaliserOf, (const Number* __restrict logits, int64_t count), (logits, count)) {
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
                  (const Number* __restrict logits, Normaliser by, float factor, Number* __restrict output, int64_t count),
                  (logits, by, factor, output, count)) {
#pragma omp simd
  for (int64_t i = 0; i < count; ++i) {
    store(factor * exponential((widen(logits[i]) - by.greatest) - by.logSum), output[i]);
  }
}

struct Chosen {
  at::Tensor logits;         // [rows, vocabulary], rows `stride` apart
  at::Tensor indices;        // [chosen], row · vocabulary + token
  int64_t rows, vocabulary, stride;

  template <typename Number>
  Number* row(int64_t at) const { return numbersOf<Number>(logits, at * stride); }
};

Chosen chosen(Call& call) {
  Chosen found;
  found.logits = call.tensor(0, "logits");
  const at::Tensor indices = call.tensor(1, "indices");
  if (!isReadable(found.logits) || found.logits.dim() != 2 || found.logits.size(1) == 0) {
    throw Refusal("logits must be float32 or bfloat16 [rows, vocabulary] on the CPU, got " + describeTensor(found.logits));
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

template <typename Number>
void valuesOf(const Chosen& given, Normaliser* normaliser, float* value) {
  at::parallel_for(0, given.rows, std::max<int64_t>(1, kGrain / given.vocabulary), [&](int64_t from, int64_t to) {
    for (int64_t row = from; row < to; ++row) normaliser[row] = normaliserOf(given.row<Number>(row), given.vocabulary);
  });
  const auto* index = static_cast<const int64_t*>(given.indices.data_ptr());
  for (int64_t i = 0; i < given.indices.numel(); ++i) {
    const int64_t row = index[i] / given.vocabulary;
    const float logit = widen(given.row<Number>(row)[index[i] % given.vocabulary]);
    value[i] = (logit - normaliser[row].greatest) - normaliser[row].logSum;
  }
}

// selectiveLogSoftmax(logits, indices): [values of the indices, normalisers [rows, 2]], both float32
napi_value selectiveLogSoftmax(Call& call) {
  const at::AutoGradMode mode(false);
  const Chosen given = chosen(call);
  const auto floats = given.logits.options().dtype(at::kFloat);
  const at::Tensor values = at::empty({given.indices.numel()}, floats);
  const at::Tensor normalisers = at::empty({given.rows, 2}, floats);
  const auto work = isWide(given.logits) ? valuesOf<float> : valuesOf<uint16_t>;
  work(given, static_cast<Normaliser*>(normalisers.data_ptr()), floatsOf(values));
  return wrapTensors(*call.engine, call.env, {values, normalisers});
}

// The gradient of a row's logits: the gradients of its chosen tokens, minus their sum times the softmax.
template <typename Number>
void gradientsOf(const Chosen& given, const Normaliser* normaliser, const float* gradient, Number* output) {
  const auto* index = static_cast<const int64_t*>(given.indices.data_ptr());
  std::vector<float> sums(static_cast<size_t>(given.rows));
  std::unordered_map<int64_t, float> arrived;  // a token may have been chosen more than once
  for (int64_t i = 0; i < given.indices.numel(); ++i) {
    sums[static_cast<size_t>(index[i] / given.vocabulary)] += gradient[i];
    arrived[index[i]] += gradient[i];
  }
  at::parallel_for(0, given.rows, std::max<int64_t>(1, kGrain / given.vocabulary), [&](int64_t from, int64_t to) {
    for (int64_t row = from; row < to; ++row) {
      softmaxTimes(given.row<Number>(row), normaliser[row], -sums[static_cast<size_t>(row)],
                   output + row * given.vocabulary, given.vocabulary);
    }
  });
  // Added in float32 before rounding.
  for (const auto& [place, sum] : arrived) {
    const int64_t row = place / given.vocabulary;
    const float logit = widen(given.row<Number>(row)[place % given.vocabulary]);
    const float probability = exponential((logit - normaliser[row].greatest) - normaliser[row].logSum);
    store(sum - sums[static_cast<size_t>(row)] * probability, output[place]);
  }
}

// selectiveLogSoftmaxBackward(logits, indices, normalisers, gradient): of the logits, in their type
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
  at::Tensor output = at::empty(given.logits.sizes(), given.logits.options());
  const auto work = [&](auto* numbers) { gradientsOf(given, normaliser, floatsOf(gradients), numbers); };
  isWide(given.logits) ? work(floatsOf(output)) : work(words(output));
  return wrapTensor(*call.engine, call.env, std::move(output));
}

const Exports exports{{"selectiveLogSoftmax", selectiveLogSoftmax},
                      {"selectiveLogSoftmaxBackward", selectiveLogSoftmaxBackward}};

}  // namespace

}  // namespace astra
