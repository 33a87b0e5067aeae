// Gradients: leaves, backward, and gradients with respect to given inputs.
#include <ATen/core/Tensor.h>
#include <ATen/core/grad_mode.h>
#include <torch/csrc/autograd/autograd.h>

#include "engine.h"

namespace astra {

namespace {

napi_value requiresGrad(Call& call) { return makeBoolean(call.env, call.tensor(0, "tensor").requires_grad()); }

napi_value isLeaf(Call& call) { return makeBoolean(call.env, call.tensor(0, "tensor").is_leaf()); }

// version(tensor): number of in-place changes by any operator
napi_value version(Call& call) {
  return makeNumber(call.env, static_cast<double>(call.tensor(0, "tensor")._version()));
}

napi_value setRequiresGrad(Call& call) {
  const at::Tensor tensor = call.tensor(0, "tensor");
  const bool value = call.boolean(1, "value");
  if (!value && !tensor.is_leaf()) {
    throw Refusal("only leaves can stop requiring gradients; use detach()");
  }
  if (value && !c10::isFloatingType(tensor.scalar_type())) {
    throw Refusal("only floating-point tensors can require gradients, got " + describeTensor(tensor));
  }
  tensor.set_requires_grad(value);
  return makeUndefined(call.env);
}

// gradient(tensor, known) → null, `known` itself if it is still the gradient, or a new handle
napi_value gradient(Call& call) {
  const at::Tensor tensor = call.tensor(0, "tensor");
  if (!tensor.is_leaf()) return makeNull(call.env);
  at::Tensor current = tensor.grad();
  if (!current.defined()) return makeNull(call.env);
  // The sparse gradient of an embedding, to which nothing else was added: callers get dense gradients.
  if (current.is_sparse()) tensor.mutable_grad() = current = current.to_dense();
  if (!call.absent(1)) {
    auto* slot = call.engine->tensors.find(call.number(1, "known"));
    if (slot != nullptr && slot->value.unsafeGetTensorImpl() == current.unsafeGetTensorImpl()) {
      return call.arguments[1];
    }
  }
  return wrapTensor(*call.engine, call.env, current);
}

napi_value setGradient(Call& call) {
  const at::Tensor tensor = call.tensor(0, "tensor");
  if (!tensor.is_leaf()) throw Refusal("only a leaf holds a gradient");
  if (call.absent(1)) {
    tensor.mutable_grad() = at::Tensor();
    return makeUndefined(call.env);
  }
  const at::Tensor value = call.tensor(1, "gradient");
  if (value.sizes() != tensor.sizes() || value.scalar_type() != tensor.scalar_type() ||
      value.device() != tensor.device()) {
    throw Refusal("the gradient must match the tensor, " + describeTensor(tensor) + ", got " + describeTensor(value));
  }
  if (value.unsafeGetTensorImpl() == tensor.unsafeGetTensorImpl()) {
    throw Refusal("a tensor cannot be its own gradient");
  }
  tensor.mutable_grad() = value;
  return makeUndefined(call.env);
}

void requireGraph(const std::vector<at::Tensor>& outputs, const char* name) {
  for (size_t i = 0; i < outputs.size(); ++i) {
    if (!outputs[i].defined()) throw Refusal(std::string(name) + " must not hold null");
    if (!outputs[i].requires_grad()) {
      throw Refusal(std::string(name) + "[" + std::to_string(i) + "], " + describeTensor(outputs[i]) +
                    ", does not depend on any tensor that requires gradients");
    }
  }
}

// backward([outputs], [gradients or null], retain graph)
napi_value backward(Call& call) {
  const auto outputs = call.tensors(0, "outputs");
  const auto gradients = call.tensors(1, "gradients");
  const bool retain = call.boolean(2, "retainGraph");
  requireGraph(outputs, "outputs");
  if (gradients.size() != outputs.size()) throw Refusal("needs one gradient, or null, for each output");
  c10::AutoGradMode mode(true);
  torch::autograd::backward(outputs, gradients, retain, /*create_graph=*/false);
  return makeUndefined(call.env);
}

// gradients([outputs], [inputs], [output gradients or null], retain, create graph, allow unused) → [handle or null]
napi_value gradients(Call& call) {
  const auto outputs = call.tensors(0, "outputs");
  const auto inputs = call.tensors(1, "inputs");
  const auto outputGradients = call.tensors(2, "gradOutputs");
  const bool retain = call.boolean(3, "retainGraph");
  const bool create = call.boolean(4, "createGraph");
  const bool allowUnused = call.boolean(5, "allowUnused");
  requireGraph(outputs, "outputs");
  requireGraph(inputs, "inputs");
  if (outputGradients.size() != outputs.size()) throw Refusal("needs one gradient, or null, for each output");
  c10::AutoGradMode mode(true);
  const auto results = torch::autograd::grad(outputs, inputs, outputGradients, retain, create, allowUnused);
  std::vector<napi_value> handles;
  for (const at::Tensor& result : results) {
    handles.push_back(wrapTensor(*call.engine, call.env, result.defined() && result.is_sparse() ? result.to_dense() : result));
  }
  return makeArray(call.env, handles);
}

const Exports exports{
    {"requiresGrad", requiresGrad}, {"isLeaf", isLeaf}, {"version", version}, {"setRequiresGrad", setRequiresGrad},
    {"gradient", gradient}, {"setGradient", setGradient}, {"backward", backward}, {"gradients", gradients}};

}  // namespace

}  // namespace astra
