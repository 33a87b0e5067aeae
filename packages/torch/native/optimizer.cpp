// Adam and AdamW in place over float32 CPU tensors: one pass over memory for each parameter.
#include <ATen/Parallel.h>
#include <ATen/core/Tensor.h>

#include <cmath>

#include "engine.h"

namespace astra {

namespace {

struct Settings {
  float stepSize;        // learning rate / (1 - beta1^step)
  float beta1;
  float beta2;
  float epsilon;
  float inverseRoot2;    // 1 / sqrt(1 - beta2^step)
  float shrink;          // AdamW: 1 - learning rate * weight decay; Adam: 1
  float decay;           // Adam: weight decay added to the gradient; AdamW: 0
};

#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__)
__attribute__((target_clones("avx512f", "avx2", "default")))
#endif
void update(float* __restrict parameter, const float* __restrict gradient, float* __restrict first,
            float* __restrict second, int64_t count, const Settings& s) {
  const Settings settings = s;
  for (int64_t i = 0; i < count; ++i) {
    const float g = gradient[i] + settings.decay * parameter[i];
    const float m = first[i] + (1.0f - settings.beta1) * (g - first[i]);
    const float v = settings.beta2 * second[i] + (1.0f - settings.beta2) * g * g;
    first[i] = m;
    second[i] = v;
    const float denominator = std::sqrt(v) * settings.inverseRoot2 + settings.epsilon;
    parameter[i] = parameter[i] * settings.shrink - settings.stepSize * m / denominator;
  }
}

void requireUsable(const at::Tensor& tensor, const at::Tensor& parameter, const std::string& name) {
  if (!tensor.defined()) throw Refusal(name + " must not be null");
  if (tensor.scalar_type() != c10::kFloat || !tensor.device().is_cpu() || tensor.layout() != c10::kStrided ||
      !tensor.is_contiguous() || tensor.sizes() != parameter.sizes()) {
    throw Refusal(name + " must be a contiguous float32 CPU tensor of its parameter's shape, got " +
                  describeTensor(tensor));
  }
}

// fusedAdam([parameters], [gradients], [first moments], [second moments],
//           lr, beta1, beta2, epsilon, weight decay, step, decoupled decay)
napi_value fusedAdam(Call& call) {
  const auto parameters = call.tensors(0, "parameters");
  const auto gradients = call.tensors(1, "gradients");
  const auto firsts = call.tensors(2, "firstMoments");
  const auto seconds = call.tensors(3, "secondMoments");
  const double learningRate = call.number(4, "learningRate");
  const double beta1 = call.number(5, "beta1");
  const double beta2 = call.number(6, "beta2");
  const double epsilon = call.number(7, "epsilon");
  const double weightDecay = call.number(8, "weightDecay");
  const int64_t step = call.integer(9, "step");
  const bool decoupled = call.boolean(10, "decoupled");
  if (gradients.size() != parameters.size() || firsts.size() != parameters.size() ||
      seconds.size() != parameters.size()) {
    throw Refusal("needs one gradient and two moments for each parameter");
  }
  if (step < 1) throw Refusal("step must be at least 1, got " + std::to_string(step));
  for (size_t i = 0; i < parameters.size(); ++i) {
    const std::string place = "[" + std::to_string(i) + "]";
    if (!parameters[i].defined()) throw Refusal("parameters" + place + " must not be null");
    requireUsable(parameters[i], parameters[i], "parameters" + place);
    requireUsable(gradients[i], parameters[i], "gradients" + place);
    requireUsable(firsts[i], parameters[i], "firstMoments" + place);
    requireUsable(seconds[i], parameters[i], "secondMoments" + place);
    const void* addresses[] = {parameters[i].data_ptr(), gradients[i].data_ptr(), firsts[i].data_ptr(),
                               seconds[i].data_ptr()};
    for (int a = 0; a < 4; ++a) {
      for (int b = a + 1; b < 4; ++b) {
        if (addresses[a] == addresses[b] && parameters[i].numel() > 0) {
          throw Refusal("parameter, gradient and moments " + place + " must not share memory");
        }
      }
    }
  }
  Settings settings{};
  settings.stepSize = static_cast<float>(learningRate / (1.0 - std::pow(beta1, static_cast<double>(step))));
  settings.beta1 = static_cast<float>(beta1);
  settings.beta2 = static_cast<float>(beta2);
  settings.epsilon = static_cast<float>(epsilon);
  settings.inverseRoot2 = static_cast<float>(1.0 / std::sqrt(1.0 - std::pow(beta2, static_cast<double>(step))));
  settings.shrink = decoupled ? static_cast<float>(1.0 - learningRate * weightDecay) : 1.0f;
  settings.decay = decoupled ? 0.0f : static_cast<float>(weightDecay);
  for (size_t i = 0; i < parameters.size(); ++i) {
    auto* parameter = parameters[i].data_ptr<float>();
    const auto* gradient = gradients[i].data_ptr<float>();
    auto* first = firsts[i].data_ptr<float>();
    auto* second = seconds[i].data_ptr<float>();
    at::parallel_for(0, parameters[i].numel(), 1 << 15, [&](int64_t begin, int64_t end) {
      update(parameter + begin, gradient + begin, first + begin, second + begin, end - begin, settings);
    });
    // Autograd must notice that saved copies of these values are out of date.
    parameters[i].unsafeGetTensorImpl()->bump_version();
    firsts[i].unsafeGetTensorImpl()->bump_version();
    seconds[i].unsafeGetTensorImpl()->bump_version();
  }
  return makeUndefined(call.env);
}

}  // namespace

void defineOptimizer(napi_env env, napi_value exports, Engine* engine) {
  define(env, exports, engine, "fusedAdam", fusedAdam);
}

}  // namespace astra
