// Tensors over a memory-mapped file: private and copy-on-write, so the file is never changed.
#include "mapping.h"

#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/from_blob.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "engine.h"
#include "scalar-type.h"

namespace astra {

Mapping::~Mapping() {
  if (address != nullptr) munmap(address, bytes);
}

namespace {

// mapFile(path) → [handle, bytes]
napi_value mapFile(Call& call) {
  const std::string path = call.text(0, "path");
  if (path.find('\0') != std::string::npos) throw Refusal("the path must not hold a zero byte");
  const int file = open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (file < 0) throw Refusal(path + " cannot be opened: " + std::strerror(errno));
  struct stat facts {};
  auto mapping = std::make_shared<Mapping>();
  if (fstat(file, &facts) != 0 || !S_ISREG(facts.st_mode)) {
    close(file);
    throw Refusal(path + " is not a regular file");
  }
  mapping->bytes = static_cast<size_t>(facts.st_size);
  if (mapping->bytes > 0) {
    void* address = mmap(nullptr, mapping->bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_NORESERVE, file, 0);
    const int failure = errno;
    if (address == MAP_FAILED) {
      close(file);
      throw Refusal(path + " cannot be mapped: " + std::strerror(failure));
    }
    mapping->address = address;
  }
  close(file);
  const double bytes = static_cast<double>(mapping->bytes);
  return makeArray(call.env, {makeNumber(call.env, call.engine->mappings.add(std::move(mapping))),
                              makeNumber(call.env, bytes)});
}

std::shared_ptr<Mapping> readMapping(Call& call, size_t index) {
  auto* slot = call.engine->mappings.find(call.number(index, "file"));
  if (slot == nullptr) throw Refusal("the mapped file has been closed");
  return slot->value;
}

// mappedTensor(file, dtype code, sizes, byte offset): a view, or a copy where the offset is not aligned
napi_value mappedTensor(Call& call) {
  const std::shared_ptr<Mapping> mapping = readMapping(call, 0);
  const c10::ScalarType type = readScalarTypeCode(call.integer(1, "dtype"));
  const std::vector<int64_t> sizes = call.sizes(2, "shape");
  const int64_t offset = call.integer(3, "byteOffset");
  int64_t bytes = static_cast<int64_t>(c10::elementSize(type));
  for (const int64_t size : sizes) bytes *= size;
  const int64_t available = static_cast<int64_t>(mapping->bytes);
  if (offset < 0 || offset > available || bytes > available - offset) {
    throw Refusal("bytes " + std::to_string(offset) + " to " + std::to_string(offset) + " + " +
                  std::to_string(bytes) + " lie outside of the file of " + std::to_string(available) + " bytes");
  }
  const at::TensorOptions options = at::TensorOptions().dtype(type);
  if (bytes == 0) return wrapTensor(*call.engine, call.env, at::empty(sizes, options));
  char* start = static_cast<char*>(mapping->address) + offset;
  if (type == c10::kBool) {  // a byte other than 0 and 1 is not a bool
    at::Tensor copy = at::empty(sizes, options);
    auto* target = static_cast<uint8_t*>(copy.data_ptr());
    for (int64_t i = 0; i < bytes; ++i) target[i] = start[i] != 0;
    return wrapTensor(*call.engine, call.env, std::move(copy));
  }
  if (reinterpret_cast<uintptr_t>(start) % c10::elementSize(type) != 0) {
    at::Tensor copy = at::empty(sizes, options);
    std::memcpy(copy.data_ptr(), start, static_cast<size_t>(bytes));
    return wrapTensor(*call.engine, call.env, std::move(copy));
  }
  // The lambda's copy of `mapping` keeps the file mapped for as long as the storage lives.
  at::Tensor view = at::from_blob(start, sizes, [mapping](void*) {}, options);
  return wrapTensor(*call.engine, call.env, std::move(view));
}

napi_value unmapFile(Call& call) {
  auto* slot = call.engine->mappings.find(call.number(0, "file"));
  if (slot != nullptr) call.engine->mappings.take(slot);
  return makeUndefined(call.env);
}

}  // namespace

void defineMapping(napi_env env, napi_value exports, Engine* engine) {
  define(env, exports, engine, "mapFile", mapFile);
  define(env, exports, engine, "mappedTensor", mappedTensor);
  define(env, exports, engine, "unmapFile", unmapFile);
}

}  // namespace astra
