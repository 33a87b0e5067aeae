// Attention of new tokens in one pass over cached keys and values, and how these are put there.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <vector>

#include <ATen/Parallel.h>
#include <ATen/core/Tensor.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>

#include "engine.h"
#include "pieces.h"
#include "plain-tensor.h"
#include "vector-math.h"

namespace astra {
namespace {

bool anyRequiresGradient(std::initializer_list<const at::Tensor*> tensors) {
  return std::any_of(tensors.begin(), tensors.end(),
                     [](const at::Tensor* tensor) { return tensor->defined() && tensor->requires_grad(); });
}

constexpr int64_t kMostHeadSize = 256;
// Views that repeat one number can claim any size. Up to here no product of sizes overflows; beyond it nobody decodes.
constexpr int64_t kMostQueries = int64_t{1} << 24, kMostColumns = int64_t{1} << 30;
constexpr int64_t kBlock = 4;  // columns whose values are added together, counted from column 0
constexpr int64_t kTogether = 64;  // queries of several tokens that keys and values are read for at a time

// Rows whose first columns hold the same numbers, and the heads of all of them that share keys and values.
struct Cluster {
  int64_t queries;    // rows · heads
  int64_t columns, size;
  float* query;       // [queries, E], scaled
  float* scores;      // [queries, S]
  float* sums;        // [queries, E]
};

// Columns `from` … `to` − 1, read once for queries `first` … `first` + `count` − 1.
template <typename Number>
struct Stretch {
  const Number *key, *value;  // of column 0
  int64_t keyStride, valueStride, from, to, first, count;
};

constexpr int64_t kLanes = 16;

// The sum of products, by halves: compilers would add the lanes of a vector one after the other.
ASTRA_INLINE float dot(const float* __restrict a, const float* __restrict b, int64_t size) {
  float lanes[kLanes];
#pragma omp simd
  for (int64_t lane = 0; lane < kLanes; ++lane) lanes[lane] = a[lane] * b[lane];
  for (int64_t e = kLanes; e < size; e += kLanes) {
#pragma omp simd
    for (int64_t lane = 0; lane < kLanes; ++lane) lanes[lane] += a[e + lane] * b[e + lane];
  }
  float halves[8], quarters[4];
#pragma omp simd
  for (int64_t lane = 0; lane < 8; ++lane) halves[lane] = lanes[lane] + lanes[lane + 8];
#pragma omp simd
  for (int64_t lane = 0; lane < 4; ++lane) quarters[lane] = halves[lane] + halves[lane + 4];
  return (quarters[0] + quarters[2]) + (quarters[1] + quarters[3]);
}

template <int64_t fixedSize, typename Number>
ASTRA_INLINE void scoresOf(const Cluster& cluster, const Stretch<Number>& stretch) {
  const int64_t size = fixedSize > 0 ? fixedSize : cluster.size;
  float key[kMostHeadSize];
  for (int64_t s = stretch.from; s < stretch.to; ++s) {
    const Number* __restrict stored = stretch.key + s * stretch.keyStride;
    const Number* value = stretch.value + s * stretch.valueStride;
    const Number* later = stored + std::min<int64_t>(16, stretch.to - 1 - s) * stretch.keyStride;
    // The values, and keys further on, come from memory while these keys are worked on.
    for (int64_t e = 0; e < size; e += 64 / static_cast<int64_t>(sizeof(Number))) {
      __builtin_prefetch(value + e);
      __builtin_prefetch(later + e);
    }
#pragma omp simd
    for (int64_t e = 0; e < size; ++e) key[e] = widen(stored[e]);
    for (int64_t q = stretch.first; q < stretch.first + stretch.count; ++q) {
      const float* __restrict query = cluster.query + q * size;
      float score = 0;
      if constexpr (fixedSize > 0) {
        score = dot(query, key, fixedSize);
      } else {
#pragma omp simd reduction(+ : score)
        for (int64_t e = 0; e < size; ++e) score += query[e] * key[e];
      }
      cluster.scores[q * cluster.columns + s] = score;
    }
  }
}

template <typename Number>
ASTRA_INLINE void scoresOfAnySize(const Cluster& cluster, const Stretch<Number>& stretch) {
  if (cluster.size == 64) return scoresOf<64>(cluster, stretch);
  if (cluster.size == 128) return scoresOf<128>(cluster, stretch);
  scoresOf<0>(cluster, stretch);
}
ASTRA_VECTOR_LOOP(void, addScores, (const Cluster& cluster, const Stretch<float>& stretch), (cluster, stretch)) {
  scoresOfAnySize(cluster, stretch);
}
ASTRA_VECTOR_LOOP(void, addScores, (const Cluster& cluster, const Stretch<uint16_t>& stretch), (cluster, stretch)) {
  scoresOfAnySize(cluster, stretch);
}

template <typename Number>
ASTRA_INLINE void addBiasOf(float* __restrict scores, const Number* __restrict bias, int64_t columns) {
#pragma omp simd
  for (int64_t s = 0; s < columns; ++s) scores[s] += widen(bias[s]);
}
ASTRA_VECTOR_LOOP(void, addBias, (float* scores, const float* bias, int64_t columns), (scores, bias, columns)) {
  addBiasOf(scores, bias, columns);
}
ASTRA_VECTOR_LOOP(void, addBias, (float* scores, const uint16_t* bias, int64_t columns), (scores, bias, columns)) {
  addBiasOf(scores, bias, columns);
}

// Scores to weights, their sum not yet divided by; returns the sum.
ASTRA_VECTOR_LOOP(float, weigh, (float* __restrict scores, int64_t columns), (scores, columns)) {
  float greatest = -INFINITY, total = 0;
#pragma omp simd reduction(max : greatest)
  for (int64_t s = 0; s < columns; ++s) greatest = scores[s] > greatest ? scores[s] : greatest;
#pragma omp simd reduction(+ : total)
  for (int64_t s = 0; s < columns; ++s) {
    scores[s] = exponential(scores[s] - greatest);
    total += scores[s];
  }
  return total;
}

template <int64_t fixedSize, typename Number>
ASTRA_INLINE void valuesOf(const Cluster& cluster, const Stretch<Number>& stretch) {
  const int64_t size = fixedSize > 0 ? fixedSize : cluster.size, stride = stretch.valueStride;
  float values[kBlock * kMostHeadSize];
  for (int64_t s = stretch.from; s < stretch.to; s += kBlock) {
    const int64_t present = std::min(kBlock, stretch.to - s);
    for (int64_t at = 0; at < present; ++at) {
      const Number* __restrict stored = stretch.value + (s + at) * stride;
#pragma omp simd
      for (int64_t e = 0; e < size; ++e) values[at * size + e] = widen(stored[e]);
    }
    for (int64_t q = stretch.first; q < stretch.first + stretch.count; ++q) {
      const float* weights = cluster.scores + q * cluster.columns + s;
      float* __restrict sums = cluster.sums + q * size;
      if (present == kBlock) {
        const float a = weights[0], b = weights[1], c = weights[2], d = weights[3];
#pragma omp simd
        for (int64_t e = 0; e < size; ++e) {
          sums[e] += (a * values[e] + b * values[size + e]) + (c * values[2 * size + e] + d * values[3 * size + e]);
        }
      } else {
        for (int64_t at = 0; at < present; ++at) {
#pragma omp simd
          for (int64_t e = 0; e < size; ++e) sums[e] += weights[at] * values[at * size + e];
        }
      }
    }
  }
}

template <typename Number>
ASTRA_INLINE void valuesOfAnySize(const Cluster& cluster, const Stretch<Number>& stretch) {
  if (cluster.size == 64) return valuesOf<64>(cluster, stretch);
  if (cluster.size == 128) return valuesOf<128>(cluster, stretch);
  valuesOf<0>(cluster, stretch);
}
ASTRA_VECTOR_LOOP(void, addValues, (const Cluster& cluster, const Stretch<float>& stretch), (cluster, stretch)) {
  valuesOfAnySize(cluster, stretch);
}
ASTRA_VECTOR_LOOP(void, addValues, (const Cluster& cluster, const Stretch<uint16_t>& stretch), (cluster, stretch)) {
  valuesOfAnySize(cluster, stretch);
}

// Which columns of which rows hold the same numbers, as the caller says: `order` lists all rows, cluster by cluster, and
// each piece is [row to read, from, to or −1 for the end, place in the order, count]. A cluster begins with a piece from
// column 0; the pieces of each row follow one another.
struct Sharing {
  struct Piece {
    int64_t row, from, to, first, count;
  };
  std::vector<int64_t> order;
  std::vector<Piece> pieces;
  std::vector<size_t> clusters;  // places of their first pieces, and the number of pieces

  // Every row by itself.
  Sharing(int64_t rows, int64_t columns) {
    for (int64_t row = 0; row < rows; ++row) {
      order.push_back(row);
      clusters.push_back(pieces.size());
      pieces.push_back({row, 0, columns, row, 1});
    }
    clusters.push_back(pieces.size());
  }

  Sharing(const at::Tensor& orderTensor, const at::Tensor& pieceTensor, int64_t rows, int64_t columns) {
    if (!isPlain(orderTensor, at::kInt) || !isPlain(pieceTensor, at::kInt) || orderTensor.dim() != 1 ||
        pieceTensor.dim() != 2 || pieceTensor.size(1) != 5 || orderTensor.size(0) != rows) {
      throw Refusal("order and pieces must be int32[rows] and int32[pieces, 5], got " + describeTensor(orderTensor) +
                    " and " + describeTensor(pieceTensor));
    }
    const at::Tensor plainOrder = orderTensor.contiguous(), plainPieces = pieceTensor.contiguous();
    const auto* slot = static_cast<const int32_t*>(plainOrder.data_ptr());
    const auto* number = static_cast<const int32_t*>(plainPieces.data_ptr());
    std::vector<bool> known(static_cast<size_t>(rows), false);
    for (int64_t at = 0; at < rows; ++at) {
      if (slot[at] < 0 || slot[at] >= rows || known[static_cast<size_t>(slot[at])]) refuse();
      known[static_cast<size_t>(slot[at])] = true;
      order.push_back(slot[at]);
    }
    // How far each row's columns are told; a row of another cluster begins at 0 again.
    std::vector<int64_t> told(static_cast<size_t>(rows), 0);
    int64_t begin = 0, end = 0;
    for (int64_t at = 0; at < plainPieces.size(0); ++at, number += 5) {
      const int64_t to = number[2] < 0 ? columns : number[2];
      const Piece piece{number[0], number[1], to, number[3], number[4]};
      if (piece.row < 0 || piece.row >= rows || piece.count < 1 || piece.first < 0 || piece.from < 0 ||
          piece.to <= piece.from || piece.to > columns || (piece.to < columns && piece.to % kBlock != 0)) {
        refuse();
      }
      if (piece.from == 0) {
        if (piece.first != end) refuse();
        begin = end;
        end = begin + piece.count;
        clusters.push_back(pieces.size());
      }
      if (end > rows || piece.first < begin || piece.first + piece.count > end) refuse();
      for (int64_t row = piece.first; row < piece.first + piece.count; ++row) {
        if (told[static_cast<size_t>(row)] != piece.from) refuse();
        told[static_cast<size_t>(row)] = piece.to;
      }
      pieces.push_back(piece);
    }
    for (const int64_t reached : told) {
      if (reached != columns) refuse();
    }
    clusters.push_back(pieces.size());
  }

  [[noreturn]] static void refuse() { throw Refusal("the pieces do not tell every column of every row once"); }
};

// decodeAttention(recording, query, key, value, bias, scale, order, pieces): attention of new tokens, of which there is one a
// row where rows share columns; null where it does not apply
napi_value decodeAttention(Call& call) {
  const at::Tensor query = call.tensor(1, "query");
  const at::Tensor key = call.tensor(2, "key");
  const at::Tensor value = call.tensor(3, "value");
  const at::Tensor bias = call.absent(4) ? at::Tensor() : call.tensor(4, "bias");
  const double scale = call.number(5, "scale");
  const at::AutoGradMode mode(false);
  if (call.boolean(0, "recording") && anyRequiresGradient({&query, &key, &value, &bias})) return makeNull(call.env);
  const at::ScalarType type = query.scalar_type();
  if (type != at::kBFloat16 && type != at::kFloat) return makeNull(call.env);
  for (const at::Tensor* tensor : {&query, &key, &value}) {
    if (!isPlain(*tensor, type) || tensor->dim() != 4 || tensor->stride(3) != 1) return makeNull(call.env);
  }
  const int64_t batch = query.size(0), heads = query.size(1), tokens = query.size(2), size = query.size(3);
  const int64_t groups = key.size(1), columns = key.size(2);
  if (tokens < 1 || (tokens > 1 && !call.absent(6)) || batch < 1 || heads < 1 || size < 1 || size > kMostHeadSize || columns < 1 || groups < 1 ||
      heads % groups != 0 || key.size(0) != batch || key.size(3) != size || value.sizes() != key.sizes()) {
    return makeNull(call.env);
  }
  if (tokens > kMostQueries || batch * heads > kMostQueries / tokens || columns > kMostColumns) return makeNull(call.env);
  const int64_t shared = heads / groups * tokens;  // queries of a row that read the same keys
  if (bias.defined() &&
      (!isPlain(bias, type) || bias.dim() != 3 || bias.stride(2) != 1 || bias.size(2) != columns ||
       (bias.size(0) != 1 && bias.size(0) != batch * groups) || (bias.size(1) != 1 && bias.size(1) != shared))) {
    return makeNull(call.env);
  }
  const Sharing sharing = call.absent(6)
                              ? Sharing(batch, columns)
                              : Sharing(call.tensor(6, "order"), call.tensor(7, "pieces"), batch, columns);
  at::Tensor result = at::empty({batch, tokens, heads * size}, query.options());
  int64_t mostRows = 0;
  for (size_t at = 0; at + 1 < sharing.clusters.size(); ++at) {
    mostRows = std::max(mostRows, sharing.pieces[sharing.clusters[at]].count);
  }
  const int64_t blocks = tokens == 1 ? 1 : (shared + kTogether - 1) / kTogether;
  const int64_t roomOfThread = (tokens == 1 ? mostRows * shared : kTogether) * (2 * size + columns);
  const at::Tensor rooms = at::empty({at::get_num_threads(), roomOfThread}, query.options().dtype(at::kFloat));
  const auto attend = [&](auto number, size_t at, int64_t group, int64_t block, float* room) {
    using Number = decltype(number);
    const auto numbers = [](const at::Tensor& tensor) { return static_cast<Number*>(tensor.data_ptr()); };
    const Sharing::Piece& whole = sharing.pieces[sharing.clusters[at]];
    const int64_t begin = block * kTogether;
    const int64_t queries = tokens == 1 ? whole.count * shared : std::min(kTogether, shared - begin);
    Cluster cluster{queries, columns, size, nullptr, nullptr, nullptr};
    // Of a query of the cluster: its row, and its place among those of the row that read the same keys.
    const auto rowOf = [&](int64_t q) { return sharing.order[static_cast<size_t>(whole.first + (begin + q) / shared)]; };
    const auto placeOf = [&](int64_t q) { return (begin + q) % shared; };
    cluster.query = room;
    cluster.sums = cluster.query + cluster.queries * size;
    cluster.scores = cluster.sums + cluster.queries * size;
    std::fill(cluster.sums, cluster.scores, 0.0f);
    for (int64_t q = 0; q < cluster.queries; ++q) {
      const int64_t head = (group * shared + placeOf(q)) / tokens, token = placeOf(q) % tokens;
      const Number* stored =
          numbers(query) + rowOf(q) * query.stride(0) + head * query.stride(1) + token * query.stride(2);
      for (int64_t e = 0; e < size; ++e) cluster.query[q * size + e] = widen(stored[e]) * static_cast<float>(scale);
    }
    const auto forEachStretch = [&](const auto& work) {
      for (size_t p = sharing.clusters[at]; p < sharing.clusters[at + 1]; ++p) {
        const Sharing::Piece& piece = sharing.pieces[p];
        work(cluster, Stretch<Number>{numbers(key) + piece.row * key.stride(0) + group * key.stride(1),
                                      numbers(value) + piece.row * value.stride(0) + group * value.stride(1),
                                      key.stride(2), value.stride(2), piece.from, piece.to,
                                      tokens == 1 ? (piece.first - whole.first) * shared : 0,
                                      tokens == 1 ? piece.count * shared : queries});
      }
    };
    forEachStretch([](const auto&... given) { addScores(given...); });
    std::vector<float> totals(static_cast<size_t>(cluster.queries));
    for (int64_t q = 0; q < cluster.queries; ++q) {
      float* scores = cluster.scores + q * columns;
      if (bias.defined()) {
        const Number* own = numbers(bias) + (bias.size(0) == 1 ? 0 : rowOf(q) * groups + group) * bias.stride(0) +
                            (bias.size(1) == 1 ? 0 : placeOf(q)) * bias.stride(1);
        addBias(scores, own, columns);
      }
      totals[static_cast<size_t>(q)] = weigh(scores, columns);
    }
    forEachStretch([](const auto&... given) { addValues(given...); });
    for (int64_t q = 0; q < cluster.queries; ++q) {
      const int64_t head = (group * shared + placeOf(q)) / tokens, token = placeOf(q) % tokens;
      Number* to = numbers(result) + ((rowOf(q) * tokens + token) * heads + head) * size;
      for (int64_t e = 0; e < size; ++e) store(cluster.sums[q * size + e] / totals[static_cast<size_t>(q)], to[e]);
    }
  };
  const int64_t clusters = static_cast<int64_t>(sharing.clusters.size()) - 1;
  const int64_t tasks = clusters * groups * blocks;
  const int64_t piece = std::max<int64_t>(1, (int64_t{1} << 15) * tasks / groups / (columns * size * shared * batch));
  inPieces(tasks, piece, [&](int64_t from, int64_t to) {
    float* const room = static_cast<float*>(rooms.data_ptr()) + at::get_thread_num() * roomOfThread;
    for (int64_t task = from; task < to; ++task) {
      const auto cluster = static_cast<size_t>(task / blocks / groups);
      const int64_t group = task / blocks % groups, block = task % blocks;
      type == at::kFloat ? attend(float{}, cluster, group, block, room)
                         : attend(uint16_t{}, cluster, group, block, room);
    }
  });
  return wrapTensor(*call.engine, call.env, std::move(result));
}

// Whether the numbers of `from` may be moved to `to` as bytes, a head at a time.
bool liesByHeads(const at::Tensor& to, const at::Tensor& from) {
  const c10::ScalarType type = to.scalar_type();
  return isPlain(to, type) && isPlain(from, type) && to.dim() == 4 && to.sizes() == from.sizes() && to.stride(3) == 1 &&
         from.stride(3) == 1 && isApart(to, from);
}

// appendColumns(buffer, added, row, column): writes added [r, H, t, E] over rows `row` … and columns `column` … of the
// buffer [R, H, C, E]; the view of those rows with all columns up to the end of what was written
napi_value appendColumns(Call& call) {
  const at::AutoGradMode mode(false);
  const at::Tensor buffer = call.tensor(0, "buffer");
  const at::Tensor added = call.tensor(1, "added");
  const int64_t row = call.integer(2, "row"), column = call.integer(3, "column");
  if (buffer.dim() != 4 || added.dim() != 4 || buffer.size(1) != added.size(1) || buffer.size(3) != added.size(3)) {
    throw Refusal("buffer and added must be [rows, heads, columns, size], got " + describeTensor(buffer) + " and " +
                  describeTensor(added));
  }
  const int64_t rows = added.size(0), columns = added.size(2);
  if (row < 0 || column < 0 || row > buffer.size(0) - rows || column > buffer.size(2) - columns) {
    throw Refusal(describeTensor(added) + " does not fit into " + describeTensor(buffer) + " at row " +
                  std::to_string(row) + " and column " + std::to_string(column));
  }
  const at::Tensor own = buffer.narrow(0, row, rows);
  const at::Tensor target = own.narrow(2, column, columns);
  if (liesByHeads(target, added)) {
    const auto bytes = static_cast<int64_t>(c10::elementSize(buffer.scalar_type()));
    auto* to = static_cast<char*>(target.data_ptr());
    const auto* from = static_cast<const char*>(added.data_ptr());
    const int64_t heads = added.size(1), length = added.size(3) * bytes;
    at::parallel_for(0, rows * heads, std::max<int64_t>(1, (1 << 16) / (columns * length + 1)),
                     [&](int64_t first, int64_t last) {
                       for (int64_t at = first; at < last; ++at) {
                         const int64_t r = at / heads, head = at % heads;
                         char* own = to + (r * target.stride(0) + head * target.stride(1)) * bytes;
                         const char* given = from + (r * added.stride(0) + head * added.stride(1)) * bytes;
                         for (int64_t c = 0; c < columns; ++c) {
                           std::memcpy(own + c * target.stride(2) * bytes, given + c * added.stride(2) * bytes,
                                       static_cast<size_t>(length));
                         }
                       }
                     });
    noteWrite(buffer);
  } else {
    target.copy_(added);
  }
  return wrapTensor(*call.engine, call.env, own.narrow(2, 0, column + columns));
}

}  // namespace

void defineAttention(napi_env env, napi_value exports, Engine* engine) {
  define(env, exports, engine, "decodeAttention", decodeAttention);
  define(env, exports, engine, "appendColumns", appendColumns);
}

}  // namespace astra
