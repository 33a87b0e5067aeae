// Differentiable functions whose backward pass is JavaScript: a node of the autograd graph that calls back.
#include <ATen/core/grad_mode.h>
#include <c10/util/intrusive_ptr.h>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/functions/utils.h>

#include <thread>
#include <type_traits>

#include "engine.h"

namespace astra {

namespace {

using torch::autograd::variable_list;

class HandleScope {
 public:
  explicit HandleScope(napi_env env) : env_(env) { check(env, napi_open_handle_scope(env, &scope_), "a handle scope"); }
  ~HandleScope() { napi_close_handle_scope(env_, scope_); }

 private:
  napi_env env_;
  napi_handle_scope scope_ = nullptr;
};

// The message of the pending JavaScript exception, which is cleared: the autograd engine passes on only C++ exceptions.
std::string takeException(napi_env env) {
  napi_value error = nullptr, text = nullptr;
  if (napi_get_and_clear_last_exception(env, &error) != napi_ok) return "unknown error";
  napi_value message = error;
  bool isError = false;
  if (napi_is_error(env, error, &isError) == napi_ok && isError) {
    napi_get_named_property(env, error, "message", &message);
  }
  if (napi_coerce_to_string(env, message, &text) != napi_ok) return "unknown error";
  return readText(env, text, "message");
}

class Function final : public torch::autograd::Node {
 public:
  Function(Engine& engine, std::string title, std::vector<at::Tensor> saved, napi_value callback)
      : engine_(engine), alive_(engine.alive), title_(std::move(title)), saved_(std::move(saved)) {
    for (const at::Tensor& tensor : saved_) versions_.push_back(static_cast<int64_t>(tensor._version()));
    check(engine.environment, napi_create_reference(engine.environment, callback, 1, &callback_), "a reference");
  }

  ~Function() override { forget(); }

  std::string name() const override { return title_; }

  // The engine calls it after a backward pass whose graph is not retained.
  void release_variables() override {
    saved_.clear();
    forget();
  }

  variable_list apply(variable_list&& gradients) override {
    if (std::this_thread::get_id() != thread_) {
      throw Refusal(title_ + ": a backward pass in JavaScript runs on the thread of its tensors only, " +
                    "not on a device's own thread");
    }
    if (callback_ == nullptr) throw Refusal(title_ + ": the graph was freed by an earlier backward pass");
    if (at::GradMode::is_enabled()) throw Refusal(title_ + ": its gradients cannot be differentiated in turn");
    for (size_t i = 0; i < saved_.size(); ++i) {
      if (static_cast<int64_t>(saved_[i]._version()) != versions_[i]) {
        throw Refusal(title_ + ": a tensor that was saved for the backward pass has been changed in place since");
      }
    }
    const napi_env env = engine_.environment;
    HandleScope scope(env);
    napi_value callback = nullptr, receiver = nullptr;
    check(env, napi_get_reference_value(env, callback_, &callback), "a reference");
    check(env, napi_get_undefined(env, &receiver), "undefined");
    napi_value arguments[2] = {wrapTensors(engine_, engine_.environment, gradients), wrapTensors(engine_, engine_.environment, saved_)};

    // The callback delivers its results while their handles are valid; a nested backward pass delivers to its own list.
    variable_list results;
    variable_list* const outer = engine_.delivery;
    engine_.delivery = &results;
    napi_value ignored = nullptr;
    const napi_status status = napi_call_function(env, receiver, callback, 2, arguments, &ignored);
    engine_.delivery = outer;
    if (status != napi_ok) throw Refusal(title_ + ": " + takeException(env));
    if (results.size() != num_outputs()) {
      throw Refusal(title_ + ": backward must give a gradient, or null, for each of " +
                    std::to_string(num_outputs()) + " inputs, but gave " + std::to_string(results.size()));
    }
    return results;
  }

 private:
  // The reference belongs to the environment's thread; if the graph is freed on another thread, or after the
  // environment, it is left to the environment's cleanup.
  void forget() {
    if (callback_ != nullptr && *alive_ && std::this_thread::get_id() == thread_) {
      napi_delete_reference(engine_.environment, callback_);
    }
    callback_ = nullptr;
  }

  Engine& engine_;
  std::shared_ptr<bool> alive_;
  const std::string title_;
  std::vector<at::Tensor> saved_;
  std::vector<int64_t> versions_;  // changes in place are seen by these
  napi_ref callback_ = nullptr;
  const std::thread::id thread_ = std::this_thread::get_id();
};

// A node as graphs store it, which differs between versions of libtorch.
template <typename Made, typename... Arguments>
auto makeNode(Arguments&&... arguments) {
  if constexpr (std::is_base_of_v<c10::intrusive_ptr_target, Made>) {
    return c10::intrusive_ptr<torch::autograd::Node>(c10::make_intrusive<Made>(std::forward<Arguments>(arguments)...));
  } else {
    // deleteNode, found by argument-dependent lookup, frees a deep graph without deep recursion.
    return std::shared_ptr<torch::autograd::Node>(new Made(std::forward<Arguments>(arguments)...),
                                                  [](auto* node) { deleteNode(node); });
  }
}

// attachFunction(title, output, [inputs or null], [saved], (gradients, saved) => void): makes `output` the result of
// a function of `inputs`. The callback returns gradients through deliverGradients.
napi_value attachFunction(Call& call) {
  const std::string title = call.text(0, "title");
  at::Tensor output = call.tensor(1, "output");
  const auto inputs = call.tensors(2, "inputs");
  std::vector<at::Tensor> saved = call.tensors(3, "saved");
  napi_valuetype type = napi_undefined;
  napi_typeof(call.env, call.arguments[4], &type);
  if (call.count < 5 || type != napi_function) throw Refusal("backward must be a function");
  if (output.requires_grad() || output.is_view()) {
    throw Refusal("the output must be a new tensor without gradients, that is no view of another; clone() it");
  }
  if (!c10::isFloatingType(output.scalar_type())) {
    throw Refusal("the output must be of a floating-point type, got " + describeTensor(output));
  }
  for (at::Tensor& tensor : saved) {
    if (!tensor.defined()) throw Refusal("saved must not hold null");
    // Without its history: a saved output would otherwise keep the node that keeps it.
    tensor = tensor.detach();
  }
  const auto node = makeNode<Function>(*call.engine, title, std::move(saved), call.arguments[4]);
  node->set_next_edges(torch::autograd::collect_next_edges(inputs));
  torch::autograd::set_history(output, node);
  return makeUndefined(call.env);
}

// deliverGradients([gradient or null])
napi_value deliverGradients(Call& call) {
  if (call.engine->delivery == nullptr) throw Refusal("no backward pass waits for gradients");
  *call.engine->delivery = call.tensors(0, "gradients");
  return makeUndefined(call.env);
}

const Exports exports{{"attachFunction", attachFunction}, {"deliverGradients", deliverGradients}};

}  // namespace

}  // namespace astra
