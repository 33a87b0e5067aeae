// Tensors that are read from a file into memory of their own: what happens to the file afterwards does not concern them.
// (docs/decisions/0057)
#include "file.h"

#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>
#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "engine.h"
#include "pieces.h"

namespace astra {

namespace {

constexpr int64_t kPiece = 8 << 20;  // bytes that are read at once by one thread

#ifdef __APPLE__
const timespec& modifiedAt(const struct stat& facts) { return facts.st_mtimespec; }
#else
const timespec& modifiedAt(const struct stat& facts) { return facts.st_mtim; }
#endif

}  // namespace

OpenFile::~OpenFile() {
  if (descriptor >= 0) close(descriptor);
}

bool OpenFile::isChanged() const {
  struct stat now {};
  if (fstat(descriptor, &now) != 0) return true;
  return now.st_size != facts.st_size || modifiedAt(now).tv_sec != modifiedAt(facts).tv_sec ||
         modifiedAt(now).tv_nsec != modifiedAt(facts).tv_nsec;
}

namespace {

// openFile(path) → [handle, bytes]
napi_value openFile(Call& call) {
  auto file = std::make_shared<OpenFile>();
  file->path = call.text(0, "path");
  if (file->path.find('\0') != std::string::npos) throw Refusal("the path must not hold a zero byte");
  // A named pipe is not waited for: it is refused below.
  file->descriptor = open(file->path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (file->descriptor < 0) throw Refusal(file->path + " cannot be opened: " + std::strerror(errno));
  if (fstat(file->descriptor, &file->facts) != 0 || !S_ISREG(file->facts.st_mode)) {
    throw Refusal(file->path + " is not a regular file");
  }
  const double bytes = static_cast<double>(file->bytes());
  return makeArray(call.env, {makeNumber(call.env, call.engine->files.add(std::move(file))),
                              makeNumber(call.env, bytes)});
}

std::shared_ptr<OpenFile> fileOf(Call& call, size_t index) {
  auto* slot = call.engine->files.find(call.number(index, "file"));
  if (slot == nullptr) throw Refusal("the file has been closed");
  return slot->value;
}

void readBytes(const OpenFile& file, char* to, int64_t offset, int64_t bytes) {
  inPieces(bytes, kPiece, [&](int64_t from, int64_t end) {
    while (from < end) {
      const ssize_t count = pread(file.descriptor, to + from, static_cast<size_t>(end - from), offset + from);
      if (count < 0 && errno == EINTR) continue;
      if (count < 0) throw Refusal(file.path + " cannot be read: " + std::strerror(errno));
      if (count == 0) throw Refusal(file.path + " has been shortened since it was opened");
      from += count;
    }
  });
}

// readFile(file, dtype, sizes, byte offset): a new tensor
napi_value readFile(Call& call) {
  const std::shared_ptr<OpenFile> file = fileOf(call, 0);
  const c10::ScalarType type = readScalarTypeCode(call.integer(1, "dtype"));
  const std::vector<int64_t> sizes = call.sizes(2, "shape");
  const int64_t offset = call.integer(3, "byteOffset");
  int64_t bytes = static_cast<int64_t>(c10::elementSize(type));
  for (const int64_t size : sizes) bytes *= size;
  if (offset < 0 || offset > file->bytes() || bytes > file->bytes() - offset) {
    throw Refusal("bytes " + std::to_string(offset) + " to " + std::to_string(offset) + " + " +
                  std::to_string(bytes) + " lie outside of the file of " + std::to_string(file->bytes()) + " bytes");
  }
  at::Tensor tensor = at::empty(sizes, at::TensorOptions().dtype(type));
  if (bytes > 0) {
    auto* numbers = static_cast<uint8_t*>(tensor.data_ptr());
    readBytes(*file, reinterpret_cast<char*>(numbers), offset, bytes);
    if (type == c10::kBool) {  // a byte other than 0 and 1 is not a bool
      for (int64_t i = 0; i < bytes; ++i) numbers[i] = numbers[i] != 0;
    }
  }
  if (file->isChanged()) throw Refusal(file->path + " has been changed since it was opened");
  return wrapTensor(*call.engine, call.env, std::move(tensor));
}

// isFileChanged(file): whether its size or its time of modification is another than when it was opened
napi_value isFileChanged(Call& call) { return makeBoolean(call.env, fileOf(call, 0)->isChanged()); }

napi_value closeFile(Call& call) {
  auto* slot = call.engine->files.find(call.number(0, "file"));
  if (slot != nullptr) call.engine->files.take(slot);
  return makeUndefined(call.env);
}

const Exports exports{
    {"openFile", openFile}, {"readFile", readFile}, {"isFileChanged", isFileChanged}, {"closeFile", closeFile}};

}  // namespace

}  // namespace astra
