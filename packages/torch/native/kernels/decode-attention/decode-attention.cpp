// Attention of one new token per row in one pass over its cached keys and values, and writing these to the cache.
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
#include "kernels/plain-tensor.h"
#include "kernels/vector-math.h"

namespace astra {
namespace {

constexpr int64_t kMostHeadSize = 256;
// Views that repeat one number can have any size. Up to this limit, beyond any real use, no product of sizes overflows.
constexpr int64_t kMostQueries = int64_t{1} << 24, kMostColumns = int64_t{1} << 30;

// Rows whose first columns contain the same numbers, and all their heads that share keys and values.
struct Cluster {
  int64_t queries;  // rows · heads
  int64_t columns;  // S, up to the end of the row that reaches furthest
  int64_t size;     // E
  int64_t padded;   // of a query, with zeros to whole registers, and of its sums
  float* query;     // [queries, padded], scaled
  float* scores;    // [queries, S]
  float* sums;      // [queries, padded]
  float* totals;    // [queries], of the weights
};

// Columns `from` … `to` − 1, read once for queries `first` … `first` + `count` − 1.
template <typename Stored>
struct Stretch {
  const Stored *key, *value;  // of column 0
  int64_t keyStride, valueStride, nextKeys, from, to, first, count;  // nextKeys: how far the next head's keys lie
};

// The end of a head whose size is not a multiple of a register, padded with zeros.
template <int VL, typename Stored>
ASTRA_INLINE typename Vector<VL>::Floats restOf(const Stored* row, int64_t e, int64_t size) {
  Stored rest[VL] = {};
  std::copy(row + e, row + size, rest);
  return widened<VL>(rest);
}

// Scores of NQ queries with NC columns, KC at once, whose sums stay in registers: each is summed in the same order as a
// single one.
template <int VL, int NQ, int fixedSize, typename Stored>
ASTRA_INLINE void scoresOf(const Cluster& cluster, const Stretch<Stored>& stretch, int64_t first) {
  using Floats = typename Vector<VL>::Floats;
  constexpr int NC = VL / NQ, KC = VL == 16 ? 1 : NC < 4 ? NC : 4, kLine = 64 / sizeof(Stored);
  const int64_t size = fixedSize > 0 ? fixedSize : cluster.size;
  const auto within = [&](int m) { return std::min(first + m, stretch.first + stretch.count - 1); };  // the last one again
  for (int64_t s = stretch.from; s < stretch.to; s += NC) {
    Floats sums[NQ * NC] = {};
#pragma GCC unroll 16
    for (int c = 0; c < NC; c += KC) {
      const Stored* key[KC];
      for (int k = 0; k < KC; ++k) {
        const int64_t column = std::min(s + c + k, stretch.to - 1);  // the last one several times
        key[k] = stretch.key + column * stretch.keyStride;
        // The values are prefetched while these keys are processed.
        const Stored* value = stretch.value + column * stretch.valueStride;
        for (int64_t e = 0; e < size && first == stretch.first; e += kLine) __builtin_prefetch(value + e, 0, 2);
      }
#pragma GCC unroll 8
      for (int64_t e = 0; e < size; e += VL) {
#pragma GCC unroll 4
        for (int k = 0; k < KC; ++k) {
          const Floats numbers = e + VL <= size ? widened<VL>(key[k] + e) : restOf<VL>(key[k], e, size);
#pragma GCC unroll 4
          for (int m = 0; m < NQ; ++m) {
            sums[m * NC + c + k] += load<Floats>(cluster.query + within(m) * cluster.padded + e) * numbers;
          }
        }
      }
    }
    float scores[NQ * NC];
    sumLanes<VL, NQ * NC>(sums, scores);
    for (int m = 0; m < NQ; ++m) {
      std::copy_n(scores + m * NC, std::min<int64_t>(NC, stretch.to - s),
                  cluster.scores + within(m) * cluster.columns + s);
    }
  }
}

// Adds the weighted values of NE registers of a head to the sums of NQ queries, column after column.
template <int VL, int NQ, int NE, typename Stored>
ASTRA_INLINE void valuesOf(const Cluster& cluster, const Stretch<Stored>& stretch, int64_t first, int64_t& e) {
  using Floats = typename Vector<VL>::Floats;
  const float* weights[NQ];
  float* to[NQ];
  Floats sums[NQ][NE];
  for (int m = 0; m < NQ; ++m) {
    const int64_t q = std::min(first + m, stretch.first + stretch.count - 1);
    weights[m] = cluster.scores + q * cluster.columns;
    to[m] = cluster.sums + q * cluster.padded + e;
    for (int n = 0; n < NE; ++n) sums[m][n] = load<Floats>(to[m] + n * VL);
  }
  const bool isWhole = e + NE * VL <= cluster.size, isFirst = first == stretch.first;
  constexpr int kPerLine = 64 / sizeof(Stored) / VL;  // registers in a line of the caches
  for (int64_t s = stretch.from; s < stretch.to; ++s) {
    const Stored* value = stretch.value + s * stretch.valueStride;
    // The next head's keys are prefetched meanwhile; after the last head, those of the next row.
    const Stored* next = stretch.key + s * stretch.keyStride + stretch.nextKeys;
#pragma GCC unroll 4
    for (int n = 0; n < NE; ++n) {
      const int64_t at = e + n * VL;
      if (isFirst && n % kPerLine == 0) __builtin_prefetch(next + at, 0, 2);
      const Floats numbers = isWhole || n < NE - 1 ? widened<VL>(value + at) : restOf<VL>(value, at, cluster.size);
#pragma GCC unroll 4
      for (int m = 0; m < NQ; ++m) sums[m][n] += weights[m][s] * numbers;
    }
  }
  for (int m = 0; m < NQ; ++m) std::memcpy(to[m], sums[m], sizeof sums[m]);
  e += NE * VL;
}

template <int VL, int NQ, typename Stored>
ASTRA_INLINE void addQueries(const Cluster& cluster, const Stretch<Stored>& stretch, bool isOfKeys) {
  for (int64_t q = stretch.first; q < stretch.first + stretch.count; q += NQ) {
    if (isOfKeys) {
      if (cluster.size == 64) scoresOf<VL, NQ, 64>(cluster, stretch, q);
      else if (cluster.size == 128) scoresOf<VL, NQ, 128>(cluster, stretch, q);
      else scoresOf<VL, NQ, 0>(cluster, stretch, q);
      continue;
    }
    for (int64_t e = 0; e < cluster.size;) {
      const int64_t left = (cluster.size - e + VL - 1) / VL;
      if (left >= 4 && (NQ < 4 || VL == 16)) valuesOf<VL, NQ, 4>(cluster, stretch, q, e);
      else if (left >= 2) valuesOf<VL, NQ, 2>(cluster, stretch, q, e);
      else valuesOf<VL, NQ, 1>(cluster, stretch, q, e);
    }
  }
}

template <int VL, typename Stored>
ASTRA_INLINE void addOn(const Cluster& cluster, const Stretch<Stored>& stretch, bool isOfKeys) {
  if (stretch.count == 1) return addQueries<VL, 1>(cluster, stretch, isOfKeys);
  if (stretch.count < 4) return addQueries<VL, 2>(cluster, stretch, isOfKeys);
  addQueries<VL, 4>(cluster, stretch, isOfKeys);
}

ASTRA_PRODUCT_LOOP(void, addStretch, (const Cluster& cluster, const Stretch<Number>& stretch, bool isOfKeys),
                   (cluster, stretch, isOfKeys)) {
  if constexpr (VL > 8) {
    if (cluster.size % VL != 0) return addOn<8>(cluster, stretch, isOfKeys);
  }
  addOn<VL>(cluster, stretch, isOfKeys);
}

ASTRA_VECTOR_LOOP(void, scaled, (const Number* __restrict from, int64_t size, float scale, float* __restrict to),
                  (from, size, scale, to)) {
  for (int64_t e = 0; e < size; ++e) to[e] = widen(from[e]) * scale;
}

ASTRA_VECTOR_LOOP(void, divided, (const float* __restrict from, int64_t size, float total, Number* __restrict to),
                  (from, size, total, to)) {
  for (int64_t e = 0; e < size; ++e) store(from[e] / total, to[e]);
}

// The columns that one query row attends to, `from` … `to` − 1 of a row of the keys.
struct Range {
  int32_t row, from, to;
};

// Which columns of which rows contain the same numbers, as given by the caller: `order` lists all rows, cluster by
// cluster, and each piece is [row to read, from, to or −1 for the end, place in the order, count]. A cluster begins
// with a piece from column 0; the pieces of each row follow one another up to its end.
struct Sharing {
  struct Piece {
    int64_t row, from, to, first, count;
  };
  std::vector<int64_t> order;
  std::vector<Piece> pieces;
  std::vector<size_t> clusters;  // places of their first pieces, and the number of pieces

  // Every row separately.
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
    // The number of columns listed so far for each row; a row of another cluster starts at 0 again.
    std::vector<int64_t> told(static_cast<size_t>(rows), 0);
    int64_t begin = 0, end = 0;
    for (int64_t at = 0; at < plainPieces.size(0); ++at, number += 5) {
      Piece piece{number[0], number[1], number[2], number[3], number[4]};
      if (piece.row < 0 || piece.row >= rows || piece.count < 1 || piece.first < 0 || piece.first > rows - piece.count ||
          piece.from < 0) {
        refuse();
      }
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
  int64_t padded() const { return (size() + 15) / 16 * 16; }
  // Memory that one cluster needs: scaled queries, sums, totals and scores.
  int64_t roomOf(int64_t cluster) const {
    return wholeOf(cluster).count * shared() * (2 * padded() + 1 + columnsOf(cluster));
  }

  void attend(int64_t at, int64_t group, float* room) const {
    const Sharing::Piece& whole = wholeOf(at);
    Cluster cluster{whole.count * shared(), columnsOf(at), size(), padded(), room, nullptr, nullptr, nullptr};
    cluster.sums = cluster.query + cluster.queries * padded();
    cluster.totals = cluster.sums + cluster.queries * padded();
    cluster.scores = cluster.totals + cluster.queries;
    std::fill(cluster.query, cluster.totals, 0.0f);
    for (int64_t q = 0; q < cluster.queries; ++q) {
      const Stored* stored = numbers(query) + rowOf(whole, q) * query.stride(0) +
                             (group * shared() + q % shared()) * query.stride(1);
      scaled(stored, size(), scale, cluster.query + q * padded());
    }
    const auto addAll = [&](bool isOfKeys) {
      for (size_t p = sharing.clusters[static_cast<size_t>(at)]; p < sharing.clusters[static_cast<size_t>(at) + 1]; ++p) {
        const Sharing::Piece& piece = sharing.pieces[p];
        int64_t from = piece.to;  // no row of the piece looks further back
        for (int64_t place = piece.first; place < piece.first + piece.count; ++place) {
          from = std::min<int64_t>(from, ranges[sharing.order[static_cast<size_t>(place)]].from);
        }
        from = std::max(piece.from, from);
        if (from >= piece.to) continue;
        const auto headOf = [&](const at::Tensor& tensor) {
          return numbers(tensor) + ranges[piece.row].row * tensor.stride(0) + group * tensor.stride(1);
        };
        addStretch<Stored>(cluster, {headOf(key), headOf(value), key.stride(2), value.stride(2), key.stride(1), from, piece.to,
                                     (piece.first - whole.first) * shared(), piece.count * shared()}, isOfKeys);
      }
    };
    addAll(true);
    for (int64_t q = 0; q < cluster.queries; ++q) {
      const Range& range = ranges[rowOf(whole, q)];
      float* const scores = cluster.scores + q * cluster.columns;
      const int64_t count = range.to - range.from;
      cluster.totals[q] = weigh(scores + range.from, count, greatestOf(scores + range.from, count));
      std::fill(scores, scores + range.from, 0.0f);
    }
    addAll(false);
    for (int64_t q = 0; q < cluster.queries; ++q) {
      Stored* to = numbers(result) + (rowOf(whole, q) * heads() + group * shared() + q % shared()) * size();
      divided(cluster.sums + q * padded(), size(), cluster.totals[q], to);
    }
  }

  void run() const {
    int64_t most = 0, columns = 0;
    for (int64_t cluster = 0; cluster < clusters(); ++cluster) {
      most = std::max(most, roomOf(cluster));
      columns += columnsOf(cluster);
    }
    const at::Tensor rooms = at::empty({at::get_num_threads(), most}, query.options().dtype(at::kFloat));
    // Long pieces, since each task prefetches the start of the next one, but enough of them for all threads.
    const int64_t tasks = clusters() * groups(), numbers = std::max<int64_t>(1, columns * size() * shared() / clusters());
    const int64_t piece = std::max<int64_t>(1, std::clamp(tasks / (4 * at::get_num_threads()), (1 << 15) / numbers,
                                                          (1 << 18) / numbers));
    inPieces(tasks, piece, [&](int64_t from, int64_t to) {
      float* const room = static_cast<float*>(rooms.data_ptr()) + at::get_thread_num() * most;
      for (int64_t task = from; task < to; ++task) attend(task / groups(), task % groups(), room);
    });
  }
};

// decodeAttention(query, key, value, ranges, scale, order, pieces): attention of one new token per row over its own
// range of columns; null where it does not apply
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

// Columns of one row that are copied from another: [to row, to column, from row, from column, count].
struct Run {
  int32_t toRow, toColumn, fromRow, fromColumn, count;
};

// copyColumns(to, from, runs): writes columns of `from` [r, H, c, E] over columns of `to` [R, H, C, E], as runs int32
// [count, 5] say; no two of them write to the same place. Returns false if the data cannot be copied as bytes
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
