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

ASTRA_VECTOR_LOOP(void, widenAll, (const uint16_t* __restrict from, float* __restrict to, int64_t count),
                  (from, to, count)) {
#pragma omp simd
  for (int64_t i = 0; i < count; ++i) to[i] = widen(from[i]);
}

ASTRA_VECTOR_LOOP(void, narrowAll, (const float* __restrict from, uint16_t* __restrict to, int64_t count),
                  (from, to, count)) {
#pragma omp simd
  for (int64_t i = 0; i < count; ++i) to[i] = narrow(from[i]);
}

// A matrix in either type, row by row as float32.
class Rows {
 public:
  Rows(Call& call, size_t index, const char* name) : Rows(call.tensor(index, name), name) {}
  Rows(const at::Tensor& tensor, const char* name) {
    const bool known = isPlain(tensor, at::kFloat) || isPlain(tensor, at::kBFloat16);
    if (!known || tensor.dim() < 1 || tensor.size(-1) < 1) {
      throw Refusal(std::string(name) + " must be float32[..., D] or bfloat16[..., D] on the CPU, got " +
                    describeTensor(tensor));
    }
    tensor_ = tensor.contiguous();
    size_ = tensor.size(-1);
  }

  int64_t size() const { return size_; }
  int64_t count() const { return tensor_.numel() / size_; }
  const at::Tensor& tensor() const { return tensor_; }

  // `room` holds a row where it has to be made.
  const float* row(int64_t at, std::vector<float>& room) const {
    if (tensor_.scalar_type() == at::kFloat) return static_cast<const float*>(tensor_.data_ptr()) + at * size_;
    room.resize(static_cast<size_t>(size_));
    widenAll(words(tensor_) + at * size_, room.data(), size_);
    return room.data();
  }

 private:
  at::Tensor tensor_;
  int64_t size_ = 0;
};

// float32, one number for each of the last dimension; zeros where there is none.
at::Tensor parameter(Call& call, size_t index, const char* name, int64_t size) {
  if (call.absent(index)) return at::zeros({size}, at::TensorOptions().dtype(at::kFloat));
  const Rows given(call, index, name);
  if (given.tensor().dim() != 1 || given.size() != size) {
    throw Refusal(std::string(name) + " must have " + std::to_string(size) + " numbers, got " +
                  describeTensor(given.tensor()));
  }
  return given.tensor().to(at::kFloat);
}

// What a row is measured by: its mean, or 0 where the norm is not centred, and what it is multiplied by.
struct Measure {
  float mean, scale;
};

ASTRA_VECTOR_LOOP(Measure, measure, (const float* __restrict row, int64_t size, bool centred, float epsilon),
                  (row, size, centred, epsilon)) {
  float mean = 0;
  if (centred) {
    float sum = 0;
#pragma omp simd reduction(+ : sum)
    for (int64_t i = 0; i < size; ++i) sum += row[i];
    mean = sum / static_cast<float>(size);
  }
  float squares = 0;
#pragma omp simd reduction(+ : squares)
  for (int64_t i = 0; i < size; ++i) squares += (row[i] - mean) * (row[i] - mean);
  return {mean, 1.0f / std::sqrt(squares / static_cast<float>(size) + epsilon)};
}

ASTRA_VECTOR_LOOP(void, normalise,
                  (const float* __restrict row, Measure by, const float* __restrict weight,
                   const float* __restrict bias, uint16_t* __restrict to, int64_t size),
                  (row, by, weight, bias, to, size)) {
#pragma omp simd
  for (int64_t i = 0; i < size; ++i) to[i] = narrow((row[i] - by.mean) * by.scale * weight[i] + bias[i]);
}

// Of the row; adds to those of weight and bias.
ASTRA_VECTOR_LOOP(void, gradients,
                  (const float* __restrict row, const float* __restrict arrived, Measure by, bool centred,
                   const float* __restrict weight, float* __restrict ofRow, float* __restrict ofWeight,
                   float* __restrict ofBias, int64_t size),
                  (row, arrived, by, centred, weight, ofRow, ofWeight, ofBias, size)) {
  float sum = 0, product = 0;
#pragma omp simd reduction(+ : sum, product)
  for (int64_t i = 0; i < size; ++i) {
    const float normal = (row[i] - by.mean) * by.scale;
    const float weighted = arrived[i] * weight[i];
    sum += weighted;
    product += weighted * normal;
    ofWeight[i] += arrived[i] * normal;
    ofBias[i] += arrived[i];
  }
  const float common = centred ? sum / static_cast<float>(size) : 0.0f;
  const float along = product / static_cast<float>(size);
#pragma omp simd
  for (int64_t i = 0; i < size; ++i) {
    const float normal = (row[i] - by.mean) * by.scale;
    ofRow[i] = by.scale * (arrived[i] * weight[i] - common - normal * along);
  }
}

// bfloat16Norm(input, weight, bias, centred, epsilon, recording): [result], and where gradients are recorded measures as
// float32 [rows, 2]
napi_value bfloat16Norm(Call& call) {
  const at::AutoGradMode mode(false);
  const Rows input(call, 0, "input");
  const int64_t size = input.size(), rows = input.count();
  const at::Tensor weight = parameter(call, 1, "weight", size), bias = parameter(call, 2, "bias", size);
  const auto *weights = weight.data_ptr<float>(), *biases = bias.data_ptr<float>();
  const bool centred = call.boolean(3, "centred");
  const auto epsilon = static_cast<float>(call.number(4, "epsilon"));
  at::Tensor result = at::empty(input.tensor().sizes(), input.tensor().options().dtype(at::kBFloat16));
  const bool recording = call.boolean(5, "recording");
  at::Tensor measures = at::empty({recording ? rows : 0, 2}, input.tensor().options().dtype(at::kFloat));
  auto* measured = static_cast<float*>(measures.data_ptr());
  at::parallel_for(0, rows, std::max<int64_t>(1, kGrain / size), [&](int64_t from, int64_t to) {
    std::vector<float> room;
    for (int64_t at = from; at < to; ++at) {
      const float* row = input.row(at, room);
      const Measure by = measure(row, size, centred, epsilon);
      normalise(row, by, weights, biases, words(result) + at * size, size);
      if (!recording) continue;
      measured[2 * at] = by.mean;
      measured[2 * at + 1] = by.scale;
    }
  });
  std::vector<napi_value> results{wrapTensor(*call.engine, call.env, std::move(result))};
  if (recording) results.push_back(wrapTensor(*call.engine, call.env, std::move(measures)));
  return makeArray(call.env, results);
}

// bfloat16NormBackward(input, gradient, weight, measures, centred): gradients of input, in its type, and in float32 of
// weight and bias
napi_value bfloat16NormBackward(Call& call) {
  const at::AutoGradMode mode(false);
  const Rows input(call, 0, "input"), gradient(call, 1, "gradient");
  const int64_t size = input.size(), rows = input.count();
  const at::Tensor weight = parameter(call, 2, "weight", size);
  const auto* weights = weight.data_ptr<float>();
  const at::Tensor measures = call.tensor(3, "measures").contiguous();
  const bool centred = call.boolean(4, "centred");
  if (gradient.tensor().sizes() != input.tensor().sizes()) {
    throw Refusal("input and gradient must have one shape, got " + describeTensor(input.tensor()) + " and " +
                  describeTensor(gradient.tensor()));
  }
  if (!isPlain(measures, at::kFloat) || measures.dim() != 2 || measures.size(0) != rows || measures.size(1) != 2) {
    throw Refusal("measures must be float32[" + std::to_string(rows) + ", 2], got " + describeTensor(measures));
  }
  const auto* measured = static_cast<const float*>(measures.data_ptr());
  const auto floats = input.tensor().options().dtype(at::kFloat);
  const bool isWide = input.tensor().scalar_type() == at::kFloat;
  at::Tensor ofInput = at::empty_like(input.tensor());
  // Added by blocks of rows, whoever works on them: the sums are the same with any number of threads.
  const int64_t blocks = (rows + kBlock - 1) / kBlock;
  const at::Tensor added = at::zeros({blocks, 2, size}, floats);
  auto* const shares = added.data_ptr<float>();
  at::parallel_for(0, blocks, std::max<int64_t>(1, kGrain / (kBlock * size)), [&](int64_t first, int64_t last) {
    std::vector<float> rowRoom, gradientRoom, made(static_cast<size_t>(isWide ? 0 : size));
    for (int64_t at = first * kBlock; at < std::min(rows, last * kBlock); ++at) {
      float* share = shares + 2 * (at / kBlock) * size;
      float* target = isWide ? static_cast<float*>(ofInput.data_ptr()) + at * size : made.data();
      gradients(input.row(at, rowRoom), gradient.row(at, gradientRoom), {measured[2 * at], measured[2 * at + 1]}, centred,
                weights, target, share, share + size, size);
      if (!isWide) narrowAll(made.data(), words(ofInput) + at * size, size);
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
