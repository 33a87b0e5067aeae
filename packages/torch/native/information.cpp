// What engine this is: versions, threads, devices, and which BLAS really was loaded.
#include <ATen/Context.h>
#include <ATen/Parallel.h>
#include <ATen/Version.h>
#include <ATen/detail/CUDAHooksInterface.h>
#include <dlfcn.h>
#include <link.h>
#include <torch/version.h>

#include <algorithm>
#include <cstring>

#include "engine.h"
#include "isa.h"

namespace astra {

namespace {

int collectLibrary(struct dl_phdr_info* library, size_t, void* data) {
  if (library->dlpi_name != nullptr && library->dlpi_name[0] != '\0') {
    static_cast<std::vector<std::string>*>(data)->emplace_back(library->dlpi_name);
  }
  return 0;
}

// The core name that OpenBLAS detected or was told ("SkylakeX"), by asking the loaded library itself.
std::string askOpenBlas(const std::string& path, const char* symbol) {
  void* library = dlopen(path.c_str(), RTLD_LAZY | RTLD_NOLOAD);
  if (library == nullptr) return "";
  auto function = reinterpret_cast<char* (*)()>(dlsym(library, symbol));
  std::string answer = function == nullptr ? "" : function();
  dlclose(library);
  return answer;
}

napi_value information(Call& call) {
  std::vector<std::string> libraries;
  dl_iterate_phdr(collectLibrary, &libraries);
  std::string torchPath, blasPath, coreName, configuration;
  for (const std::string& path : libraries) {
    const std::string file = path.substr(path.rfind('/') + 1);
    if (file.rfind("libtorch_cpu", 0) == 0) torchPath = path;
    if (file.find("blas") != std::string::npos || file.find("mkl_rt") != std::string::npos) {
      const std::string core = askOpenBlas(path, "openblas_get_corename");
      if (blasPath.empty() || !core.empty()) blasPath = path;
      if (!core.empty()) {
        coreName = core;
        configuration = askOpenBlas(path, "openblas_get_config");
      }
    }
  }
  return makeObject(call.env, {
      {"version", makeText(call.env, TORCH_VERSION)},
      {"library", makeText(call.env, torchPath)},
      {"blasLibrary", makeText(call.env, blasPath)},
      {"blasCore", makeText(call.env, coreName)},
      {"blasConfiguration", makeText(call.env, configuration)},
      {"mkl", makeBoolean(call.env, at::globalContext().hasMKL())},
      {"oneDnn", makeBoolean(call.env, at::globalContext().hasMKLDNN())},
      {"isa", makeText(call.env, astraIsaName(isa()))},
      {"bfloat16", makeBoolean(call.env, astraMultipliesBfloat16(isa()))},
      {"cuda", makeBoolean(call.env, at::globalContext().hasCUDA())},
      {"cudaDevices", makeNumber(call.env, at::globalContext().hasCUDA() ? at::detail::getCUDAHooks().getNumGPUs() : 0)},
      {"threads", makeNumber(call.env, at::get_num_threads())},
      {"parallel", makeText(call.env, at::get_parallel_info())},
      {"configuration", makeText(call.env, at::show_config())}});
}

napi_value threads(Call& call) { return makeNumber(call.env, at::get_num_threads()); }

napi_value setThreads(Call& call) {
  const int64_t count = call.integer(0, "threads");
  if (count < 1 || count > 4096) throw Refusal("threads must lie in 1 … 4096, got " + std::to_string(count));
  at::set_num_threads(static_cast<int>(count));
  return makeUndefined(call.env);
}

// synchronize(device): waits for a CUDA device's queue; nothing to wait for on the CPU
napi_value synchronize(Call& call) {
  const c10::Device device(call.text(0, "device"));
  if (!device.is_cuda()) return makeUndefined(call.env);
  if (!at::globalContext().hasCUDA()) throw Refusal("this libtorch has no CUDA");
  const auto& hooks = at::detail::getCUDAHooks();
  hooks.deviceSynchronize(device.has_index() ? device.index() : 0);
  return makeUndefined(call.env);
}

const Exports exports{
    {"information", information}, {"threads", threads}, {"setThreads", setThreads}, {"synchronize", synchronize}};

}  // namespace

}  // namespace astra
