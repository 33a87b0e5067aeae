// Attention of one new token a row in one pass over its cached keys and values.
#include <algorithm>
#include <cmath>
#include <vector>

#include <ATen/core/Tensor.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>

#include "engine.h"
#include "pieces.h"
#include "plain-tensor.h"
#include "vector-math.h"

namespace astra {
namespace {

bool anyRequiresGradient(std::initializer_list<const at::Tensor*> tensors) {
  return std::any_of(tensors.begin(), tensors.end(),
                     [](const at::Tensor* tensor) { return tensor->defined() && tensor->requires_grad(); });
}

bool isPlainBfloat16(const at::Tensor& tensor) { return isPlain(tensor, at::kBFloat16); }

constexpr int64_t kMostHeadSize = 256;

// One group of query heads and the keys and values that they share.
struct Heads {
  const uint16_t* query;  // [R, E], rows apart by queryStride
  const uint16_t* key;    // [S, E]
  const uint16_t* value;  // [S, E]
  const uint16_t* bias;   // [R or 1, S] or null
  uint16_t* result;       // [R, E]
  int64_t queryStride, keyStride, valueStride, biasStride;
  int64_t heads, columns, size;
  float scale;
  float* scores;  // room for S
};

ASTRA_VECTOR_CLONES
void attendOneToken(const Heads& work) {
  const int64_t size = work.size, columns = work.columns;
  float* __restrict scores = work.scores;
  for (int64_t head = 0; head < work.heads; ++head) {
    float query[kMostHeadSize], sums[kMostHeadSize];
    for (int64_t e = 0; e < size; ++e) {
      query[e] = widen(work.query[head * work.queryStride + e]) * work.scale;
      sums[e] = 0;
    }
    float greatest = -INFINITY;
    for (int64_t s = 0; s < columns; ++s) {
      const uint16_t* __restrict key = work.key + s * work.keyStride;
      float score = 0;
#pragma omp simd reduction(+ : score)
      for (int64_t e = 0; e < size; ++e) score += query[e] * widen(key[e]);
      scores[s] = score;
      // The values, and keys further on, come from memory while these keys are worked on.
      const uint16_t* value = work.value + s * work.valueStride;
      const uint16_t* later = key + std::min<int64_t>(16, columns - 1 - s) * work.keyStride;
      for (int64_t e = 0; e < size; e += 32) {
        __builtin_prefetch(value + e);
        __builtin_prefetch(later + e);
      }
    }
    if (work.bias != nullptr) {
      const uint16_t* __restrict bias = work.bias + head * work.biasStride;
#pragma omp simd
      for (int64_t s = 0; s < columns; ++s) scores[s] += widen(bias[s]);
    }
#pragma omp simd reduction(max : greatest)
    for (int64_t s = 0; s < columns; ++s) greatest = scores[s] > greatest ? scores[s] : greatest;
    float total = 0;
#pragma omp simd reduction(+ : total)
    for (int64_t s = 0; s < columns; ++s) {
      scores[s] = exponential(scores[s] - greatest);
      total += scores[s];
    }
    int64_t s = 0;
    for (; s + 4 <= columns; s += 4) {
      const uint16_t* __restrict v = work.value + s * work.valueStride;
      const int64_t stride = work.valueStride;
      const float a = scores[s], b = scores[s + 1], c = scores[s + 2], d = scores[s + 3];
#pragma omp simd
      for (int64_t e = 0; e < size; ++e) {
        sums[e] += (a * widen(v[e]) + b * widen(v[stride + e])) +
                   (c * widen(v[2 * stride + e]) + d * widen(v[3 * stride + e]));
      }
    }
    for (; s < columns; ++s) {
      const uint16_t* __restrict v = work.value + s * work.valueStride;
      for (int64_t e = 0; e < size; ++e) sums[e] += scores[s] * widen(v[e]);
    }
    for (int64_t e = 0; e < size; ++e) work.result[head * size + e] = narrow(sums[e] / total);
  }
}

// decodeAttention(recording, query, key, value, bias, scale): attention of one new token a row; null where it does not apply
napi_value decodeAttention(Call& call) {
  const at::Tensor& query = call.tensor(1, "query");
  const at::Tensor& key = call.tensor(2, "key");
  const at::Tensor& value = call.tensor(3, "value");
  const at::Tensor bias = call.absent(4) ? at::Tensor() : call.tensor(4, "bias");
  const double scale = call.number(5, "scale");
  const at::AutoGradMode mode(false);
  if (call.boolean(0, "recording") && anyRequiresGradient({&query, &key, &value, &bias})) return makeNull(call.env);
  for (const at::Tensor* tensor : {&query, &key, &value}) {
    if (!isPlainBfloat16(*tensor) || tensor->dim() != 4 || tensor->stride(3) != 1) return makeNull(call.env);
  }
  const int64_t batch = query.size(0), heads = query.size(1), size = query.size(3);
  const int64_t groups = key.size(1), columns = key.size(2);
  if (query.size(2) != 1 || heads < 1 || size < 1 || size > kMostHeadSize || columns < 1 || groups < 1 ||
      heads % groups != 0 || key.size(0) != batch || key.size(3) != size || value.sizes() != key.sizes()) {
    return makeNull(call.env);
  }
  const int64_t shared = heads / groups;
  if (bias.defined() &&
      (!isPlainBfloat16(bias) || bias.dim() != 3 || bias.stride(2) != 1 || bias.size(2) != columns ||
       (bias.size(0) != 1 && bias.size(0) != batch * groups) || (bias.size(1) != 1 && bias.size(1) != shared))) {
    return makeNull(call.env);
  }
  at::Tensor result = at::empty({batch, 1, heads * size}, query.options());
  const auto attend = [&](int64_t task, float* scores) {
    const int64_t row = task / groups, group = task % groups;
    Heads work{};
    work.query = words(query) + row * query.stride(0) + group * shared * query.stride(1);
    work.key = words(key) + row * key.stride(0) + group * key.stride(1);
    work.value = words(value) + row * value.stride(0) + group * value.stride(1);
    work.result = words(result) + (row * heads + group * shared) * size;
    work.queryStride = query.stride(1);
    work.keyStride = key.stride(2);
    work.valueStride = value.stride(2);
    if (bias.defined()) {
      work.bias = words(bias) + (bias.size(0) == 1 ? 0 : task) * bias.stride(0);
      work.biasStride = bias.size(1) == 1 ? 0 : bias.stride(1);
    }
    work.heads = shared;
    work.columns = columns;
    work.size = size;
    work.scale = static_cast<float>(scale);
    work.scores = scores;
    attendOneToken(work);
  };
  const int64_t piece = std::max<int64_t>(1, (int64_t{1} << 15) / (columns * size * shared));
  inPieces(batch * groups, piece, [&](int64_t from, int64_t to) {
    std::vector<float> scores(static_cast<size_t>(columns));
    for (int64_t task = from; task < to; ++task) attend(task, scores.data());
  });
  return wrapTensor(*call.engine, call.env, std::move(result));
}

}  // namespace

void defineAttention(napi_env env, napi_value exports, Engine* engine) {
  define(env, exports, engine, "decodeAttention", decodeAttention);
}

}  // namespace astra
