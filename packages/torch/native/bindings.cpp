// Entry point of the addon.
#include "dispatch.h"
#include "engine.h"
#include "kernels/instruction-set.h"

#include <c10/util/Logging.h>

#include <functional>
#include <string>

namespace astra {

Engine::Engine() = default;
Engine::~Engine() { *alive = false; }

}  // namespace astra

NAPI_MODULE_INIT() {
  auto* engine = new astra::Engine();
  engine->environment = env;
  // Tensors of an environment are freed with it; libtorch's statics outlive every environment.
  napi_set_instance_data(
      env, engine, [](napi_env, void* data, void*) { delete static_cast<astra::Engine*>(data); }, nullptr);
  try {
    astra::keepLibtorchWithinInstructionSet();
    // libtorch would unwind the C++ stack for each error, which takes a millisecond, for a text that is never shown.
    c10::SetStackTraceFetcher(std::function<std::string()>([] { return std::string(); }));
    astra::takeOverCpuMemory();
    astra::define(env, exports, engine);
  } catch (const std::exception& error) {
    napi_throw_error(env, nullptr, error.what());
    return nullptr;
  } catch (...) {
    napi_throw_error(env, nullptr, "internal: the addon could not be initialised");
    return nullptr;
  }
  return exports;
}
