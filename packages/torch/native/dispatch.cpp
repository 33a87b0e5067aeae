// Any ATen operator by name: JavaScript values to IValues by the schema's types, a boxed call, and back.
#include "dispatch.h"

#include <ATen/core/List.h>
#include <ATen/core/function_schema.h>
#include <ATen/core/grad_mode.h>
#include <ATen/core/jit_type.h>
#include <c10/util/Optional.h>

#include <cmath>

#include "engine.h"

namespace astra {

namespace {

constexpr size_t kGiven = 2;  // index of an operator's first argument among those of a call

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

// "aten::add.Tensor": the name, and the overload after the dot.
c10::OperatorName operatorNameOf(const std::string& full) {
  const size_t dot = full.find('.');
  return {full.substr(0, dot), dot == std::string::npos ? "" : full.substr(dot + 1)};
}

void resolve(Operator& op) {
  auto handle = c10::Dispatcher::singleton().findSchema(op.name);
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
  op.hazard = hazardOf(op.name.name);
  op.handle = handle;
  op.resolved = true;
}

c10::Scalar readScalar(napi_env env, napi_value value, Name name) {
  double number = 0;
  if (napi_get_value_double(env, value, &number) == napi_ok) {
    // A whole number is passed as an integer, so that integer tensors keep their dtype.
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
  throw Refusal(name.text() + " must be a number, a boolean or a bigint of 64 bits");
}

c10::IValue readElement(Engine& engine, napi_env env, napi_value value, Kind kind, Name name) {
  switch (kind) {
    case Kind::Tensor: return readTensor(engine, env, value, name);
    case Kind::Scalar: return readScalar(env, value, name);
    case Kind::Integer: return readInteger(env, value, name);
    case Kind::Float: return readNumber(env, value, name);
    case Kind::Boolean: return readBoolean(env, value, name);
    case Kind::Text: return readText(env, value, name);
    case Kind::ScalarType: return static_cast<int64_t>(readScalarTypeCode(readInteger(env, value, name), name));
    case Kind::MemoryFormat: {
      const int64_t code = readInteger(env, value, name);
      if (code < 0 || code > 1) throw Refusal(name.text() + " must be 0 (contiguous) or 1 (preserve)");
      return code;
    }
    case Kind::Layout: throw Refusal(name.text() + " cannot be set: layouts other than strided are not offered");
    case Kind::Device: return c10::Device(readText(env, value, name));
    case Kind::Generator: return readGenerator(engine, env, value, name);
    case Kind::Unsupported: break;
  }
  throw Refusal(name.text() + " has a type that cannot be passed");
}

template <class T, class Read>
c10::List<T> readList(const std::vector<napi_value>& elements, Name name, Read read) {
  c10::List<T> list;
  list.reserve(elements.size());
  for (size_t i = 0; i < elements.size(); ++i) list.push_back(read(elements[i], Name(name, i)));
  return list;
}

c10::IValue readWholeList(Engine& engine, napi_env env, napi_value value, const Parameter& parameter) {
  const Name name = parameter.name;
  bool isArray = false;
  napi_is_array(env, value, &isArray);
  // As in PyTorch, a single number stands for every element of an expected list of fixed length.
  if (!isArray && parameter.fixedLength > 0 && parameter.kind == Kind::Integer) {
    const int64_t number = readInteger(env, value, name);
    return c10::List<int64_t>(std::vector<int64_t>(static_cast<size_t>(parameter.fixedLength), number));
  }
  const std::vector<napi_value> items = readArray(env, value, name);
  const auto tensorOf = [&](napi_value item, Name own) { return readTensor(engine, env, item, own); };
  switch (parameter.kind) {
    case Kind::Integer:
      return readList<int64_t>(items, name, [&](napi_value item, Name own) { return readInteger(env, item, own); });
    case Kind::Float:
      return readList<double>(items, name, [&](napi_value item, Name own) { return readNumber(env, item, own); });
    case Kind::Boolean:
      return readList<bool>(items, name, [&](napi_value item, Name own) { return readBoolean(env, item, own); });
    case Kind::Scalar:
      return readList<c10::Scalar>(items, name, [&](napi_value item, Name own) { return readScalar(env, item, own); });
    case Kind::Tensor:
      if (!parameter.elementOptional) return readList<at::Tensor>(items, name, tensorOf);
      return readList<c10::optional<at::Tensor>>(items, name, [&](napi_value item, Name own) {
        return isNothing(env, item) ? c10::nullopt : c10::optional<at::Tensor>(tensorOf(item, own));
      });
    default: throw Refusal(name.text() + " is a list that cannot be passed");
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
  if (value.isTensorList()) return wrapTensors(engine, env, value.toTensorVector());
  std::vector<napi_value> items;
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

// Short description of one value of a failed call, or of an item of it.
std::string described(Call& call, napi_value value, Kind kind, bool isItem = false) {
  napi_valuetype type = napi_undefined;
  napi_typeof(call.env, value, &type);
  if (kind == Kind::Tensor && type == napi_number) {
    auto* slot = call.engine->tensors.find(readNumber(call.env, value, "handle"));
    return slot == nullptr ? "a disposed tensor" : describeTensor(slot->value);
  }
  bool isArray = false;
  napi_is_array(call.env, value, &isArray);
  if (isArray && isItem) return "[…]";
  if (isArray) {
    const std::vector<napi_value> items = readArray(call.env, value, "list");
    std::string text = "[";
    for (size_t i = 0; i < items.size() && i < 8; ++i) text += (i == 0 ? "" : ", ") + described(call, items[i], kind, true);
    return text + (items.size() > 8 ? ", …]" : "]");
  }
  if (type == napi_object || type == napi_function || type == napi_symbol || type == napi_external) return "an object";
  napi_value shown = nullptr;
  if (napi_coerce_to_string(call.env, value, &shown) != napi_ok) return "";
  return readText(call.env, shown, "text").substr(0, 60);
}

// "(self: float32[2, 3], dim: 5)": the arguments of the failed call.
std::string describeArguments(Call& call, const Operator& op) {
  std::string text = " (given";
  for (size_t i = 0; i < op.parameters.size() && i + kGiven < call.count; ++i) {
    napi_valuetype type = napi_undefined;
    napi_typeof(call.env, call.arguments[i + kGiven], &type);
    if (type == napi_undefined) continue;
    const Parameter& parameter = op.parameters[i];
    text += (i == 0 ? " " : ", ") + parameter.name + ": " + described(call, call.arguments[i + kGiven], parameter.kind);
  }
  return text + ")";
}

// The vector that the last call has left, with its memory; a nested call finds an empty one.
class KeptStack {
 public:
  explicit KeptStack(Engine& engine) : engine_(engine), values(std::move(engine.stack)) { values.clear(); }
  ~KeptStack() {
    values.clear();
    engine_.stack = std::move(values);
  }

 private:
  Engine& engine_;

 public:
  torch::jit::Stack values;
};

Operator& operatorOf(Call& call) {
  const int64_t index = call.integer(0, "operator");
  if (index < 0 || static_cast<size_t>(index) >= call.engine->operators.size()) {
    throw Refusal("internal: operator " + std::to_string(index) + " was never registered");
  }
  Operator& op = *call.engine->operators[index];
  call.where = &op.text;
  if (!op.resolved) resolve(op);
  return op;
}

// @param words number of arguments in the exchanged memory, of which there are no values yet; -1: there are values
napi_value execute(Call& call, const Operator& op, torch::jit::Stack& stack, bool gradients, int64_t words) {
  try {
    c10::AutoGradMode mode(gradients);
    if (op.hazard != nullptr) op.hazard(stack);
    op.handle->callBoxed(&stack);
  } catch (...) {
    bool memory = false;
    std::string message = currentExceptionMessage(&memory);
    if (words >= 0) valuesOfWords(call, kGiven, static_cast<size_t>(words));
    message += describeArguments(call, op);
    if (memory) throw NoMemory(message);
    throw Refusal(message);
  }
  if (op.returnsArgument.empty()) return nullptr;
  if (op.returnsArgument.size() == 1) {
    return op.returnsArgument[0] ? nullptr : writeValue(*call.engine, call.env, stack[0]);
  }
  std::vector<napi_value> results;
  for (size_t i = 0; i < stack.size(); ++i) {
    results.push_back(op.returnsArgument[i] ? makeUndefined(call.env)
                                            : writeValue(*call.engine, call.env, stack[i]));
  }
  return makeArray(call.env, results);
}

napi_value callOnValues(Call& call, const Operator& op, torch::jit::Stack& stack, bool gradients) {
  for (size_t i = op.parameters.size() + kGiven; i < call.count; ++i) {
    if (!call.absent(i)) {
      throw Refusal("takes at most " + std::to_string(op.parameters.size()) + " arguments, got " +
                    std::to_string(i - kGiven + 1));
    }
  }
  for (size_t i = 0; i < op.parameters.size(); ++i) {
    stack.push_back(readArgument(*call.engine, call.env,
                                 i + kGiven < call.count ? call.arguments[i + kGiven] : nullptr, op.parameters[i]));
  }
  return execute(call, op, stack, gradients, -1);
}

// call(operator index, grad mode, ...arguments in schema order; undefined = the schema's default)
napi_value call(Call& call) {
  const Operator& op = operatorOf(call);
  KeptStack stack(*call.engine);
  return callOnValues(call, op, stack.values, call.boolean(1, "grad mode"));
}

// callOnWords(operator index, grad mode, count): the same with arguments in the exchanged memory
napi_value callOnWords(Call& call) {
  const Operator& op = operatorOf(call);
  const bool gradients = call.boolean(1, "grad mode");
  const int64_t count = call.integer(2, "count");
  if (count < 0 || count > static_cast<int64_t>(kMaximumArguments - kGiven)) {
    throw Refusal("internal: " + std::to_string(count) + " arguments");
  }
  KeptStack stack(*call.engine);
  if (readWords(*call.engine, op, static_cast<size_t>(count), stack.values)) {
    return execute(call, op, stack.values, gradients, count);
  }
  stack.values.clear();
  valuesOfWords(call, kGiven, static_cast<size_t>(count));
  return callOnValues(call, op, stack.values, gradients);
}

// registerOperators(["aten::add.Tensor", ...]): their indices are their positions. Nothing is looked up yet.
napi_value registerOperators(Call& call) {
  for (const napi_value item : readArray(call.env, call.argument(0, "operators"), "operators")) {
    auto op = std::make_unique<Operator>();
    op->text = readText(call.env, item, "operator name");
    op->name = operatorNameOf(op->text);
    call.engine->operators.push_back(std::move(op));
  }
  return makeUndefined(call.env);
}

// hasOperator(index): whether this libtorch has the operator
napi_value hasOperator(Call& call) {
  const int64_t index = call.integer(0, "operator");
  if (index < 0 || static_cast<size_t>(index) >= call.engine->operators.size()) return makeBoolean(call.env, false);
  const c10::OperatorName& name = call.engine->operators[index]->name;
  return makeBoolean(call.env, c10::Dispatcher::singleton().findSchema(name).has_value());
}

const Exports exports{{"call", call},
                      {"callOnWords", callOnWords},
                      {"hasOperator", hasOperator},
                      {"registerOperators", registerOperators}};

}  // namespace

}  // namespace astra
