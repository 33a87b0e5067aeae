// Whole-optimizer loops over plain float32 memory: one pass instead of a dozen operators for each parameter.
#include <algorithm>
#include <cmath>
#include <cstdint>
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

constexpr int64_t kPiece = 1 << 15;  // numbers that a thread works on at a time

// One parameter in one step. Constants are computed in double: 1.0f - 0.999f has only five correct digits.
struct AdamStep {
  float* __restrict parameter;
  const float* __restrict gradient;
  float *__restrict expAvg, *__restrict expAvgSq;
  float penalty;         // weight decay that is added to the gradient (Adam); 0 for AdamW
  float shrink;          // 1 - lr * weight decay (AdamW); 1 for Adam
  float beta1Rest, beta2, beta2Rest;  // 1 - beta1, beta2, 1 - beta2
  float rootCorrection;  // sqrt(1 - beta2^step)
  float epsilon;
  float stepSize;        // lr / (1 - beta1^step)
};

ASTRA_VECTOR_LOOP(void, adam, (const AdamStep& step, int64_t begin, int64_t count), (step, begin, count)) {
  float *__restrict parameter = step.parameter + begin, *__restrict expAvg = step.expAvg + begin;
  float* __restrict expAvgSq = step.expAvgSq + begin;
  const float* __restrict gradient = step.gradient + begin;
  const auto work = [&](int64_t from, int64_t to) __attribute__((always_inline)) {
    for (int64_t i = from; i < to; ++i) {
      const float g = gradient[i] + step.penalty * parameter[i];
      const float m = expAvg[i] + step.beta1Rest * (g - expAvg[i]);
      const float v = expAvgSq[i] * step.beta2 + step.beta2Rest * g * g;
      const float denominator = std::sqrt(v) / step.rootCorrection + step.epsilon;
      expAvg[i] = m;
      expAvgSq[i] = v;
      parameter[i] = parameter[i] * step.shrink - step.stepSize * (m / denominator);
    }
  };
  fetchingAhead(count, work, parameter, gradient, expAvg, expAvgSq);
}

// Eight partial sums, so that the loop can be vectorised without a flag that reorders additions.
ASTRA_VECTOR_LOOP(double, sumOfSquares, (const float* values, int64_t count), (values, count)) {
  double partial[8] = {};
  int64_t i = 0;
  for (; i + 8 <= count; i += 8) {
    __builtin_prefetch(values + i + 1024);
#pragma omp simd
    for (int64_t j = 0; j < 8; ++j) {
      const double value = values[i + j];
      partial[j] += value * value;
    }
  }
  double sum = 0;
  for (double part : partial) sum += part;
  for (; i < count; ++i) sum += static_cast<double>(values[i]) * values[i];
  return sum;
}

void requirePlainFloat(const at::Tensor& tensor, const char* list, size_t index) {
  const std::string name = std::string(list) + "[" + std::to_string(index) + "]";
  if (!tensor.defined()) throw Refusal(name + " must not be null");
  if (!isPlain(tensor, at::kFloat) || !tensor.is_non_overlapping_and_dense()) {
    throw Refusal(name + " must be a dense float32 tensor on the CPU, got " + describeTensor(tensor));
  }
}

// fusedAdam(parameters, gradients, expAvgs, expAvgSqs, steps, lr, beta1, beta2, epsilon, weight decay, decoupled)
napi_value fusedAdam(Call& call) {
  const at::AutoGradMode mode(false);
  const std::vector<at::Tensor> parameters = call.tensors(0, "parameters");
  std::vector<at::Tensor> gradients = call.tensors(1, "gradients");
  const std::vector<at::Tensor> expAvgs = call.tensors(2, "expAvgs");
  const std::vector<at::Tensor> expAvgSqs = call.tensors(3, "expAvgSqs");
  const std::vector<int64_t> steps = call.integers(4, "steps");
  const double learningRate = call.number(5, "learningRate");
  const double beta1 = call.number(6, "beta1");
  const double beta2 = call.number(7, "beta2");
  const double epsilon = call.number(8, "epsilon");
  const double weightDecay = call.number(9, "weightDecay");
  const bool decoupled = call.boolean(10, "decoupled");

  const size_t count = parameters.size();
  if (gradients.size() != count || expAvgs.size() != count || expAvgSqs.size() != count || steps.size() != count) {
    throw Refusal("the five lists must be equally long");
  }
  std::vector<AdamStep> work;
  std::vector<int64_t> counts;
  for (size_t i = 0; i < count; ++i) {
    requirePlainFloat(parameters[i], "parameters", i);
    if (gradients[i].defined() && gradients[i].sizes() == parameters[i].sizes() &&
        gradients[i].strides() != parameters[i].strides()) {
      gradients[i] = at::empty_like(parameters[i]).copy_(gradients[i]);
    }
    requirePlainFloat(gradients[i], "gradients", i);
    requirePlainFloat(expAvgs[i], "expAvgs", i);
    requirePlainFloat(expAvgSqs[i], "expAvgSqs", i);
    const at::Tensor* const four[] = {&parameters[i], &gradients[i], &expAvgs[i], &expAvgSqs[i]};
    for (int a = 0; a < 4; ++a) {
      for (int b = a + 1; b < 4; ++b) {
        if (four[a]->sizes() != four[b]->sizes() || four[a]->strides() != four[b]->strides() ||
            (four[a]->numel() > 0 && four[a]->data_ptr() == four[b]->data_ptr())) {
          throw Refusal("parameter " + std::to_string(i) + ", its gradient and its state must lie alike and apart");
        }
      }
    }
    if (steps[i] < 1) throw Refusal("steps[" + std::to_string(i) + "] must be at least 1");
    work.push_back({parameters[i].data_ptr<float>(), gradients[i].data_ptr<float>(), expAvgs[i].data_ptr<float>(),
                    expAvgSqs[i].data_ptr<float>(), decoupled ? 0.0f : static_cast<float>(weightDecay),
                    decoupled ? static_cast<float>(1.0 - learningRate * weightDecay) : 1.0f,
                    static_cast<float>(1.0 - beta1), static_cast<float>(beta2), static_cast<float>(1.0 - beta2),
                    static_cast<float>(std::sqrt(1.0 - std::pow(beta2, steps[i]))), static_cast<float>(epsilon),
                    static_cast<float>(learningRate / (1.0 - std::pow(beta1, steps[i])))});
    counts.push_back(parameters[i].numel());
  }
  inPiecesOf(counts, 8 * kPiece, [&](size_t at, int64_t begin, int64_t end) {
    adam(work[at], begin, end - begin);
  });
  for (const std::vector<at::Tensor>* list : {&parameters, &expAvgs, &expAvgSqs}) {
    for (const at::Tensor& tensor : *list) noteWrite(tensor);
  }
  return makeUndefined(call.env);
}

// gradientNorm(gradients): Euclidean norm of all gradients as one vector, summed in double precision
napi_value gradientNorm(Call& call) {
  std::vector<at::Tensor> gradients = call.tensors(0, "gradients");
  for (size_t i = 0; i < gradients.size(); ++i) {
    if (gradients[i].defined() && !gradients[i].is_non_overlapping_and_dense()) gradients[i] = gradients[i].contiguous();
    requirePlainFloat(gradients[i], "gradients", i);
  }
  // Fixed blocks, added in order: the result does not depend on the number of threads.
  struct Block {
    const float* values;
    int64_t count;
  };
  std::vector<Block> blocks;
  for (const at::Tensor& gradient : gradients) {
    const float* values = gradient.data_ptr<float>();
    for (int64_t begin = 0; begin < gradient.numel(); begin += kPiece) {
      blocks.push_back({values + begin, std::min(kPiece, gradient.numel() - begin)});
    }
  }
  std::vector<double> sums(blocks.size());
  at::parallel_for(0, static_cast<int64_t>(blocks.size()), 1, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) sums[i] = sumOfSquares(blocks[i].values, blocks[i].count);
  });
  double sum = 0;
  for (double part : sums) sum += part;
  return makeNumber(call.env, std::sqrt(sum));
}

const Exports exports{{"fusedAdam", fusedAdam}, {"gradientNorm", gradientNorm}};

}  // namespace

}  // namespace astra
