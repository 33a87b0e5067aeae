// Seeded generators of random numbers, whose state can be saved and restored.
#include <ATen/Context.h>
#include <ATen/core/Generator.h>
#include <ATen/core/Tensor.h>

#include <mutex>

#include "engine.h"

namespace astra {

namespace {

// If null, the CPU's default generator, from which operators without a generator draw.
at::Generator generatorOf(Call& call, size_t index) {
  if (call.absent(index)) return at::globalContext().defaultGenerator(c10::kCPU);
  return readGenerator(*call.engine, call.env, call.arguments[index], "generator");
}

// Whole numbers below 2^32: libtorch's CPU generator would drop bits of larger ones.
uint64_t seedOf(Call& call) { return static_cast<uint32_t>(call.integer(0, "seed")); }

// createGenerator(seed, device)
napi_value createGenerator(Call& call) {
  const uint64_t seed = seedOf(call);
  const c10::Device device(call.text(1, "device"));
  // A clone of the device's default generator has the right type on any build.
  at::Generator generator = at::globalContext().defaultGenerator(device).clone();
  generator.set_current_seed(seed);
  return makeNumber(call.env, call.engine->generators.add(generator));
}

// generatorState(generator or null)
napi_value generatorState(Call& call) {
  at::Generator generator = generatorOf(call, 0);
  const std::lock_guard<std::mutex> lock(generator.mutex());
  return wrapTensor(*call.engine, call.env, generator.get_state());
}

// setGeneratorState(generator or null, state)
napi_value setGeneratorState(Call& call) {
  at::Generator generator = generatorOf(call, 0);
  const at::Tensor state = call.tensor(1, "state");
  const std::lock_guard<std::mutex> lock(generator.mutex());
  generator.set_state(state.contiguous());
  return makeUndefined(call.env);
}

napi_value releaseGenerator(Call& call) {
  auto* slot = call.engine->generators.find(call.number(0, "generator"));
  if (slot != nullptr) call.engine->generators.take(slot);
  return makeUndefined(call.env);
}

// manualSeed(seed): the default generators of all devices, which operators without a generator draw from
napi_value manualSeed(Call& call) {
  at::manual_seed(seedOf(call));
  return makeUndefined(call.env);
}

const Exports exports{
    {"createGenerator", createGenerator}, {"generatorState", generatorState},
    {"setGeneratorState", setGeneratorState}, {"releaseGenerator", releaseGenerator}, {"manualSeed", manualSeed}};

}  // namespace

}  // namespace astra
