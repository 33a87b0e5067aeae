// Where tensors lie in memory, and passes that a GPU repeats as a whole (CUDA graphs) with the same tensors.
#include <ATen/core/Tensor.h>

#ifdef ASTRA_CUDA_GRAPHS
#include <ATen/cuda/CUDAGraph.h>
#include <ATen/detail/CUDAHooksInterface.h>
#include <c10/cuda/CUDAGuard.h>
#include <c10/cuda/CUDAStream.h>
#include <cuda_runtime_api.h>
#endif

#include <map>
#include <memory>

#include "engine.h"

namespace astra {

namespace {

// Tensors without memory, such as those of the meta device, are told apart by their storages.
double addressOf(const at::Tensor& tensor) {
  if (!tensor.has_storage()) return 0;
  const auto* storage = tensor.storage().unsafeGetStorageImpl();
  const void* data = tensor.storage().data();
  const auto offset = static_cast<double>(tensor.storage_offset()) * static_cast<double>(tensor.element_size());
  return static_cast<double>(reinterpret_cast<uintptr_t>(data == nullptr ? storage : data)) + offset;
}

// locate(handles): replaces each handle in a Float64Array by the address of the tensor's first number; -1 if there is
// no such tensor
napi_value locate(Call& call) {
  napi_typedarray_type type = napi_uint8_array;
  size_t count = 0;
  void* data = nullptr;
  if (napi_get_typedarray_info(call.env, call.argument(0, "handles"), &type, &count, &data, nullptr, nullptr) != napi_ok ||
      type != napi_float64_array) {
    throw Refusal("handles must be a Float64Array");
  }
  auto* const words = static_cast<double*>(data);
  for (size_t i = 0; i < count; ++i) {
    const auto* slot = call.engine->tensors.find(words[i]);
    words[i] = slot == nullptr ? -1 : addressOf(slot->value);
  }
  return makeUndefined(call.env);
}

// strides(tensor) → one number for each dimension
napi_value strides(Call& call) {
  const at::Tensor tensor = call.tensor(0, "tensor");
  std::vector<napi_value> numbers;
  for (const int64_t stride : tensor.strides()) numbers.push_back(makeNumber(call.env, static_cast<double>(stride)));
  return makeArray(call.env, numbers);
}

#ifdef ASTRA_CUDA_GRAPHS

// Those of one environment, whose thread this is. Never destroyed: CUDA may have ended before the thread does.
HandleTable<std::unique_ptr<at::cuda::CUDAGraph>>& graphs() {
  static thread_local auto* all = new HandleTable<std::unique_ptr<at::cuda::CUDAGraph>>();
  return *all;
}

// What all passes compute in between shares one pool of memory: they run one after another, and what is kept lies outside.
const auto& pool() {
  static const auto shared = at::cuda::graph_pool_handle();
  return shared;
}

// One for all captures on a device: libraries keep memory to work in for each stream that they meet.
const c10::cuda::CUDAStream& ownStream(c10::DeviceIndex device) {
  static thread_local std::map<c10::DeviceIndex, c10::cuda::CUDAStream> streams;
  const auto known = streams.find(device);
  if (known != streams.end()) return known->second;
  return streams.emplace(device, c10::cuda::getStreamFromPool(false, device)).first->second;
}

void invoke(Call& call, napi_value function) {
  napi_value receiver = nullptr, ignored = nullptr;
  check(call.env, napi_get_undefined(call.env, &receiver), "undefined");
  check(call.env, napi_call_function(call.env, receiver, function, 0, nullptr, &ignored), "the pass of a graph");
}

// captureGraph(device, warmUps, pass) → a handle. Calls `pass` the given number of times, then once more, in which its
// work is recorded instead of done. Everything runs on a stream of its own.
napi_value captureGraph(Call& call) {
  const c10::Device device(call.text(0, "device"));
  const int64_t warmUps = call.integer(1, "warmUps");
  const napi_value pass = call.argument(2, "pass");
  if (!device.is_cuda()) throw Refusal("device must be a CUDA device, got " + device.str());
  const long version = at::detail::getCUDAHooks().versionCUDART();
  // The layout of at::cuda::CUDAGraph depends on it.
  if (version != CUDART_VERSION) {
    throw Refusal("the engine was built with the headers of CUDA " + std::to_string(CUDART_VERSION) +
                  ", libtorch with those of " + std::to_string(version));
  }
  const c10::cuda::CUDAGuard onDevice(device);
  const auto before = c10::cuda::getCurrentCUDAStream();
  const auto own = ownStream(before.device_index());
  auto graph = std::make_unique<at::cuda::CUDAGraph>();
  before.synchronize();
  {
    const c10::cuda::CUDAStreamGuard onStream(own);
    for (int64_t time = 0; time < warmUps; ++time) invoke(call, pass);
    own.synchronize();
    // Other threads may use the device meanwhile.
    graph->capture_begin(pool(), cudaStreamCaptureModeThreadLocal);
    try {
      invoke(call, pass);
    } catch (...) {
      // The stream must not stay in capture; what went wrong first is what is told.
      try {
        graph->capture_end();
      } catch (const std::exception&) {
      }
      throw;
    }
    graph->capture_end();
  }
  return makeNumber(call.env, graphs().add(std::move(graph)));
}

// replayGraph(graph): on the current stream
napi_value replayGraph(Call& call) {
  auto* slot = graphs().find(call.number(0, "graph"));
  if (slot == nullptr) throw Refusal("the graph was disposed of");
  slot->value->replay();
  return makeUndefined(call.env);
}

napi_value releaseGraph(Call& call) {
  auto* slot = graphs().find(call.number(0, "graph"));
  if (slot != nullptr) graphs().take(slot);
  return makeUndefined(call.env);
}

#else

napi_value refuseGraph(Call&) {
  throw Refusal("this engine was built without CUDA graphs; they need a CUDA build of libtorch 2.4 or later, and CUDA's headers");
}

constexpr Body captureGraph = refuseGraph, replayGraph = refuseGraph, releaseGraph = refuseGraph;

#endif

const Exports exports{{"locate", locate}, {"strides", strides}, {"captureGraph", captureGraph},
                      {"replayGraph", replayGraph}, {"releaseGraph", releaseGraph}};

}  // namespace

}  // namespace astra
