// The largest numbers of each row in order. libtorch's own function returns ties in any order.
#include <algorithm>
#include <cstring>
#include <vector>

#include <ATen/Parallel.h>
#include <ATen/core/Tensor.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>

#include "engine.h"
#include "pieces.h"
#include "kernels/plain-tensor.h"
#include "kernels/vector-math.h"

namespace astra {
namespace {

// Numbers that are skipped together: few if the row is short, so that the k-th largest chunk is a useful bound.
int64_t chunkOf(int64_t size, int64_t k) { return size >= 256 * k ? 64 : 16; }

// Ordered like the numbers, with both zeros equal and NaN above all.
inline int32_t keyOf(float number) {
  const float value = number + 0.0f;
  int32_t bits;
  std::memcpy(&bits, &value, sizeof bits);
  const int32_t ordered = bits ^ ((bits >> 31) & 0x7fffffff);
  return value != value ? INT32_MAX : ordered;
}

ASTRA_VECTOR_LOOP(void, largestOfChunks, (const Number* __restrict row, int64_t size, int64_t chunk, int32_t* __restrict largest),
                  (row, size, chunk, largest)) {
  for (int64_t from = 0; from < size; from += chunk) {
    const int64_t end = std::min(size, from + chunk);
    int32_t greatest = INT32_MIN;
#pragma omp simd reduction(max : greatest)
    for (int64_t i = from; i < end; ++i) {
      const int32_t key = keyOf(widen(row[i]));
      greatest = key > greatest ? key : greatest;
    }
    largest[from / chunk] = greatest;
  }
}

struct Candidate {
  int32_t key;
  int64_t index;
};

struct Room {
  std::vector<int32_t> largest, sorted;
  std::vector<Candidate> candidates;
};

template <typename Number>
void rankRow(const Number* row, int64_t size, int64_t k, Room& room, Number* values, int64_t* indices) {
  const int64_t chunk = chunkOf(size, k), chunks = (size + chunk - 1) / chunk;
  room.largest.resize(static_cast<size_t>(chunks));
  largestOfChunks(row, size, chunk, room.largest.data());
  // The k-th largest number is at least the k-th largest of the chunks' maxima.
  int32_t least = INT32_MIN;
  if (k <= chunks) {
    room.sorted = room.largest;
    std::nth_element(room.sorted.begin(), room.sorted.begin() + (k - 1), room.sorted.end(), std::greater<>());
    least = room.sorted[static_cast<size_t>(k - 1)];
  }
  room.candidates.clear();
  for (int64_t from = 0; from < size; from += chunk) {
    if (room.largest[static_cast<size_t>(from / chunk)] < least) continue;
    const int64_t end = std::min(size, from + chunk);
    for (int64_t i = from; i < end; ++i) {
      const int32_t key = keyOf(widen(row[i]));
      if (key >= least) room.candidates.push_back({key, i});
    }
  }
  const auto isBefore = [](const Candidate& a, const Candidate& b) {
    return a.key != b.key ? a.key > b.key : a.index < b.index;
  };
  std::nth_element(room.candidates.begin(), room.candidates.begin() + (k - 1), room.candidates.end(), isBefore);
  std::sort(room.candidates.begin(), room.candidates.begin() + k, isBefore);
  for (int64_t rank = 0; rank < k; ++rank) {
    indices[rank] = room.candidates[static_cast<size_t>(rank)].index;
    values[rank] = row[indices[rank]];
  }
}

template <typename Number>
void rankRows(const at::Tensor& input, int64_t k, const at::Tensor& values, const at::Tensor& indices) {
  const int64_t size = input.size(1), stride = input.stride(0);
  const auto* from = static_cast<const Number*>(input.data_ptr());
  auto* value = static_cast<Number*>(values.data_ptr());
  auto* index = static_cast<int64_t*>(indices.data_ptr());
  at::parallel_for(0, input.size(0), std::max<int64_t>(1, kGrain / size), [&](int64_t first, int64_t last) {
    Room room;
    for (int64_t row = first; row < last; ++row) {
      rankRow(from + row * stride, size, k, room, value + row * k, index + row * k);
    }
  });
}

// sortedTopK(input, k): [values in the input's type, indices as int64], both [rows, k]
napi_value sortedTopK(Call& call) {
  const at::AutoGradMode mode(false);
  at::Tensor input = call.tensor(0, "input");
  const int64_t k = call.integer(1, "k");
  if (!isReadable(input) || input.dim() != 2) {
    throw Refusal("input must be float32[rows, numbers] or bfloat16[rows, numbers] on the CPU, got " +
                  describeTensor(input));
  }
  if (k < 1 || k > input.size(1)) {
    throw Refusal("k must be 1 … " + std::to_string(input.size(1)) + ", got " + std::to_string(k));
  }
  if (input.stride(1) != 1) input = input.contiguous();
  at::Tensor values = at::empty({input.size(0), k}, input.options());
  at::Tensor indices = at::empty({input.size(0), k}, input.options().dtype(at::kLong));
  (isWide(input) ? rankRows<float> : rankRows<uint16_t>)(input, k, values, indices);
  return wrapTensors(*call.engine, call.env, {values, indices});
}

const Exports exports{{"sortedTopK", sortedTopK}};

}  // namespace

}  // namespace astra
