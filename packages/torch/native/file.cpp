// Tensors read from a file into their own memory: later changes of the file do not affect them.
#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "engine.h"
#include "pieces.h"

namespace astra {

namespace {

constexpr int64_t kPiece = 8 << 20;  // bytes that are read at once by one thread

// readFile(descriptor, dtype, sizes, byte offset): a new tensor
napi_value readFile(Call& call) {
  const auto descriptor = static_cast<int>(call.integer(0, "descriptor"));
  const c10::ScalarType type = readScalarTypeCode(call.integer(1, "dtype"));
  const std::vector<int64_t> sizes = call.sizes(2, "shape");
  const int64_t offset = call.integer(3, "byteOffset");
  int64_t bytes = static_cast<int64_t>(c10::elementSize(type));
  for (const int64_t size : sizes) bytes *= size;
  struct stat facts {};
  if (fstat(descriptor, &facts) != 0) throw Refusal(std::string("the file cannot be read: ") + std::strerror(errno));
  const auto all = static_cast<int64_t>(facts.st_size);
  if (offset < 0 || offset > all || bytes > all - offset) {
    throw Refusal("bytes " + std::to_string(offset) + " to " + std::to_string(offset) + " + " + std::to_string(bytes) +
                  " lie outside of the file of " + std::to_string(all) + " bytes");
  }
  at::Tensor tensor = at::empty(sizes, at::TensorOptions().dtype(type));
  auto* const numbers = static_cast<uint8_t*>(tensor.data_ptr());
  inPieces(bytes, kPiece, [&](int64_t from, int64_t end) {
    while (from < end) {
      const ssize_t count = pread(descriptor, numbers + from, static_cast<size_t>(end - from), offset + from);
      if (count < 0 && errno == EINTR) continue;
      if (count < 0) throw Refusal(std::string("the file cannot be read: ") + std::strerror(errno));
      if (count == 0) throw Refusal("the file has been shortened since it was opened");
      from += count;
    }
  });
  for (int64_t i = 0; type == c10::kBool && i < bytes; ++i) numbers[i] = numbers[i] != 0;  // other bytes are no bool
  return wrapTensor(*call.engine, call.env, std::move(tensor));
}

const Exports exports{{"readFile", readFile}};

}  // namespace

}  // namespace astra
