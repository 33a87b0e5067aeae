// Layer norms and root-mean-square norms over the last dimension with bfloat16 results: parameters are read as they are
// stored, and numbers are float32 inside.
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
#include "plain-tensor.h"
#include "vector-math.h"

namespace astra {
namespace {

constexpr int64_t kBlock = 64;       // rows whose shares of the parameters' gradients are added first

// A matrix in either type, row by row.
class Rows {
 public:
  Rows(Call& call, size_t index, const char* name) : tensor_(call.tensor(index, name)) {
    const bool known = isPlain(tensor_, at::kFloat) || isPlain(tensor_, at::kBFloat16);
    if (!known || tensor_.dim() < 1 || tensor_.size(-1) < 1) {
      throw Refusal(std::string(name) + " must be float32[..., D] or bfloat16[..., D] on the CPU, got " +
                    describeTensor(tensor_));
    }
    tensor_ = tensor_.contiguous();
  }

  bool isWide() const { return tensor_.scalar_type() == at::kFloat; }
  int64_t size() const { return tensor_.size(-1); }
  int64_t count() const { return tensor_.numel() / size(); }
  const at::Tensor& tensor() const { return tensor_; }

  template <typename Number>
  Number* row(int64_t at) const {
    return static_cast<Number*>(tensor_.data_ptr()) + at * size();
  }

 private:
  at::Tensor tensor_;
};

// One number for each of the last dimension; zeros where there are none.
std::vector<float> parameter(Call& call, size_t index, const char* name, int64_t size) {
  std::vector<float> numbers(static_cast<size_t>(size));
  if (call.absent(index)) return numbers;
  const Rows given(call, index, name);
  if (given.tensor().dim() != 1 || given.size() != size) {
    throw Refusal(std::string(name) + " must have " + std::to_string(size) + " numbers, got " +
                  describeTensor(given.tensor()));
  }
  for (size_t i = 0; i < numbers.size(); ++i) {
    numbers[i] = given.isWide() ? given.row<float>(0)[i] : widen(given.row<uint16_t>(0)[i]);
  }
  return numbers;
}

// What a row is measured by: its mean, or 0 where the norm is not centred, and what it is multiplied by.
struct Measure {
  float mean, scale;
};

ASTRA_VECTOR_LOOP(Measure, normalise,
                  (const Number* __restrict row, bool centred, float epsilon, const float* __restrict weight,
                   const float* __restrict bias, uint16_t* __restrict to, int64_t size),
                  (row, centred, epsilon, weight, bias, to, size)) {
  float mean = 0, squares = 0;
  if (centred) {
    float sum = 0;
#pragma omp simd reduction(+ : sum)
    for (int64_t i = 0; i < size; ++i) sum += widen(row[i]);
    mean = sum / static_cast<float>(size);
  }
#pragma omp simd reduction(+ : squares)
  for (int64_t i = 0; i < size; ++i) squares += (widen(row[i]) - mean) * (widen(row[i]) - mean);
  const float scale = 1.0f / std::sqrt(squares / static_cast<float>(size) + epsilon);
#pragma omp simd
  for (int64_t i = 0; i < size; ++i) to[i] = narrow((widen(row[i]) - mean) * scale * weight[i] + bias[i]);
  return {mean, scale};
}

// Of the row; adds to those of weight and bias.
ASTRA_VECTOR_LOOP(void, gradients,
                  (const Number* __restrict row, const uint16_t* __restrict arrived, Measure by, bool centred,
                   const float* __restrict weight, Number* __restrict ofRow, float* __restrict ofWeight,
                   float* __restrict ofBias, int64_t size),
                  (row, arrived, by, centred, weight, ofRow, ofWeight, ofBias, size)) {
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
  const float common = centred ? sum / static_cast<float>(size) : 0.0f;
  const float along = product / static_cast<float>(size);
#pragma omp simd
  for (int64_t i = 0; i < size; ++i) {
    const float normal = (widen(row[i]) - by.mean) * by.scale;
    store(by.scale * (widen(arrived[i]) * weight[i] - common - normal * along), ofRow[i]);
  }
}

// bfloat16Norm(input, weight, bias, centred, epsilon, recording): [result], and where gradients are recorded measures as
// float32 [rows, 2]
napi_value bfloat16Norm(Call& call) {
  const at::AutoGradMode mode(false);
  const Rows input(call, 0, "input");
  const int64_t size = input.size(), rows = input.count();
  const std::vector<float> weight = parameter(call, 1, "weight", size), bias = parameter(call, 2, "bias", size);
  const bool centred = call.boolean(3, "centred"), recording = call.boolean(5, "recording");
  const auto epsilon = static_cast<float>(call.number(4, "epsilon"));
  const auto options = input.tensor().options();
  at::Tensor result = at::empty(input.tensor().sizes(), options.dtype(at::kBFloat16));
  at::Tensor measures = at::empty({recording ? rows : 0, 2}, options.dtype(at::kFloat));
  auto* measured = static_cast<Measure*>(measures.data_ptr());
  at::parallel_for(0, rows, std::max<int64_t>(1, kGrain / size), [&](int64_t from, int64_t to) {
    for (int64_t at = from; at < to; ++at) {
      const auto measure = [&](auto* row) {
        return normalise(row, centred, epsilon, weight.data(), bias.data(), words(result) + at * size, size);
      };
      const Measure by = input.isWide() ? measure(input.row<float>(at)) : measure(input.row<uint16_t>(at));
      if (recording) measured[at] = by;
    }
  });
  std::vector<napi_value> results{wrapTensor(*call.engine, call.env, std::move(result))};
  if (recording) results.push_back(wrapTensor(*call.engine, call.env, std::move(measures)));
  return makeArray(call.env, results);
}

// bfloat16NormBackward(input, gradient, weight, measures, centred): gradients of input, in its type, and in float32 of
// weight and bias, from one in bfloat16
napi_value bfloat16NormBackward(Call& call) {
  const at::AutoGradMode mode(false);
  const Rows input(call, 0, "input"), gradient(call, 1, "gradient");
  const int64_t size = input.size(), rows = input.count();
  const std::vector<float> weight = parameter(call, 2, "weight", size);
  const at::Tensor measures = call.tensor(3, "measures").contiguous();
  const bool centred = call.boolean(4, "centred");
  if (gradient.isWide() || gradient.tensor().sizes() != input.tensor().sizes()) {
    throw Refusal("gradient must be bfloat16 and of the input's shape, got " + describeTensor(gradient.tensor()) + " for " +
                  describeTensor(input.tensor()));
  }
  if (!isPlain(measures, at::kFloat) || measures.dim() != 2 || measures.size(0) != rows || measures.size(1) != 2) {
    throw Refusal("measures must be float32[" + std::to_string(rows) + ", 2], got " + describeTensor(measures));
  }
  const auto* measured = static_cast<const Measure*>(measures.data_ptr());
  const auto floats = input.tensor().options().dtype(at::kFloat);
  const at::Tensor ofInput = at::empty_like(input.tensor());
  // Added by blocks of rows, whoever works on them: the sums are the same with any number of threads.
  const int64_t blocks = (rows + kBlock - 1) / kBlock;
  const at::Tensor added = at::zeros({blocks, 2, size}, floats);
  auto* const shares = added.data_ptr<float>();
  at::parallel_for(0, blocks, std::max<int64_t>(1, kGrain / (kBlock * size)), [&](int64_t first, int64_t last) {
    for (int64_t at = first * kBlock; at < std::min(rows, last * kBlock); ++at) {
      float* share = shares + 2 * (at / kBlock) * size;
      const auto work = [&](auto* row, auto* result) {
        gradients(row, gradient.row<uint16_t>(at), measured[at], centred, weight.data(), result + at * size, share,
                  share + size, size);
      };
      input.isWide() ? work(input.row<float>(at), floatsOf(ofInput)) : work(input.row<uint16_t>(at), words(ofInput));
    }
  });
  at::Tensor ofParameters = at::empty({2, size}, floats);
  auto* sums = static_cast<float*>(ofParameters.data_ptr());
  std::fill(sums, sums + 2 * size, 0.0f);
  for (int64_t block = 0; block < blocks; ++block) {
    for (int64_t i = 0; i < 2 * size; ++i) sums[i] += shares[2 * block * size + i];
  }
  return makeArray(call.env, {wrapTensor(*call.engine, call.env, std::move(ofInput)),
                              wrapTensor(*call.engine, call.env, ofParameters.select(0, 0)),
                              wrapTensor(*call.engine, call.env, ofParameters.select(0, 1))});
}

const Exports exports{{"bfloat16Norm", bfloat16Norm}, {"bfloat16NormBackward", bfloat16NormBackward}};

}  // namespace

}  // namespace astra
