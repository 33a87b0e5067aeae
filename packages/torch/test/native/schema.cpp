// For tests, fuzzers and the generator of operator wrappers: libtorch's schema of an operator.
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/function_schema.h>

#include <sstream>

#include "engine.h"

namespace astra {
namespace {

// schema("aten::add.Tensor") → its text, or null if this libtorch has no such operator.
napi_value schema(Call& call) {
  const std::string name = call.text(0, "operator name");
  const size_t dot = name.find('.');
  const auto handle = c10::Dispatcher::singleton().findSchema(
      {name.substr(0, dot), dot == std::string::npos ? "" : name.substr(dot + 1)});
  if (!handle.has_value()) return makeNull(call.env);
  std::ostringstream text;
  text << handle->schema();
  return makeText(call.env, text.str());
}

const Exports exports{{"schema", schema}};

}  // namespace
}  // namespace astra
