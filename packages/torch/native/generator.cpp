// Seeded generators of random numbers, whose state can be taken out and put back.
#include <ATen/Context.h>
#include <ATen/core/Generator.h>
#include <ATen/core/Tensor.h>

#include <mutex>

#include "engine.h"

namespace astra {

namespace {

// The CPU's default generator, which operators without a generator draw from, where there is none.
at::Generator generatorOf(Call& call, size_t index) {
  if (call.absent(index)) return at::globalContext().defaultGenerator(c10::kCPU);
  return readGenerator(*call.engine, call.env, call.arguments[index], "generator");
}

uint64_t readSeed(Call& call, size_t index) {
  uint64_t seed = 0;
  bool lossless = false;
  if (index < call.count && napi_get_value_bigint_uint64(call.env, call.arguments[index], &seed, &lossless) == napi_ok) {
    if (!lossless) throw Refusal("seed must lie in 0 … 2^64 - 1");
    return seed;
  }
  const int64_t whole = call.integer(index, "seed");
  if (whole < 0) throw Refusal("seed must not be negative, got " + std::to_string(whole));
  return static_cast<uint64_t>(whole);
}

// createGenerator(seed, device)
napi_value createGenerator(Call& call) {
  const uint64_t seed = readSeed(call, 0);
  const c10::Device device(call.text(1, "device"));
  // A clone of the device's default generator is a generator of the right kind on any build.
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
  at::manual_seed(readSeed(call, 0));
  return makeUndefined(call.env);
}

const Exports exports{
    {"createGenerator", createGenerator}, {"generatorState", generatorState},
    {"setGeneratorState", setGeneratorState}, {"releaseGenerator", releaseGenerator}, {"manualSeed", manualSeed}};

}  // namespace

}  // namespace astra
