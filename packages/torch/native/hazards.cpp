// Arguments for which libtorch's own code crashes the process or reads memory outside the tensor, found by calling
// every operator with generated arguments (docs/fuzzing.md): they are refused, or made contiguous, before it runs.
#include "hazards.h"

#include <ATen/ScalarOps.h>
#include <ATen/core/Tensor.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/result_type.h>

#include <algorithm>
#include <limits>

#include "engine.h"

namespace astra {

namespace {

constexpr double kMostElements = 9007199254740992.0;  // 2^53
constexpr int64_t kMostPieces = 1 << 20;

// The smallest integer divided by −1: the quotient does not fit, and the processor raises the signal of a division by
// 0. Shorter integers are computed in 32 bits, where it fits.
void checkDivision(torch::jit::Stack& stack) {
  const at::Tensor& dividend = stack[0].toTensor();
  if (!dividend.is_cpu() || !c10::isIntegralType(dividend.scalar_type(), /*includeBool=*/true)) return;
  const at::Tensor divisor = stack[1].isTensor() ? stack[1].toTensor() : c10::scalar_to_tensor(stack[1].toScalar());
  const c10::ScalarType type = stack[1].isTensor() ? at::result_type(dividend, divisor)
                                                   : at::result_type(dividend, stack[1].toScalar());
  if (type != c10::kInt && type != c10::kLong) return;
  const int64_t least = type == c10::kInt ? std::numeric_limits<int32_t>::min() : std::numeric_limits<int64_t>::min();
  const at::Tensor isMinusOne = divisor.to(type).eq(-1);
  if (!isMinusOne.any().item<bool>()) return;
  const at::Tensor isLeast = dividend.to(type).eq(least);
  if (!isLeast.any().item<bool>()) return;
  if (isLeast.logical_and(isMinusOne).any().item<bool>()) {
    throw Refusal(std::to_string(least) + " cannot be divided by -1: the quotient is no " +
                  (type == c10::kInt ? "int32" : "int64"));
  }
}

// The quotient of integers is an integer only with a rounding mode.
void checkRoundedDivision(torch::jit::Stack& stack) {
  if (stack.size() > 2 && !stack[2].isNone()) checkDivision(stack);
}

// Sizes that are truncated to 32 bits and then used as divisors.
void checkConvolution(torch::jit::Stack& stack) {
  const int64_t channels = stack[1].toTensor().dim() > 0 ? stack[1].toTensor().size(0) : 0, groups = stack[6].toInt();
  if (groups < 1 || groups > std::max<int64_t>(1, channels)) {
    throw Refusal("groups must be 1 … " + std::to_string(channels) + ", got " + std::to_string(groups));
  }
  const char* const names[] = {"stride", "padding", "dilation"};
  for (size_t i = 0; i < 3; ++i) {
    for (const int64_t number : stack[3 + i].toIntVector()) {
      if (number < 0 || number > std::numeric_limits<int32_t>::max()) {
        throw Refusal(std::string(names[i]) + " must be a number of 31 bits, got " + std::to_string(number));
      }
    }
  }
}

// For floating-point numbers it searches for the next one after `from`, and never returns if there is none.
void checkRandom(const torch::jit::Stack& stack, size_t from) {
  if (stack.size() <= from + 1 || !stack[from].isInt()) return;
  if (stack[from].toInt() == std::numeric_limits<int64_t>::max()) {
    throw Refusal("random numbers cannot begin at " + std::to_string(stack[from].toInt()));
  }
}

// Repetitions are summed without an overflow check, and the result is allocated by that sum.
void checkRepetitions(torch::jit::Stack& stack) {
  if (stack.size() < 2 || !stack[0].isTensor()) return;
  const auto elements = static_cast<double>(std::max<int64_t>(1, stack[0].toTensor().numel()));
  double most = 0;
  if (stack[1].isInt()) {
    most = static_cast<double>(stack[1].toInt()) * elements;
  } else {
    const at::Tensor& repeats = stack[1].toTensor();
    // Other types are refused by libtorch.
    if (!repeats.is_cpu() || (repeats.scalar_type() != c10::kLong && repeats.scalar_type() != c10::kInt)) return;
    most = repeats.to(c10::kDouble).clamp_min(0).sum().item<double>() * elements;
  }
  if (most > kMostElements) throw Refusal("the repetitions would be more elements than can be counted");
}

// For an empty dimension it creates as many pieces as requested, not as many as there are elements.
void checkChunks(torch::jit::Stack& stack) {
  if (stack.size() < 3 || !stack[0].isTensor() || !stack[1].isInt() || !stack[2].isInt()) return;
  const at::Tensor& whole = stack[0].toTensor();
  int64_t dim = stack[2].toInt();
  if (dim < 0) dim += whole.dim();
  if (dim < 0 || dim >= whole.dim() || whole.size(dim) > 0) return;
  if (stack[1].toInt() > kMostPieces) {
    throw Refusal("a dimension of size 0 cannot be cut into " + std::to_string(stack[1].toInt()) + " pieces; at most " +
                  std::to_string(kMostPieces));
  }
}

// It treats numbers along a dimension with a stride of 0 as adjacent, and reads beyond the single number (1.13 and
// 2.13).
void layOutDimension(torch::jit::Stack& stack) {
  if (stack.size() < 2 || !stack[0].isTensor() || !stack[1].isInt()) return;
  const at::Tensor& self = stack[0].toTensor();
  if (self.layout() != c10::kStrided) return;
  int64_t dim = stack[1].toInt();
  if (dim < 0) dim += self.dim();
  if (dim < 0 || dim >= self.dim() || self.size(dim) < 2 || self.stride(dim) != 0) return;
  stack[0] = self.contiguous();
}

}  // namespace

Hazard hazardOf(const std::string& name) {
  const std::string plain = name.back() == '_' ? name.substr(0, name.size() - 1) : name;
  if (plain == "aten::remainder" || plain == "aten::fmod" || plain == "aten::floor_divide") return checkDivision;
  if (plain == "aten::div") return checkRoundedDivision;
  if (plain == "aten::repeat_interleave") return checkRepetitions;
  if (plain == "aten::chunk") return checkChunks;
  if (plain == "aten::random") return [](torch::jit::Stack& stack) { checkRandom(stack, 1); };
  if (plain == "aten::randint") return [](torch::jit::Stack& stack) { checkRandom(stack, 0); };
  if (plain == "aten::conv1d") return checkConvolution;
  if (plain == "aten::median") return layOutDimension;
  return nullptr;
}

}  // namespace astra
