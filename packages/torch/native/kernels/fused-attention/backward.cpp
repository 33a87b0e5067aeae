// The backward pass of attention on tiles: fused-attention.h.
#include <algorithm>

#include "kernels/fused-attention/tiles.h"

namespace astra::attention {

#ifdef ASTRA_TILES
namespace {

struct BackwardRoom {
  BackwardRoom(const Extent& extent, uint16_t* memory)
      : most(mostOf(extent)), seen(static_cast<size_t>(extent.keyBlocks)),
        places(static_cast<size_t>(most * extent.keyBlocks)) {
    const int64_t all = extent.keyBlocks * extent.sizeBlocks;
    keys = take(memory, all);
    values = take(memory, all);
    keyPairs = take(memory, all);
    query = take(memory, extent.sizeBlocks);
    outputGradient = take(memory, extent.sizeBlocks);
    queryColumns = take(memory, most * extent.sizeBlocks);
    outputGradientColumns = take(memory, most * extent.sizeBlocks);
    kept = take(memory, 2 * most * extent.keyBlocks);
    scoreGradients = take(memory, extent.keyBlocks);
    scores = takeSums(memory, 4);
    sums = takeSums(memory, extent.shared == 1 ? 2 * all : 0);
  }
  static int64_t mostOf(const Extent& extent) {
    return std::clamp<int64_t>(kMostKeptBlocks / extent.keyBlocks, 1, std::min(kMostQueryBlocks, extent.queryBlocks));
  }
  static int64_t blocksOf(const Extent& extent) {
    const int64_t all = extent.keyBlocks * extent.sizeBlocks, most = mostOf(extent);
    const int64_t sums = extent.shared == 1 ? 4 * all : 0;
    return 3 * all + sums + 2 * (1 + most) * extent.sizeBlocks + (2 * most + 1) * extent.keyBlocks + 8;
  }

  int64_t most;                    // blocks of queries between two sums over queries
  const Work* arranged = nullptr;  // whose keys and values are here, and of which of its groups
  int64_t arrangedGroup = 0;
  uint16_t *keys, *values;         // by words
  uint16_t* keyPairs;              // by pairs
  uint16_t *query, *outputGradient;  // lines of one block of queries
  uint16_t *queryColumns, *outputGradientColumns;
  uint16_t* kept;                  // probabilities and the scores' gradients, by pairs of queries
  uint16_t* scoreGradients;        // lines
  float* scores;                   // scores, and gradients of probabilities, of two blocks
  float* sums;                     // of one head, where no other shares its keys
  std::vector<int64_t> seen;       // blocks of keys
  std::vector<int64_t> places;     // [blocks of queries, blocks of keys] of what is kept, or −1
};

struct Backward {
  const Work& work;
  Heads output, outputGradient;  // of the forward pass, and what arrives for it
  const float *rowMax, *logRowSum;  // [B, H, all T], of the forward pass
  Heads query, key, value;  // results
  // Sums for each head that shares keys with others: [B, H, values and keys, blocks of keys, blocks of E, 32 of E, 32
  // keys]
  float* sums;
};

// A quarter of the products with one block of keys and values: scores, and gradients of probabilities.
ASTRA_TILE_INLINE void productsInPart(const BackwardRoom& room, int64_t sizeBlocks, int64_t keyBlock, int part,
                                      float* to) {
  float* const sums = to + part / 2 * kBlockNumbers;
  const uint16_t* left = part < 2 ? room.query : room.outputGradient;
  const uint16_t* right = (part < 2 ? room.keys : room.values) + keyBlock * sizeBlocks * kBlockNumbers;
  const int64_t middle = (sizeBlocks + 1) / 2;
  if (part % 2 == 0) beginSums(sums);
  for (int64_t at = part % 2 == 0 ? 0 : middle; at < (part % 2 == 0 ? middle : sizeBlocks); ++at) {
    addProduct(left + at * kBlockNumbers, right + at * kBlockNumbers, sums);
  }
  if (part % 2 == 1) storeSums(sums);
}

// A quarter of the pairs of rows of one block: from S and dP to P and dS.
ASTRA_TILE_INLINE void gradientsInPart(const float* scores, int part, __m512 factor, const float* shifts,
                                           const float* logRowSum, const float* delta, uint16_t* kept,
                                           uint16_t* gradientLines) {
  const float* probabilityGradients = scores + kBlockNumbers;
  for (int64_t pair = part * kTile / 4; pair < (part + 1) * kTile / 4; ++pair) {
    __m512i probabilities[2], gradients[2];
    for (int64_t i = 0; i < 2; ++i) {
      const int64_t row = 2 * pair + i;
      const __m512 shift = _mm512_set1_ps(shifts[row]), rowDelta = _mm512_set1_ps(delta[row]);
      const __m512 logSum = _mm512_set1_ps(logRowSum[row]);
      const float *score = scores + row * kBlockSize, *probabilityGradient = probabilityGradients + row * kBlockSize;
      const __m512 first =
          powerOf2(_mm512_fmsub_ps(_mm512_sub_ps(_mm512_load_ps(score), shift), factor, logSum));
      const __m512 second =
          powerOf2(_mm512_fmsub_ps(_mm512_sub_ps(_mm512_load_ps(score + kTile), shift), factor, logSum));
      probabilities[i] = rounded(first, second);
      gradients[i] = rounded(_mm512_mul_ps(first, _mm512_sub_ps(_mm512_load_ps(probabilityGradient), rowDelta)),
                             _mm512_mul_ps(second, _mm512_sub_ps(_mm512_load_ps(probabilityGradient + kTile), rowDelta)));
      _mm512_store_si512(gradientLines + row * kBlockSize, gradients[i]);
    }
    uint16_t* to = kept + pair * 32;
    _mm512_store_si512(to, _mm512_unpacklo_epi16(probabilities[0], probabilities[1]));
    _mm512_store_si512(to + 512, _mm512_unpackhi_epi16(probabilities[0], probabilities[1]));
    _mm512_store_si512(to + kBlockNumbers, _mm512_unpacklo_epi16(gradients[0], gradients[1]));
    _mm512_store_si512(to + kBlockNumbers + 512, _mm512_unpackhi_epi16(gradients[0], gradients[1]));
  }
}

// Recomputes the scores, and from them and the output's gradients computes the gradients of the scores and the query.
// Probabilities and gradients of scores are kept by pairs of queries for the sums over queries; the keys of a block are
// then in the order produced by interleaving within 128-bit lanes.
ASTRA_TILE_CODE void backwardBlock(const Backward& backward, BackwardRoom& room, int64_t batch, int64_t head,
                                        int64_t queryBlock, int64_t place, int64_t& kept) {
  const Work& work = backward.work;
  const int64_t shared = work.shared(), group = batch * work.groups + head / shared, within = head % shared;
  const int64_t line = queryBlock * kBlockSize, rows = std::min(kBlockSize, work.queries - line);
  const Rows query = work.query.at(batch, head), gradient = backward.outputGradient.at(batch, head);
  const Rows output = backward.output.at(batch, head);
  arrange<Form::lines>(query, line, room.query);
  arrange<Form::lines>(gradient, line, room.outputGradient);
  arrange<Form::columns>(query, line, room.queryColumns + place * work.sizeBlocks * kBlockNumbers);
  arrange<Form::columns>(gradient, line, room.outputGradientColumns + place * work.sizeBlocks * kBlockNumbers);
  isWritten();

  // For missing rows: probabilities 0.
  float shifts[kBlockSize], logRowSum[kBlockSize], delta[kBlockSize];
  const int64_t firstPlace = work.place(batch, head, line);
  for (int64_t row = 0; row < kBlockSize; ++row) {
    shifts[row] = row < rows ? backward.rowMax[firstPlace + row] : kShiftOfNothing;
    logRowSum[row] = row < rows ? backward.logRowSum[firstPlace + row] : 0;
    __m512 sum = _mm512_setzero_ps();
    for (int64_t column = 0; row < rows && column < work.size; column += kTile) {
      const int64_t present = work.size - column;
      const __mmask16 mask = static_cast<__mmask16>(present >= kTile ? ~0u : (1u << present) - 1);
      const __m512 a = loadWide(gradient.first + (line + row) * gradient.stride + column, mask);
      const __m512 b = loadWide(output.first + (line + row) * output.stride + column, mask);
      sum = _mm512_fmadd_ps(a, b, sum);
    }
    delta[row] = _mm512_reduce_add_ps(sum);
  }

  const uint8_t* kinds = work.bias.kindsOf(group, within * work.queryBlocks + queryBlock);
  const __m512 factor = _mm512_set1_ps(work.scale * kLog2E);
  int64_t count = 0;
  const int64_t firstKept = kept;
  for (int64_t keyBlock = 0; keyBlock < work.keyBlocks; ++keyBlock) {
    const bool isSeen = (kinds[keyBlock] & kHasAllowed) != 0;
    room.places[static_cast<size_t>(place * work.keyBlocks + keyBlock)] = isSeen ? kept++ : -1;
    if (isSeen) room.seen[static_cast<size_t>(count++)] = keyBlock;
  }
  // The tiles multiply one block while the previous one is processed on vector registers.
  for (int part = 0; part < 4 && count > 0; ++part) {
    productsInPart(room, work.sizeBlocks, room.seen[0], part, room.scores);
  }
  for (int64_t at = 0; at < count; ++at) {
    const int64_t keyBlock = room.seen[static_cast<size_t>(at)];
    float* scores = room.scores + at % 2 * 2 * kBlockNumbers;
    float* next = room.scores + (at + 1) % 2 * 2 * kBlockNumbers;
    if ((kinds[keyBlock] & kHasBias) != 0) addBias(work, group, within, queryBlock, keyBlock, scores);
    for (int part = 0; part < 4; ++part) {
      if (at + 1 < count) {
        productsInPart(room, work.sizeBlocks, room.seen[static_cast<size_t>(at + 1)], part, next);
      }
      gradientsInPart(scores, part, factor, shifts, logRowSum, delta, room.kept + 2 * (firstKept + at) * kBlockNumbers,
                          room.scoreGradients + at * kBlockNumbers);
    }
  }
  isWritten();

  float factors[kBlockSize];
  std::fill_n(factors, kBlockSize, work.scale);
  for (int64_t column = 0; column < work.sizeBlocks; ++column) {
    beginSums(room.scores);
    for (int64_t at = 0; at < count; ++at) {
      const int64_t keyBlock = room.seen[static_cast<size_t>(at)];
      addProduct(room.scoreGradients + at * kBlockNumbers,
                 room.keyPairs + (keyBlock * work.sizeBlocks + column) * kBlockNumbers, room.scores);
    }
    storeSums(room.scores);
    writeLines(room.scores, factors, backward.query.at(batch, head), line, column * kBlockSize);
  }
}

// Sums over blocks of queries for 16 keys and for as many of E: the stored blocks are read once, everything else is in
// the first-level cache. `left` and `to` point to the first tile of E, `right` to the keys.
template <int tiles>
ASTRA_TILE_INLINE void sumTiles(const Work& work, const BackwardRoom& room, int64_t count, int64_t keyBlock, bool begin,
                                const uint16_t* left, const uint16_t* right, float* to) {
  const auto keptAt = [&](int64_t place) { return room.places[static_cast<size_t>(place * work.keyBlocks + keyBlock)]; };
  if (!hasTiles()) {
    for (int line = 0; line < tiles * kTile && begin; ++line) std::fill_n(to + line * kBlockSize, kTile, 0.0f);
    for (int64_t place = 0; place < count; ++place) {
      const uint16_t* columns = left + place * work.sizeBlocks * kBlockNumbers;
      for (int tile = 0; tile < tiles && keptAt(place) >= 0; ++tile) {
        addPairs<kTile, 1>({columns + tile * 512, 0}, {right + 2 * keptAt(place) * kBlockNumbers, 0, 0}, 1, false,
                           {to + tile * 512, kBlockSize, 0});
      }
    }
    return;
  }
  if (begin) {
    _tile_zero(0);
    _tile_zero(1);
    _tile_zero(2);
    _tile_zero(3);
  } else {
    _tile_loadd(0, to, 128);
    _tile_loadd(1, to + 512, 128);
    if constexpr (tiles > 2) _tile_loadd(2, to + 1024, 128);
    if constexpr (tiles > 2) _tile_loadd(3, to + 1536, 128);
  }
  for (int64_t place = 0; place < count; ++place) {
    const int64_t kept = keptAt(place);
    if (kept < 0) continue;
    const uint16_t* columns = left + place * work.sizeBlocks * kBlockNumbers;
    _tile_loadd(7, right + 2 * kept * kBlockNumbers, 64);
    _tile_loadd(4, columns, 64);
    _tile_dpbf16ps(0, 4, 7);
    _tile_loadd(5, columns + 512, 64);
    _tile_dpbf16ps(1, 5, 7);
    if constexpr (tiles > 2) {
      _tile_loadd(6, columns + 1024, 64);
      _tile_dpbf16ps(2, 6, 7);
      _tile_loadd(4, columns + 1536, 64);
      _tile_dpbf16ps(3, 4, 7);
    }
  }
  _tile_stored(0, to, 128);
  _tile_stored(1, to + 512, 128);
  if constexpr (tiles > 2) _tile_stored(2, to + 1024, 128);
  if constexpr (tiles > 2) _tile_stored(3, to + 1536, 128);
}

// Adds the contributions of `count` blocks of queries (or stores them, if they are the first) to the gradients of
// values and keys: sums[values and keys, blocks of keys, blocks of E], each block 32 of E × 32 keys.
ASTRA_TILE_CODE void addToKeysAndValues(const Work& work, const BackwardRoom& room, int64_t count, bool begin,
                                    float* sums) {
  isWritten();
  for (int64_t side = 0; side < 2; ++side) {
    for (int64_t column = 0; column < work.sizeBlocks; column += 2) {
      const uint16_t* left = (side == 0 ? room.outputGradientColumns : room.queryColumns) + column * kBlockNumbers;
      for (int64_t keyBlock = 0; keyBlock < work.keyBlocks; ++keyBlock) {
        float* to = sums + ((side * work.keyBlocks + keyBlock) * work.sizeBlocks + column) * kBlockNumbers;
        for (int64_t half = 0; half < 2; ++half) {
          const uint16_t* right = room.kept + side * kBlockNumbers + half * kBlockNumbers / 2;
          if (column + 1 < work.sizeBlocks) {
            sumTiles<4>(work, room, count, keyBlock, begin, left, right, to + half * kTile);
          } else {
            sumTiles<2>(work, room, count, keyBlock, begin, left, right, to + half * kTile);
          }
        }
      }
    }
  }
}

// One block of sums [32 of E, 32 keys], summed over `heads`, each `apart` numbers from the next, as rows of keys.
ASTRA_TILE_CODE void writeTurned(const float* sums, int64_t heads, int64_t apart, float factor, const Rows& to,
                                 int64_t line, int64_t column) {
  const int64_t present = to.size - column;
  const __mmask32 mask = present >= kBlockSize ? ~__mmask32{0} : (__mmask32{1} << present) - 1;
  const __m512i paired = _mm512_load_si512(kInterleaved);
  const __m512 times = _mm512_set1_ps(factor);
  for (int64_t half = 0; half < 2; ++half) {
    __m512i lanes[kTile];
    for (int64_t pair = 0; pair < kTile; ++pair) {
      const float* at = sums + pair * 2 * kBlockSize + half * kTile;
      __m512 even = _mm512_load_ps(at), odd = _mm512_load_ps(at + kBlockSize);
      for (int64_t head = 1; head < heads; ++head) {
        even = _mm512_add_ps(even, _mm512_load_ps(at + head * apart));
        odd = _mm512_add_ps(odd, _mm512_load_ps(at + head * apart + kBlockSize));
      }
      const __m512i both = rounded(_mm512_mul_ps(even, times), _mm512_mul_ps(odd, times));
      lanes[pair] = _mm512_permutexvar_epi16(paired, both);
    }
    transpose(lanes);
    for (int64_t i = 0; i < kTile; ++i) {
      // The order of the columns is that of the interleaved pairs.
      const int64_t row = line + i / 4 * 8 + half * 4 + i % 4;
      if (row < to.count) _mm512_mask_storeu_epi16(to.first + row * to.stride + column, mask, lanes[i]);
    }
  }
}

int64_t sumsOfHead(const Work& work) { return 2 * work.keyBlocks * work.sizeBlocks * kBlockNumbers; }

// Gradients of one head's values and keys from the sums of `heads` heads.
void writeSums(const Backward& backward, const float* sums, int64_t heads, int64_t batch, int64_t group) {
  const Work& work = backward.work;
  const int64_t all = work.keyBlocks * work.sizeBlocks;
  for (int64_t block = 0; block < all; ++block) {
    const int64_t line = block / work.sizeBlocks * kBlockSize, column = block % work.sizeBlocks * kBlockSize;
    const float* own = sums + block * kBlockNumbers;
    writeTurned(own, heads, sumsOfHead(work), 1, backward.value.at(batch, group), line, column);
    writeTurned(own + all * kBlockNumbers, heads, sumsOfHead(work), work.scale, backward.key.at(batch, group), line, column);
  }
}

// Heads `from` … `to` − 1 of all rows of the batch.
ASTRA_TILE_CODE void backwardHeads(const Backward& backward, BackwardRoom& room, int64_t from, int64_t to) {
  const Work& work = backward.work;
  const TileScope tiles(kTile);
  for (int64_t head = from; head < to; ++head) {
    const int64_t batch = head / work.heads, group = head / work.shared();
    if (isNew(room, work, group)) {
      const Rows keys = work.key.at(batch, group % work.groups), values = work.value.at(batch, group % work.groups);
      for (int64_t keyBlock = 0; keyBlock < work.keyBlocks; ++keyBlock) {
        const int64_t at = keyBlock * work.sizeBlocks * kBlockNumbers;
        arrange<Form::words>(keys, keyBlock * kBlockSize, room.keys + at);
        arrange<Form::pairs>(keys, keyBlock * kBlockSize, room.keyPairs + at);
        arrange<Form::words>(values, keyBlock * kBlockSize, room.values + at);
      }
    }
    float* sums = work.shared() == 1 ? room.sums : backward.sums + head * sumsOfHead(work);
    for (int64_t first = 0; first < work.queryBlocks; first += room.most) {
      const int64_t count = std::min(room.most, work.queryBlocks - first);
      int64_t kept = 0;
      for (int64_t place = 0; place < count; ++place) {
        backwardBlock(backward, room, batch, head % work.heads, first + place, place, kept);
      }
      addToKeysAndValues(work, room, count, first == 0, sums);
    }
    if (work.shared() == 1) writeSums(backward, sums, 1, batch, group % work.groups);
  }
}
}  // namespace

void backwardOnTiles(const Given& given, const Arrived& arrived, const Gradients& results) {
  const Segments segments(given);
  const auto* rowMax = floatsOf(arrived.measures);
  int64_t numbers = 0;
  for (const Work& work : segments.works()) {
    if (work.shared() > 1) numbers += work.batch * work.heads * sumsOfHead(work);
  }
  const at::Tensor sums = at::empty({numbers}, given.query.options().dtype(at::kFloat));
  auto* next = floatsOf(sums);
  std::vector<Backward> parts;
  std::vector<int64_t> heads, groups;
  for (const Work& work : segments.works()) {
    parts.push_back({work, Segments::headsOf(work, arrived.output), Segments::headsOf(work, arrived.gradient),
                     rowMax, rowMax + arrived.measures.numel() / 2,
                     Segments::part(results.query, work.firstQuery, work.queries),
                     Segments::part(results.key, work.firstQuery, work.columns),
                     Segments::part(results.value, work.firstQuery, work.columns), next});
    heads.push_back(work.batch * work.heads);
    groups.push_back(work.batch * work.groups);
    if (work.shared() > 1) next += heads.back() * sumsOfHead(work);
  }
  const Extent& extent = segments.extent();
  Rooms<BackwardRoom> rooms(extent);
  inPiecesOf(heads, std::max<int64_t>(1, kWorth / (extent.queryBlocks * extent.keyBlocks)),
             [&](size_t at, int64_t from, int64_t to) { backwardHeads(parts[at], rooms.own(), from, to); });
  if (extent.shared > 1) {
    inPiecesOf(groups, std::max<int64_t>(1, kWorth / extent.keyBlocks), [&](size_t at, int64_t from, int64_t to) {
      const Work& work = parts[at].work;
      for (int64_t group = from; group < to; ++group) {
        writeSums(parts[at], parts[at].sums + group * work.shared() * sumsOfHead(work), work.shared(),
                  group / work.groups, group % work.groups);
      }
    });
  }
}
#endif

}  // namespace astra::attention
