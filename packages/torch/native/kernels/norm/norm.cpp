// Layer norms and root-mean-square norms over the last dimension: parameters are read in their stored type; computation
// is in float32.
#include <algorithm>
#include <cmath>
#include <vector>

#include <ATen/Parallel.h>
#include <ATen/core/Tensor.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/zeros.h>

#include "engine.h"
#include "pieces.h"
#include "kernels/plain-tensor.h"
#include "kernels/vector-math.h"

namespace astra {
namespace {

constexpr int64_t kBlock = 64;       // rows whose shares of the parameters' gradients are added first

// [..., D], D > 0
at::Tensor rowsOf(Call& call, size_t index, const char* name) {
  const at::Tensor rows = plainTensor(call, index, name);
  if (rows.dim() > 0 && rows.size(-1) > 0) return rows;
  throw Refusal(std::string(name) + " must be [..., D], got " + describeTensor(rows));
}

// One number for each index of the last dimension; zeros if absent.
std::vector<float> parameter(Call& call, size_t index, const char* name, int64_t size) {
  if (call.absent(index)) return std::vector<float>(static_cast<size_t>(size));
  const at::Tensor given = rowsOf(call, index, name);
  if (given.dim() != 1 || given.size(0) != size) {
    throw Refusal(std::string(name) + " must have " + std::to_string(size) + " numbers, got " + describeTensor(given));
  }
  return floatNumbers(given);
}

// Measures of a row: its mean, or 0 if the norm is not centred, and its factor.
struct Measure {
  float mean, scale;
};

// Rows of one type to results of another.
template <typename Given, typename Result>
struct Norm {
  const float *weight, *bias;
  int64_t size;
  bool centred;
  float epsilon;
  const Given* rows;
  Result* results;  // in the backward pass what arrived for them
  Given* ofRows;    // gradients, in the backward pass
};

ASTRA_VECTOR_LOOP(Measure, normalise, (const Number& norm, int64_t at), (norm, at)) {
  const int64_t size = norm.size;
  const auto* __restrict row = norm.rows + at * size;
  auto* __restrict to = norm.results + at * size;
  const float *__restrict weight = norm.weight, *__restrict bias = norm.bias;
  float mean = 0, squares = 0;
  if (norm.centred) {
    float sum = 0;
#pragma omp simd reduction(+ : sum)
    for (int64_t i = 0; i < size; ++i) sum += widen(row[i]);
    mean = sum / static_cast<float>(size);
  }
#pragma omp simd reduction(+ : squares)
  for (int64_t i = 0; i < size; ++i) squares += (widen(row[i]) - mean) * (widen(row[i]) - mean);
  const float scale = 1.0f / std::sqrt(squares / static_cast<float>(size) + norm.epsilon);
#pragma omp simd
  for (int64_t i = 0; i < size; ++i) store((widen(row[i]) - mean) * scale * weight[i] + bias[i], to[i]);
  return {mean, scale};
}

// Of the row; adds to those of weight and bias.
ASTRA_VECTOR_LOOP(void, gradients,
                  (const Number& norm, int64_t at, Measure by, float* __restrict ofWeight, float* __restrict ofBias),
                  (norm, at, by, ofWeight, ofBias)) {
  const int64_t size = norm.size;
  const auto* __restrict row = norm.rows + at * size;
  const auto* __restrict arrived = norm.results + at * size;
  const float* __restrict weight = norm.weight;
  auto* __restrict ofRow = norm.ofRows + at * size;
  float sum = 0, product = 0;
#pragma omp simd reduction(+ : sum, product)
  for (int64_t i = 0; i < size; ++i) {
    const float normal = (widen(row[i]) - by.mean) * by.scale, gradient = widen(arrived[i]);
    const float weighted = gradient * weight[i];
    sum += weighted;
    product += weighted * normal;
    ofWeight[i] += gradient * normal;
    ofBias[i] += gradient;
  }
  const float common = norm.centred ? sum / static_cast<float>(size) : 0.0f;
  const float along = product / static_cast<float>(size);
#pragma omp simd
  for (int64_t i = 0; i < size; ++i) {
    const float normal = (widen(row[i]) - by.mean) * by.scale;
    store(by.scale * (widen(arrived[i]) * weight[i] - common - normal * along), ofRow[i]);
  }
}

// Calls `work` with the types of both: results of bfloat16 rows are bfloat16.
template <typename Work>
auto withTypes(const at::Tensor& rows, const at::Tensor& results, const Work& work) {
  if (!isWide(rows)) return work(uint16_t{}, uint16_t{});
  return isWide(results) ? work(float{}, float{}) : work(float{}, uint16_t{});
}

// norm(input, weight, bias, centred, wide, epsilon, recording): [result], float32 if `wide`, else bfloat16, and if
// gradients are recorded also measures as float32 [rows, 2]
napi_value norm(Call& call) {
  const at::AutoGradMode mode(false);
  const at::Tensor input = rowsOf(call, 0, "input");
  const int64_t size = input.size(-1), rows = input.numel() / size;
  const std::vector<float> weight = parameter(call, 1, "weight", size), bias = parameter(call, 2, "bias", size);
  const bool centred = call.boolean(3, "centred"), wide = call.boolean(4, "wide"), recording = call.boolean(6, "recording");
  const auto epsilon = static_cast<float>(call.number(5, "epsilon"));
  if (wide && !isWide(input)) throw Refusal("a float32 result needs a float32 input, got " + describeTensor(input));
  std::vector<at::Tensor> results{at::empty(input.sizes(), input.options().dtype(wide ? at::kFloat : at::kBFloat16))};
  if (recording) results.push_back(at::empty({rows, 2}, input.options().dtype(at::kFloat)));
  auto* measured = recording ? static_cast<Measure*>(results[1].data_ptr()) : nullptr;
  withTypes(input, results[0], [&](auto given, auto narrowed) {
    const Norm<decltype(given), decltype(narrowed)> work{
        weight.data(), bias.data(), size, centred, epsilon, numbersOf<decltype(given)>(input),
        numbersOf<decltype(narrowed)>(results[0]), nullptr};
    at::parallel_for(0, rows, std::max<int64_t>(1, kGrain / size), [&](int64_t from, int64_t to) {
      for (int64_t at = from; at < to; ++at) {
        const Measure by = normalise(work, at);
        if (measured != nullptr) measured[at] = by;
      }
    });
  });
  return wrapTensors(*call.engine, call.env, results);
}

// normBackward(input, gradient, weight, measures, centred): gradients of input, in its type, and in float32 of weight and
// bias, from one of the result's type
napi_value normBackward(Call& call) {
  const at::AutoGradMode mode(false);
  const at::Tensor input = rowsOf(call, 0, "input"), gradient = rowsOf(call, 1, "gradient");
  const int64_t size = input.size(-1), rows = input.numel() / size;
  const std::vector<float> weight = parameter(call, 2, "weight", size);
  const at::Tensor measures = call.tensor(3, "measures").contiguous();
  const bool centred = call.boolean(4, "centred");
  if ((isWide(gradient) && !isWide(input)) || gradient.sizes() != input.sizes()) {
    throw Refusal("gradient must be of the input's shape and no wider, got " + describeTensor(gradient) + " for " +
                  describeTensor(input));
  }
  if (!isPlain(measures, at::kFloat) || measures.dim() != 2 || measures.size(0) != rows || measures.size(1) != 2) {
    throw Refusal("measures must be float32[" + std::to_string(rows) + ", 2], got " + describeTensor(measures));
  }
  const auto* measured = static_cast<const Measure*>(measures.data_ptr());
  const auto floats = input.options().dtype(at::kFloat);
  const at::Tensor ofInput = at::empty_like(input);
  // Summed in fixed blocks of rows: the sums are the same with any number of threads.
  const int64_t blocks = (rows + kBlock - 1) / kBlock;
  const at::Tensor added = at::zeros({blocks, 2, size}, floats);
  auto* const shares = added.data_ptr<float>();
  withTypes(input, gradient, [&](auto given, auto arrived) {
    using Given = decltype(given);
    const Norm<Given, decltype(arrived)> work{weight.data(), nullptr, size, centred, 0, numbersOf<Given>(input),
                                              numbersOf<decltype(arrived)>(gradient), numbersOf<Given>(ofInput)};
    at::parallel_for(0, blocks, std::max<int64_t>(1, kGrain / (kBlock * size)), [&](int64_t first, int64_t last) {
      for (int64_t at = first * kBlock; at < std::min(rows, last * kBlock); ++at) {
        float* share = shares + 2 * (at / kBlock) * size;
        gradients(work, at, measured[at], share, share + size);
      }
    });
  });
  const at::Tensor ofParameters = added.sum(0);
  return wrapTensors(*call.engine, call.env, {ofInput, ofParameters.select(0, 0), ofParameters.select(0, 1)});
}

const Exports exports{{"norm", norm}, {"normBackward", normBackward}};

}  // namespace

}  // namespace astra
