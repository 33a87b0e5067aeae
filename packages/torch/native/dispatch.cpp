// Any ATen operator by name: JavaScript values to IValues by the schema's types, a boxed call, and back.
#include "dispatch.h"

#include <ATen/core/List.h>
#include <ATen/core/function_schema.h>
#include <ATen/core/grad_mode.h>
#include <ATen/core/jit_type.h>
#include <c10/util/Optional.h>

#include <cmath>
#include <sstream>

#include "engine.h"

namespace astra {

namespace {

// Reads the kind of `type` into `parameter`. Types of the schema text ("real types") tell ScalarType from int.
Kind kindOf(const c10::Type& type) {
  switch (type.kind()) {
    case c10::TypeKind::TensorType: return Kind::Tensor;
    case c10::TypeKind::NumberType: return Kind::Scalar;
    case c10::TypeKind::IntType:
    case c10::TypeKind::SymIntType: return Kind::Integer;
    case c10::TypeKind::FloatType: return Kind::Float;
    case c10::TypeKind::BoolType: return Kind::Boolean;
    case c10::TypeKind::StringType: return Kind::Text;
    case c10::TypeKind::ScalarTypeType: return Kind::ScalarType;
    case c10::TypeKind::LayoutType: return Kind::Layout;
    case c10::TypeKind::MemoryFormatType: return Kind::MemoryFormat;
    case c10::TypeKind::DeviceObjType: return Kind::Device;
    case c10::TypeKind::GeneratorType: return Kind::Generator;
    default: return Kind::Unsupported;
  }
}

Parameter readParameter(const c10::Argument& argument) {
  Parameter parameter;
  parameter.name = argument.name();
  parameter.keywordOnly = argument.kwarg_only();
  if (argument.default_value().has_value()) {
    parameter.hasDefault = true;
    parameter.defaultValue = *argument.default_value();
  }
  c10::TypePtr type = argument.real_type();
  if (type->kind() == c10::TypeKind::OptionalType) {
    parameter.optional = true;
    type = type->expectRef<c10::OptionalType>().getElementType();
  }
  if (type->kind() == c10::TypeKind::ListType) {
    parameter.list = true;
    parameter.fixedLength = argument.N().value_or(0);
    type = type->expectRef<c10::ListType>().getElementType();
    if (type->kind() == c10::TypeKind::OptionalType) {
      parameter.elementOptional = true;
      type = type->expectRef<c10::OptionalType>().getElementType();
    }
  }
  parameter.kind = kindOf(*type);
  return parameter;
}

void resolve(Operator& op) {
  auto handle = c10::Dispatcher::singleton().findSchema({op.name, op.overload});
  if (!handle.has_value()) throw Refusal("this libtorch has no operator of this name");
  const auto& schema = handle->schema();
  op.parameters.clear();
  for (const auto& argument : schema.arguments()) {
    op.parameters.push_back(readParameter(argument));
    if (op.parameters.back().kind == Kind::Unsupported) {
      throw Refusal("argument '" + argument.name() + "' has a type that cannot be passed: " +
                    argument.real_type()->str());
    }
  }
  op.returnsArgument.clear();
  for (const auto& result : schema.returns()) {
    op.returnsArgument.push_back(result.alias_info() != nullptr && result.alias_info()->isWrite());
  }
  op.hazard = hazardOf(op.name);
  op.handle = handle;
  op.resolved = true;
}

at::Generator readGenerator(Engine& engine, napi_env env, napi_value value, const std::string& name) {
  double handle = 0;
  if (napi_get_value_double(env, value, &handle) != napi_ok) throw Refusal(name + " must be a Generator");
  auto* slot = engine.generators.find(handle);
  if (slot == nullptr) throw Refusal(name + " has been disposed");
  return slot->value;
}

c10::Scalar readScalar(napi_env env, napi_value value, const std::string& name) {
  double number = 0;
  if (napi_get_value_double(env, value, &number) == napi_ok) {
    // A whole number stays an integer, so that integer tensors keep their dtype.
    if (number == std::floor(number) && std::fabs(number) <= 9007199254740991.0) {
      return c10::Scalar(static_cast<int64_t>(number));
    }
    return c10::Scalar(number);
  }
  bool flag = false;
  if (napi_get_value_bool(env, value, &flag) == napi_ok) return c10::Scalar(flag);
  int64_t big = 0;
  bool lossless = false;
  if (napi_get_value_bigint_int64(env, value, &big, &lossless) == napi_ok && lossless) return c10::Scalar(big);
  throw Refusal(name + " must be a number, a boolean or a bigint of 64 bits");
}

int64_t readScalarType(napi_env env, napi_value value, const std::string& name) {
  const int64_t code = readInteger(env, value, name);
  switch (code) {
    case 0: case 1: case 2: case 3: case 4: case 5: case 6: case 7: case 11: case 15: return code;
    default: throw Refusal(name + " must be a supported dtype, got code " + std::to_string(code));
  }
}

double readFloat(napi_env env, napi_value value, const std::string& name) {
  double number = 0;
  if (napi_get_value_double(env, value, &number) != napi_ok) throw Refusal(name + " must be a number");
  return number;
}

bool readBoolean(napi_env env, napi_value value, const std::string& name) {
  bool flag = false;
  if (napi_get_value_bool(env, value, &flag) != napi_ok) throw Refusal(name + " must be a boolean");
  return flag;
}

c10::IValue readElement(Engine& engine, napi_env env, napi_value value, Kind kind, const std::string& name) {
  switch (kind) {
    case Kind::Tensor: return readTensor(engine, env, value, name);
    case Kind::Scalar: return readScalar(env, value, name);
    case Kind::Integer: return readInteger(env, value, name);
    case Kind::Float: return readFloat(env, value, name);
    case Kind::Boolean: return readBoolean(env, value, name);
    case Kind::Text: return readText(env, value, name);
    case Kind::ScalarType: return readScalarType(env, value, name);
    case Kind::MemoryFormat: {
      const int64_t code = readInteger(env, value, name);
      if (code < 0 || code > 1) throw Refusal(name + " must be 0 (contiguous) or 1 (preserve)");
      return code;
    }
    case Kind::Layout: throw Refusal(name + " cannot be set: layouts other than strided are not offered");
    case Kind::Device: return c10::Device(readText(env, value, name));
    case Kind::Generator: return readGenerator(engine, env, value, name);
    case Kind::Unsupported: break;
  }
  throw Refusal(name + " has a type that cannot be passed");
}

template <class T, class Read>
c10::List<T> readList(napi_env env, napi_value value, uint32_t length, const std::string& name, Read read) {
  c10::List<T> list;
  list.reserve(length);
  for (uint32_t i = 0; i < length; ++i) {
    napi_value element = nullptr;
    check(env, napi_get_element(env, value, i, &element), "an array element");
    list.push_back(read(element, i));
  }
  return list;
}

constexpr uint32_t kLongestList = 1u << 24;

c10::IValue readWholeList(Engine& engine, napi_env env, napi_value value, const Parameter& parameter) {
  const std::string& name = parameter.name;
  bool isArray = false;
  napi_is_array(env, value, &isArray);
  if (!isArray) {
    // PyTorch's habit: one number where a list of fixed length is expected stands for every element of it.
    if (parameter.fixedLength > 0 && parameter.kind == Kind::Integer) {
      const int64_t number = readInteger(env, value, name);
      c10::List<int64_t> list;
      for (int64_t i = 0; i < parameter.fixedLength; ++i) list.push_back(number);
      return list;
    }
    throw Refusal(name + " must be an array");
  }
  uint32_t length = 0;
  check(env, napi_get_array_length(env, value, &length), "an array");
  if (length > kLongestList) throw Refusal(name + " is too long");
  const auto itemName = [&](uint32_t i) { return name + "[" + std::to_string(i) + "]"; };
  switch (parameter.kind) {
    case Kind::Integer:
      return readList<int64_t>(env, value, length, name,
                               [&](napi_value item, uint32_t) { return readInteger(env, item, name); });
    case Kind::Float:
      return readList<double>(env, value, length, name,
                              [&](napi_value item, uint32_t) { return readFloat(env, item, name); });
    case Kind::Boolean:
      return readList<bool>(env, value, length, name,
                            [&](napi_value item, uint32_t) { return readBoolean(env, item, name); });
    case Kind::Scalar:
      return readList<c10::Scalar>(env, value, length, name, [&](napi_value item, uint32_t) {
        return readScalar(env, item, name);
      });
    case Kind::Tensor:
      if (parameter.elementOptional) {
        return readList<c10::optional<at::Tensor>>(
            env, value, length, name, [&](napi_value item, uint32_t i) -> c10::optional<at::Tensor> {
              napi_valuetype type = napi_undefined;
              napi_typeof(env, item, &type);
              if (type == napi_null || type == napi_undefined) return c10::nullopt;
              return readTensor(engine, env, item, itemName(i));
            });
      }
      return readList<at::Tensor>(env, value, length, name, [&](napi_value item, uint32_t i) {
        return readTensor(engine, env, item, itemName(i));
      });
    default: throw Refusal(name + " is a list that cannot be passed");
  }
}

c10::IValue readArgument(Engine& engine, napi_env env, napi_value value, const Parameter& parameter) {
  napi_valuetype type = napi_undefined;
  if (value != nullptr) napi_typeof(env, value, &type);
  if (type == napi_undefined) {
    if (parameter.hasDefault) return parameter.defaultValue;
    if (parameter.optional) return c10::IValue();
    throw Refusal("argument '" + parameter.name + "' is required");
  }
  if (type == napi_null) {
    if (parameter.optional) return c10::IValue();
    throw Refusal("argument '" + parameter.name + "' must not be null");
  }
  if (parameter.list) return readWholeList(engine, env, value, parameter);
  return readElement(engine, env, value, parameter.kind, parameter.name);
}

napi_value writeValue(Engine& engine, napi_env env, const c10::IValue& value) {
  if (value.isTensor()) return wrapTensor(engine, env, value.toTensor());
  if (value.isNone()) return makeNull(env);
  if (value.isInt()) return makeInteger(env, value.toInt());
  if (value.isDouble()) return makeNumber(env, value.toDouble());
  if (value.isBool()) return makeBoolean(env, value.toBool());
  if (value.isString()) return makeText(env, value.toStringRef());
  std::vector<napi_value> items;
  if (value.isTensorList()) {
    for (const at::Tensor& item : value.toTensorVector()) items.push_back(wrapTensor(engine, env, item));
    return makeArray(env, items);
  }
  if (value.isIntList()) {
    for (const int64_t item : value.toIntVector()) items.push_back(makeInteger(env, item));
    return makeArray(env, items);
  }
  if (value.isList()) {
    for (const c10::IValue& item : value.toListRef()) items.push_back(writeValue(engine, env, item));
    return makeArray(env, items);
  }
  throw Refusal("returned a value of type " + value.tagKind() + ", which cannot be passed to JavaScript");
}

// "(self: float32[2, 3], dim: 5)": what the failed call was given.
std::string describeArguments(Call& call, const Operator& op) {
  std::ostringstream text;
  text << " (given";
  for (size_t i = 0; i < op.parameters.size() && i + 2 < call.count; ++i) {
    const Parameter& parameter = op.parameters[i];
    napi_value value = call.arguments[i + 2];
    napi_valuetype type = napi_undefined;
    napi_typeof(call.env, value, &type);
    if (type == napi_undefined) continue;
    text << (i == 0 ? " " : ", ") << parameter.name << ": ";
    double handle = 0;
    if (parameter.kind == Kind::Tensor && !parameter.list &&
        napi_get_value_double(call.env, value, &handle) == napi_ok) {
      auto* slot = call.engine->tensors.find(handle);
      text << (slot == nullptr ? std::string("a disposed tensor") : describeTensor(slot->value));
      continue;
    }
    bool isArray = false;
    napi_is_array(call.env, value, &isArray);
    if (isArray) {
      uint32_t length = 0;
      napi_get_array_length(call.env, value, &length);
      text << "[";
      for (uint32_t k = 0; k < length && k < 8; ++k) {
        napi_value item = nullptr;
        napi_get_element(call.env, value, k, &item);
        if (item != nullptr && napi_get_value_double(call.env, item, &handle) == napi_ok) {
          auto* slot = parameter.kind == Kind::Tensor ? call.engine->tensors.find(handle) : nullptr;
          text << (k == 0 ? "" : ", ");
          if (parameter.kind == Kind::Tensor) {
            text << (slot == nullptr ? std::string("a disposed tensor") : describeTensor(slot->value));
          } else {
            text << handle;
          }
        }
      }
      text << (length > 8 ? ", …]" : "]");
      continue;
    }
    if (type == napi_object || type == napi_function || type == napi_symbol || type == napi_external) {
      text << "an object";
      continue;
    }
    napi_value shown = nullptr;
    if (napi_coerce_to_string(call.env, value, &shown) == napi_ok) {
      text << readText(call.env, shown, parameter.name).substr(0, 60);
    }
  }
  text << ")";
  return text.str();
}

// call(operator index, grad mode, ...arguments in schema order; undefined = the schema's default)
napi_value call(Call& call) {
  const int64_t index = call.integer(0, "operator");
  if (index < 0 || static_cast<size_t>(index) >= call.engine->operators.size()) {
    throw Refusal("internal: operator " + std::to_string(index) + " was never registered");
  }
  Operator& op = *call.engine->operators[index];
  call.where = op.overload.empty() ? op.name : op.name + "." + op.overload;
  const bool gradients = call.boolean(1, "grad mode");
  if (!op.resolved) resolve(op);
  for (size_t i = op.parameters.size() + 2; i < call.count; ++i) {
    if (!call.absent(i)) {
      throw Refusal("takes at most " + std::to_string(op.parameters.size()) + " arguments, got " +
                    std::to_string(i - 1));
    }
  }
  torch::jit::Stack stack;
  stack.reserve(std::max(op.parameters.size(), op.returnsArgument.size()));
  for (size_t i = 0; i < op.parameters.size(); ++i) {
    stack.push_back(readArgument(*call.engine, call.env,
                                 i + 2 < call.count ? call.arguments[i + 2] : nullptr, op.parameters[i]));
  }
  try {
    c10::AutoGradMode mode(gradients);
    if (op.hazard != nullptr) op.hazard(stack);
    op.handle->callBoxed(&stack);
  } catch (const NoMemory& refusal) {
    throw NoMemory(std::string(refusal.what()) + describeArguments(call, op));
  } catch (const c10::Error& error) {
    const std::string message = error.what_without_backtrace();
    throw Refusal(message.substr(0, message.find('\n')) + describeArguments(call, op));
  } catch (const std::exception& error) {
    const std::string message = error.what();
    throw Refusal(message.substr(0, message.find('\n')) + describeArguments(call, op));
  }
  if (op.returnsArgument.empty()) return makeUndefined(call.env);
  if (op.returnsArgument.size() == 1) {
    return op.returnsArgument[0] ? makeUndefined(call.env) : writeValue(*call.engine, call.env, stack[0]);
  }
  std::vector<napi_value> results;
  for (size_t i = 0; i < stack.size(); ++i) {
    results.push_back(op.returnsArgument[i] ? makeUndefined(call.env)
                                            : writeValue(*call.engine, call.env, stack[i]));
  }
  return makeArray(call.env, results);
}

// registerOperators(["aten::add.Tensor", ...]): their indices are their places. Nothing is looked up yet.
napi_value registerOperators(Call& call) {
  uint32_t length = 0;
  check(call.env, napi_get_array_length(call.env, call.arguments[0], &length), "the operator list");
  for (uint32_t i = 0; i < length; ++i) {
    napi_value item = nullptr;
    check(call.env, napi_get_element(call.env, call.arguments[0], i, &item), "an operator name");
    const std::string full = readText(call.env, item, "operator name");
    auto op = std::make_unique<Operator>();
    const size_t dot = full.find('.');
    op->name = full.substr(0, dot);
    op->overload = dot == std::string::npos ? "" : full.substr(dot + 1);
    call.engine->operators.push_back(std::move(op));
  }
  return makeUndefined(call.env);
}

// schema("aten::add.Tensor") → its text, or null where this libtorch has no such operator.
napi_value schema(Call& call) {
  const std::string full = call.text(0, "operator name");
  const size_t dot = full.find('.');
  auto handle = c10::Dispatcher::singleton().findSchema(
      {full.substr(0, dot), dot == std::string::npos ? "" : full.substr(dot + 1)});
  if (!handle.has_value()) return makeNull(call.env);
  std::ostringstream text;
  text << handle->schema();
  return makeText(call.env, text.str());
}

// operatorNames() → every "namespace::name.overload" of this libtorch.
napi_value operatorNames(Call& call) {
  std::vector<napi_value> names;
  for (const auto& name : c10::Dispatcher::singleton().getAllOpNames()) {
    names.push_back(makeText(call.env, name.overload_name.empty() ? name.name : name.name + "." + name.overload_name));
  }
  return makeArray(call.env, names);
}

const Exports exports{
    {"call", call}, {"registerOperators", registerOperators}, {"schema", schema}, {"operatorNames", operatorNames}};

}  // namespace

}  // namespace astra
