// For tests: operators without a kernel for libtorch's "meta" device, whose tensors have shapes, types and a device but
// no numbers, compute on zeros on the CPU. Combining CPU tensors with those of the device is refused, as with CUDA:
// code that runs on this device never uses the CPU explicitly.
#include <ATen/core/Tensor.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/ops/zeros.h>

#include <vector>

#include "engine.h"

namespace astra {
namespace {

at::Tensor onProcessor(const at::Tensor& tensor, const c10::OperatorHandle& op) {
  if (!tensor.defined()) return tensor;
  if (tensor.is_meta()) return at::zeros(tensor.sizes(), tensor.options().device(at::kCPU));
  // Single numbers are accepted from any device.
  if (tensor.dim() == 0) return tensor;
  throw Refusal(op.schema().name() + ": a tensor on the CPU beside tensors on the device: " + describeTensor(tensor));
}

c10::IValue onProcessor(const c10::IValue& value, const c10::OperatorHandle& op) {
  if (value.isTensor()) return onProcessor(value.toTensor(), op);
  if (value.isTensorList()) {
    std::vector<at::Tensor> tensors;
    for (const at::Tensor& tensor : value.toTensorVector()) tensors.push_back(onProcessor(tensor, op));
    return tensors;
  }
  if (value.isDevice()) return c10::Device(at::kCPU);
  if (value.isList()) {
    c10::List<c10::IValue> list = value.toList().copy();
    for (size_t at = 0; at < list.size(); ++at) list.set(at, onProcessor(list.get(at), op));
    return list;
  }
  return value;
}

at::Tensor onDevice(const at::Tensor& tensor) { return tensor.defined() ? tensor.to(at::kMeta) : tensor; }

void computeOnZeros(const c10::OperatorHandle& op, torch::jit::Stack* stack) {
  const c10::FunctionSchema& schema = op.schema();
  const size_t count = schema.arguments().size();
  const std::vector<c10::IValue> given(stack->end() - static_cast<int64_t>(count), stack->end());
  stack->erase(stack->end() - static_cast<int64_t>(count), stack->end());
  torch::jit::Stack moved;
  for (const c10::IValue& value : given) moved.push_back(onProcessor(value, op));
  op.redispatchBoxed(c10::DispatchKeySet(c10::DispatchKey::CPU), &moved);
  for (size_t at = 0; at < schema.returns().size(); ++at) {
    const c10::AliasInfo* alias = schema.returns()[at].alias_info();
    // An operator that writes in place, or into a given result tensor, returns that tensor.
    if (alias != nullptr && alias->isWrite()) {
      for (size_t argument = 0; argument < count; ++argument) {
        const c10::AliasInfo* own = schema.arguments()[argument].alias_info();
        if (own == nullptr || !(*own == *alias)) continue;
        const at::Tensor& written = given[argument].toTensor();
        if (written.sizes() != moved[at].toTensor().sizes()) written.resize_(moved[at].toTensor().sizes());
        stack->push_back(written);
      }
    } else if (moved[at].isTensor()) {
      stack->push_back(onDevice(moved[at].toTensor()));
    } else if (moved[at].isTensorList()) {
      std::vector<at::Tensor> tensors;
      for (const at::Tensor& tensor : moved[at].toTensorVector()) tensors.push_back(onDevice(tensor));
      stack->push_back(tensors);
    } else {
      stack->push_back(moved[at]);
    }
  }
}

// computeOnMeta(): from now on, for the rest of the process
napi_value computeOnMeta(Call& call) {
  using c10::DispatchKey;
  static std::vector<c10::RegistrationHandleRAII> kernels;
  c10::Dispatcher& dispatcher = c10::Dispatcher::singleton();
  if (kernels.empty()) {
    for (const c10::OperatorName& name : dispatcher.getAllOpNames()) {
      const auto op = dispatcher.findSchema(name);
      if (name.name.rfind("aten::", 0) != 0 || !op.has_value()) continue;
      const auto has = [&](DispatchKey key) { return op->hasKernelForDispatchKey(key); };
      if (!has(DispatchKey::CPU) || has(DispatchKey::Meta) || has(DispatchKey::CompositeExplicitAutograd) ||
          has(DispatchKey::CompositeImplicitAutograd)) {
        continue;
      }
      kernels.push_back(dispatcher.registerImpl(name, DispatchKey::Meta,
                                                c10::KernelFunction::makeFromBoxedFunction<&computeOnZeros>(), {},
                                                nullptr, "computeOnMeta"));
    }
  }
  return makeUndefined(call.env);
}

const Exports exports{{"computeOnMeta", computeOnMeta}};

}  // namespace

}  // namespace astra
