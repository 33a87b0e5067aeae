// Information about the engine: versions, threads, devices, and its BLAS.
#include <ATen/Context.h>
#include <ATen/Parallel.h>
#include <ATen/Version.h>
#include <ATen/detail/CUDAHooksInterface.h>
#include <dlfcn.h>
#include <torch/version.h>

#include "engine.h"
#include "kernels/instruction-set.h"

namespace astra {

namespace {

// openBlas(path): for a loaded library, the core that OpenBLAS detected or was set to ("SkylakeX") and its build
// configuration; empty texts if it is not OpenBLAS
napi_value openBlas(Call& call) {
  void* const library = dlopen(call.text(0, "path").c_str(), RTLD_LAZY | RTLD_NOLOAD);
  const auto ask = [&](const char* symbol) {
    auto function = library == nullptr ? nullptr : reinterpret_cast<char* (*)()>(dlsym(library, symbol));
    return makeText(call.env, function == nullptr ? "" : function());
  };
  const napi_value answers = makeArray(call.env, {ask("openblas_get_corename"), ask("openblas_get_config")});
  if (library != nullptr) dlclose(library);
  return answers;
}

napi_value information(Call& call) {
  return makeObject(call.env, {
      {"version", makeText(call.env, TORCH_VERSION)},
      {"mkl", makeBoolean(call.env, at::globalContext().hasMKL())},
      {"oneDnn", makeBoolean(call.env, at::globalContext().hasMKLDNN())},
      {"isa", makeText(call.env, instructionSetName())},
      {"bfloat16", makeBoolean(call.env, multipliesBfloat16())},
      {"cuda", makeBoolean(call.env, at::globalContext().hasCUDA())},
      {"cudaDevices", makeNumber(call.env, at::globalContext().hasCUDA() ? at::detail::getCUDAHooks().getNumGPUs() : 0)},
      {"configuration", makeText(call.env, at::show_config())}});
}

napi_value threads(Call& call) { return makeNumber(call.env, at::get_num_threads()); }

napi_value setThreads(Call& call) {
  const int64_t count = call.integer(0, "threads");
  if (count < 1 || count > 4096) throw Refusal("threads must lie in 1 … 4096, got " + std::to_string(count));
  at::set_num_threads(static_cast<int>(count));
  return makeUndefined(call.env);
}

// synchronize(device): waits for a CUDA device's queue; returns immediately for the CPU
napi_value synchronize(Call& call) {
  const c10::Device device(call.text(0, "device"));
  if (!device.is_cuda()) return makeUndefined(call.env);
  if (!at::globalContext().hasCUDA()) throw Refusal("this libtorch has no CUDA");
  const auto& hooks = at::detail::getCUDAHooks();
  hooks.deviceSynchronize(device.has_index() ? device.index() : 0);
  return makeUndefined(call.env);
}

const Exports exports{
    {"information", information}, {"openBlas", openBlas}, {"threads", threads}, {"setThreads", setThreads}, {"synchronize", synchronize}};

}  // namespace

}  // namespace astra
