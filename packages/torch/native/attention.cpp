// Attention of one new token a row in one pass over its cached keys and values, and how these are put there.
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

constexpr int64_t kMostHeadSize = 256;
// Views that repeat one number can claim any size. Up to here no product of sizes overflows; beyond it nobody decodes.
constexpr int64_t kMostQueries = int64_t{1} << 24, kMostColumns = int64_t{1} << 30;
constexpr int64_t kBlock = 4;  // columns whose values are added together, counted from column 0

// Rows whose first columns hold the same numbers, and the heads of all of them that share keys and values.
struct Cluster {
  int64_t queries;    // rows · heads
  int64_t columns;    // S, up to the end of the row that reaches furthest
  int64_t size;
  float* query;       // [queries, E], scaled
  float* scores;      // [queries, S]
  float* sums;        // [queries, E]
};

// Columns `from` … `to` − 1, read once for queries `first` … `first` + `count` − 1.
template <typename Stored>
struct Stretch {
  const Stored *key, *value;  // of column 0
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

template <int64_t fixedSize, typename Stored>
ASTRA_INLINE void scoresOf(const Cluster& cluster, const Stretch<Stored>& stretch) {
  const int64_t size = fixedSize > 0 ? fixedSize : cluster.size;
  float key[kMostHeadSize];
  for (int64_t s = stretch.from; s < stretch.to; ++s) {
    const Stored* __restrict stored = stretch.key + s * stretch.keyStride;
    const Stored* value = stretch.value + s * stretch.valueStride;
    const Stored* later = stored + std::min<int64_t>(16, stretch.to - 1 - s) * stretch.keyStride;
    // The values, and keys further on, come from memory while these keys are worked on.
    for (int64_t e = 0; e < size; e += 64 / static_cast<int64_t>(sizeof(Stored))) {
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

ASTRA_VECTOR_LOOP(void, addScores, (const Cluster& cluster, const Stretch<Number>& stretch), (cluster, stretch)) {
  if (cluster.size == 64) return scoresOf<64>(cluster, stretch);
  if (cluster.size == 128) return scoresOf<128>(cluster, stretch);
  scoresOf<0>(cluster, stretch);
}

template <int64_t fixedSize, typename Stored>
ASTRA_INLINE void valuesOf(const Cluster& cluster, const Stretch<Stored>& stretch) {
  const int64_t size = fixedSize > 0 ? fixedSize : cluster.size, stride = stretch.valueStride;
  float values[kBlock * kMostHeadSize];
  for (int64_t s = stretch.from - stretch.from % kBlock; s < stretch.to; s += kBlock) {
    const int64_t present = std::min(kBlock, stretch.to - s);
    // Of the first block some may not be meant; their weights are 0.
    std::fill(values, values + std::max<int64_t>(0, stretch.from - s) * size, 0.0f);
    for (int64_t at = std::max<int64_t>(0, stretch.from - s); at < present; ++at) {
      const Stored* __restrict stored = stretch.value + (s + at) * stride;
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

ASTRA_VECTOR_LOOP(void, addValues, (const Cluster& cluster, const Stretch<Number>& stretch), (cluster, stretch)) {
  if (cluster.size == 64) return valuesOf<64>(cluster, stretch);
  if (cluster.size == 128) return valuesOf<128>(cluster, stretch);
  valuesOf<0>(cluster, stretch);
}

// The columns that one query row attends to, `from` … `to` − 1 of a row of the keys.
struct Range {
  int32_t row, from, to;
};

// Which columns of which rows hold the same numbers, as the caller says: `order` lists all rows, cluster by cluster, and
// each piece is [row to read, from, to or −1 for the end, place in the order, count]. A cluster begins with a piece from
// column 0; the pieces of each row follow one another up to its end.
struct Sharing {
  struct Piece {
    int64_t row, from, to, first, count;
  };
  std::vector<int64_t> order;
  std::vector<Piece> pieces;
  std::vector<size_t> clusters;  // places of their first pieces, and the number of pieces

  // Every row by itself.
  Sharing(const Range* ranges, int64_t rows) {
    for (int64_t row = 0; row < rows; ++row) {
      order.push_back(row);
      clusters.push_back(pieces.size());
      pieces.push_back({row, 0, ranges[row].to, row, 1});
    }
    clusters.push_back(pieces.size());
  }

  Sharing(const Range* ranges, int64_t rows, const at::Tensor& orderTensor, const at::Tensor& pieceTensor) {
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
      Piece piece{number[0], number[1], number[2], number[3], number[4]};
      if (piece.row < 0 || piece.row >= rows || piece.count < 1 || piece.first < 0 || piece.first > rows - piece.count ||
          piece.from < 0) {
        refuse();
      }
      if (piece.to >= 0 && piece.to % kBlock != 0) refuse();
      if (piece.to < 0) {
        if (piece.count != 1) refuse();
        piece.to = ranges[piece.row].to;
      }
      if (piece.from == 0) {
        if (piece.first != end) refuse();
        begin = end;
        end = begin + piece.count;
        clusters.push_back(pieces.size());
      }
      if (piece.to <= piece.from || piece.first < begin || piece.first + piece.count > end) refuse();
      for (int64_t place = piece.first; place < piece.first + piece.count; ++place) {
        const int64_t row = order[static_cast<size_t>(place)];
        if (told[static_cast<size_t>(row)] != piece.from || piece.to > ranges[row].to) refuse();
        told[static_cast<size_t>(row)] = piece.to;
      }
      pieces.push_back(piece);
    }
    for (int64_t row = 0; row < rows; ++row) {
      if (told[static_cast<size_t>(row)] != ranges[row].to) refuse();
    }
    clusters.push_back(pieces.size());
  }

  [[noreturn]] static void refuse() { throw Refusal("the pieces do not tell every column of every row once"); }
};

template <typename Stored>
struct Decoding {
  const at::Tensor &query, &key, &value, &result;
  const Range* ranges;
  const Sharing& sharing;
  float scale;

  static Stored* numbers(const at::Tensor& tensor) { return static_cast<Stored*>(tensor.data_ptr()); }
  int64_t heads() const { return query.size(1); }
  int64_t groups() const { return key.size(1); }
  int64_t size() const { return query.size(3); }
  int64_t shared() const { return heads() / groups(); }
  int64_t clusters() const { return static_cast<int64_t>(sharing.clusters.size()) - 1; }
  int64_t rowOf(const Sharing::Piece& whole, int64_t query) const {
    return sharing.order[static_cast<size_t>(whole.first + query / shared())];
  }
  const Sharing::Piece& wholeOf(int64_t cluster) const {
    return sharing.pieces[sharing.clusters[static_cast<size_t>(cluster)]];
  }
  int64_t columnsOf(int64_t cluster) const {
    const Sharing::Piece& whole = wholeOf(cluster);
    int64_t most = 0;
    for (int64_t place = whole.first; place < whole.first + whole.count; ++place) {
      most = std::max<int64_t>(most, ranges[sharing.order[static_cast<size_t>(place)]].to);
    }
    return most;
  }
  // Numbers that one cluster needs: scaled queries, sums and scores.
  int64_t roomOf(int64_t cluster) const {
    return wholeOf(cluster).count * shared() * (2 * size() + columnsOf(cluster));
  }

  void attend(int64_t at, int64_t group, float* room) const {
    const Sharing::Piece& whole = wholeOf(at);
    Cluster cluster{whole.count * shared(), columnsOf(at), size(), nullptr, nullptr, nullptr};
    cluster.query = room;
    cluster.sums = cluster.query + cluster.queries * size();
    cluster.scores = cluster.sums + cluster.queries * size();
    std::fill(cluster.sums, cluster.scores, 0.0f);
    for (int64_t q = 0; q < cluster.queries; ++q) {
      const Stored* stored = numbers(query) + rowOf(whole, q) * query.stride(0) +
                             (group * shared() + q % shared()) * query.stride(1);
      for (int64_t e = 0; e < size(); ++e) cluster.query[q * size() + e] = widen(stored[e]) * scale;
    }
    const auto forEachStretch = [&](const auto& work) {
      for (size_t p = sharing.clusters[static_cast<size_t>(at)]; p < sharing.clusters[static_cast<size_t>(at) + 1]; ++p) {
        const Sharing::Piece& piece = sharing.pieces[p];
        int64_t from = piece.to;  // no row of the piece looks further back
        for (int64_t place = piece.first; place < piece.first + piece.count; ++place) {
          from = std::min<int64_t>(from, ranges[sharing.order[static_cast<size_t>(place)]].from);
        }
        from = std::max(piece.from, from);
        if (from >= piece.to) continue;
        const int64_t row = ranges[piece.row].row;
        work(cluster, Stretch<Stored>{numbers(key) + row * key.stride(0) + group * key.stride(1),
                                      numbers(value) + row * value.stride(0) + group * value.stride(1), key.stride(2),
                                      value.stride(2), from, piece.to, (piece.first - whole.first) * shared(),
                                      piece.count * shared()});
      }
    };
    forEachStretch([](const Cluster& c, const Stretch<Stored>& stretch) { addScores(c, stretch); });
    std::vector<float> totals(static_cast<size_t>(cluster.queries));
    for (int64_t q = 0; q < cluster.queries; ++q) {
      const Range& range = ranges[rowOf(whole, q)];
      float* const scores = cluster.scores + q * cluster.columns;
      const int64_t count = range.to - range.from;
      totals[static_cast<size_t>(q)] = weigh(scores + range.from, count, greatestOf(scores + range.from, count));
      std::fill(scores, scores + range.from, 0.0f);
    }
    forEachStretch([](const Cluster& c, const Stretch<Stored>& stretch) { addValues(c, stretch); });
    for (int64_t q = 0; q < cluster.queries; ++q) {
      Stored* to = numbers(result) + (rowOf(whole, q) * heads() + group * shared() + q % shared()) * size();
      for (int64_t e = 0; e < size(); ++e) {
        const float sum = cluster.sums[q * size() + e] / totals[static_cast<size_t>(q)];
        if constexpr (sizeof(Stored) == 2) {
          to[e] = narrow(sum);
        } else {
          to[e] = sum;
        }
      }
    }
  }

  void run() const {
    int64_t most = 0, columns = 0;
    for (int64_t cluster = 0; cluster < clusters(); ++cluster) {
      most = std::max(most, roomOf(cluster));
      columns += columnsOf(cluster);
    }
    const at::Tensor rooms = at::empty({at::get_num_threads(), most}, query.options().dtype(at::kFloat));
    const int64_t piece = std::max<int64_t>(1, (int64_t{1} << 15) * clusters() / (columns * size() * shared()));
    inPieces(clusters() * groups(), piece, [&](int64_t from, int64_t to) {
      float* const room = static_cast<float*>(rooms.data_ptr()) + at::get_thread_num() * most;
      for (int64_t task = from; task < to; ++task) attend(task / groups(), task % groups(), room);
    });
  }
};

// decodeAttention(query, key, value, ranges, scale, order, pieces): attention of one new token a row over a
// range of columns of its own; null where it does not apply
napi_value decodeAttention(Call& call) {
  const at::Tensor query = call.tensor(0, "query");
  const at::Tensor key = call.tensor(1, "key");
  const at::Tensor value = call.tensor(2, "value");
  const at::Tensor given = call.tensor(3, "ranges");
  const double scale = call.number(4, "scale");
  const at::AutoGradMode mode(false);
  const c10::ScalarType type = query.scalar_type();
  if (type != at::kBFloat16 && type != at::kFloat) return makeNull(call.env);
  for (const at::Tensor* tensor : {&query, &key, &value}) {
    if (!isPlain(*tensor, type) || tensor->dim() != 4 || tensor->stride(3) != 1) return makeNull(call.env);
  }
  const int64_t batch = query.size(0), heads = query.size(1), size = query.size(3);
  const int64_t groups = key.size(1), columns = key.size(2);
  if (query.size(2) != 1 || batch < 1 || heads < 1 || size < 1 || size > kMostHeadSize || columns < 1 || groups < 1 ||
      heads % groups != 0 || key.size(3) != size || value.sizes() != key.sizes()) {
    return makeNull(call.env);
  }
  if (batch * heads > kMostQueries || columns > kMostColumns) return makeNull(call.env);
  if (!isPlain(given, at::kInt) || given.dim() != 2 || given.size(0) != batch || given.size(1) != 3) {
    throw Refusal("ranges must be int32[" + std::to_string(batch) + ", 3], got " + describeTensor(given));
  }
  const at::Tensor plainRanges = given.contiguous();
  const auto* ranges = static_cast<const Range*>(plainRanges.data_ptr());
  for (int64_t row = 0; row < batch; ++row) {
    const Range& range = ranges[row];
    if (range.row < 0 || range.row >= key.size(0) || range.from < 0 || range.from >= range.to || range.to > columns) {
      throw Refusal("ranges must be [row, from, to] within " + describeTensor(key) + ", got [" +
                    std::to_string(range.row) + ", " + std::to_string(range.from) + ", " + std::to_string(range.to) +
                    "]");
    }
  }
  const Sharing sharing = call.absent(5)
                              ? Sharing(ranges, batch)
                              : Sharing(ranges, batch, call.tensor(5, "order"), call.tensor(6, "pieces"));
  at::Tensor result = at::empty({batch, 1, heads * size}, query.options());
  if (type == at::kFloat) {
    Decoding<float>{query, key, value, result, ranges, sharing, static_cast<float>(scale)}.run();
  } else {
    Decoding<uint16_t>{query, key, value, result, ranges, sharing, static_cast<float>(scale)}.run();
  }
  return wrapTensor(*call.engine, call.env, std::move(result));
}

// Whether the numbers of `from` may be moved to `to` as bytes, a head at a time.
bool liesByHeads(const at::Tensor& to, const at::Tensor& from) {
  const c10::ScalarType type = to.scalar_type();
  return isPlain(to, type) && isPlain(from, type) && to.stride(3) == 1 && from.stride(3) == 1 &&
         isApart(to, from);
}

// Some columns of one row that are taken from another: [to row, to column, from row, from column, count].
struct Run {
  int32_t toRow, toColumn, fromRow, fromColumn, count;
};

// copyColumns(to, from, runs): writes columns of `from` [r, H, c, E] over columns of `to` [R, H, C, E], as runs int32
// [count, 5] say; no two of them write to the same place. Whether it was done: not unless bytes can be copied
napi_value copyColumns(Call& call) {
  const at::AutoGradMode mode(false);
  const at::Tensor to = call.tensor(0, "to");
  const at::Tensor from = call.tensor(1, "from");
  const at::Tensor given = call.tensor(2, "runs");
  if (to.dim() != 4 || from.dim() != 4 || to.size(1) != from.size(1) || to.size(3) != from.size(3) ||
      !to.is_contiguous()) {
    throw Refusal("columns must be [rows, heads, columns, size], and those written to contiguous, got " +
                  describeTensor(to) + " and " + describeTensor(from));
  }
  if (!isPlain(given, at::kInt) || given.dim() != 2 || given.size(1) != 5) {
    throw Refusal("runs must be int32[count, 5], got " + describeTensor(given));
  }
  const at::Tensor plainRuns = given.contiguous();
  const auto* runs = static_cast<const Run*>(plainRuns.data_ptr());
  const int64_t count = given.size(0), heads = to.size(1);
  int64_t columns = 0;
  for (const Run* run = runs; run < runs + count; ++run) {
    const auto fits = [run](const at::Tensor& tensor, int32_t row, int32_t column) {
      return row >= 0 && row < tensor.size(0) && column >= 0 && column <= tensor.size(2) - run->count;
    };
    if (run->count < 0 || !fits(to, run->toRow, run->toColumn) || !fits(from, run->fromRow, run->fromColumn)) {
      throw Refusal("a run reaches beyond " + describeTensor(to) + " or " + describeTensor(from));
    }
    columns += run->count;
  }
  if (!liesByHeads(to, from)) return makeBoolean(call.env, false);
  const auto bytes = static_cast<int64_t>(c10::elementSize(to.scalar_type()));
  auto* const target = static_cast<char*>(to.data_ptr());
  const auto* const source = static_cast<const char*>(from.data_ptr());
  const int64_t length = to.size(3) * bytes;
  at::parallel_for(0, count, std::max<int64_t>(1, (1 << 16) * count / (columns * heads * length + 1)),
                   [&](int64_t first, int64_t last) {
                     for (const Run* run = runs + first; run < runs + last; ++run) {
                       for (int64_t head = 0; head < heads; ++head) {
                         char* own = target + (run->toRow * to.stride(0) + head * to.stride(1)) * bytes;
                         const char* other = source + (run->fromRow * from.stride(0) + head * from.stride(1)) * bytes;
                         for (int64_t column = 0; column < run->count; ++column) {
                           std::memcpy(own + (run->toColumn + column) * to.stride(2) * bytes,
                                       other + (run->fromColumn + column) * from.stride(2) * bytes,
                                       static_cast<size_t>(length));
                         }
                       }
                     }
                   });
  noteWrite(to);
  return makeBoolean(call.env, true);
}

const Exports exports{{"decodeAttention", decodeAttention}, {"copyColumns", copyColumns}};

}  // namespace

}  // namespace astra
