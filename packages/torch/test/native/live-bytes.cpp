// For tests: memory of the tensors that JavaScript holds.
#include <ATen/core/Tensor.h>

#include <unordered_set>

#include "engine.h"

namespace astra {
namespace {

// liveBytes(): bytes of the distinct storages that live handles, and the gradients of leaves, refer to.
napi_value liveBytes(Call& call) {
  std::unordered_set<const void*> seen;
  double bytes = 0;
  const auto add = [&](const at::Tensor& tensor) {
    if (!tensor.defined() || !tensor.has_storage()) return;
    const auto* storage = tensor.storage().unsafeGetStorageImpl();
    if (seen.insert(storage).second) bytes += static_cast<double>(storage->nbytes());
  };
  for (const auto& slot : call.engine->tensors.slots()) {
    if (!slot.used || !slot.value.defined()) continue;
    add(slot.value);
    if (slot.value.is_leaf() && slot.value.requires_grad()) add(slot.value.grad());
  }
  return makeNumber(call.env, bytes);
}

const Exports exports{{"liveBytes", liveBytes}};

}  // namespace
}  // namespace astra
