// The forward pass of attention on tiles: fused-attention.h.
#include <algorithm>
#include <cmath>

#include "kernels/fused-attention/tiles.h"

namespace astra::attention {

#ifdef ASTRA_TILES
namespace {

struct ForwardRoom {
  ForwardRoom(const Extent& extent, uint16_t* memory) : seen(static_cast<size_t>(extent.keyBlocks)) {
    keys = take(memory, extent.keyBlocks * extent.sizeBlocks);
    values = take(memory, extent.keyBlocks * extent.sizeBlocks);
    query = take(memory, extent.sizeBlocks);
    scores = takeSums(memory, extent.keyBlocks);
    sums = takeSums(memory, 1);
  }
  static int64_t blocksOf(const Extent& extent) {
    return extent.keyBlocks * (2 * extent.sizeBlocks + 2) + extent.sizeBlocks + 2;
  }

  const Work* arranged = nullptr;  // whose keys and values are here, and of which of its groups
  int64_t arrangedGroup = 0;
  uint16_t *keys, *values;         // by words, by pairs
  uint16_t* query;                 // lines of one block
  float *scores, *sums;
  std::vector<int64_t> seen;       // blocks of keys
};

struct Forward {
  const Work& work;
  Heads output;
  float *rowMax, *logRowSum;  // [B, H, all T]: divided by the scale; to base 2, of probabilities whose greatest is 1
};
// Probabilities, 2^((score − shift) · factor), replace the scores, in half of their memory.
ASTRA_TILE_INLINE void exponentiate(float* scores, int64_t rows, __m512 factor, const float* shifts, __m512* rowSum) {
  auto* probabilities = reinterpret_cast<uint16_t*>(scores);
  for (int64_t row = 0; row < rows; ++row) {
    const __m512 shift = _mm512_set1_ps(shifts[row]);
    const float* at = scores + row * kBlockSize;
    const __m512 first = powerOf2(_mm512_mul_ps(_mm512_sub_ps(_mm512_load_ps(at), shift), factor));
    const __m512 second = powerOf2(_mm512_mul_ps(_mm512_sub_ps(_mm512_load_ps(at + kTile), shift), factor));
    rowSum[row] = _mm512_add_ps(rowSum[row], _mm512_add_ps(first, second));
    _mm512_store_si512(probabilities + row * kBlockSize, rounded(first, second));
  }
}

ASTRA_TILE_CODE void forwardBlock(const Forward& forward, ForwardRoom& room, int64_t batch, int64_t head,
                                 int64_t queryBlock) {
  const Work& work = forward.work;
  const int64_t shared = work.shared(), group = batch * work.groups + head / shared, within = head % shared;
  const int64_t line = queryBlock * kBlockSize, rows = std::min(kBlockSize, work.queries - line);
  arrange<Form::lines>(work.query.at(batch, head), line, room.query);
  isWritten();
  const uint8_t* kinds = work.bias.kindsOf(group, within * work.queryBlocks + queryBlock);
  __m512 rowMax[kBlockSize];
  for (int64_t row = 0; row < rows; ++row) rowMax[row] = _mm512_set1_ps(kForbiddenScore);
  int64_t count = 0;
  for (int64_t keyBlock = 0; keyBlock < work.keyBlocks; ++keyBlock) {
    if ((kinds[keyBlock] & kHasAllowed) == 0) continue;
    float* scores = room.scores + count * kBlockNumbers;
    product(room.query, room.keys + keyBlock * work.sizeBlocks * kBlockNumbers, work.sizeBlocks, scores);
    if ((kinds[keyBlock] & kHasBias) != 0) addBias(work, group, within, queryBlock, keyBlock, scores);
    for (int64_t row = 0; row < rows; ++row) {
      const float* at = scores + row * kBlockSize;
      rowMax[row] = _mm512_max_ps(rowMax[row], _mm512_max_ps(_mm512_load_ps(at), _mm512_load_ps(at + kTile)));
    }
    room.seen[static_cast<size_t>(count++)] = keyBlock;
  }

  const __m512 factor = _mm512_set1_ps(work.scale * kLog2E);
  float shifts[kBlockSize], factors[kBlockSize];
  __m512 rowSum[kBlockSize];
  for (int64_t row = 0; row < rows; ++row) {
    shifts[row] = _mm512_reduce_max_ps(rowMax[row]);
    if (shifts[row] == kForbiddenScore) shifts[row] = kShiftOfNothing;
    rowSum[row] = _mm512_setzero_ps();
  }
  // While probabilities are computed, the previous ones are multiplied with the first block of their values.
  const auto* probabilities = reinterpret_cast<const uint16_t*>(room.scores);
  const auto valuesOf = [&](int64_t at, int64_t column) {
    return room.values + (room.seen[static_cast<size_t>(at)] * work.sizeBlocks + column) * kBlockNumbers;
  };
  beginSums(room.sums);
  for (int64_t at = 0; at < count; ++at) {
    if (at > 0) addProduct(probabilities + 2 * (at - 1) * kBlockNumbers, valuesOf(at - 1, 0), room.sums);
    exponentiate(room.scores + at * kBlockNumbers, rows, factor, shifts, rowSum);
    isWritten();
  }
  const int64_t place = work.place(batch, head, line);
  for (int64_t row = 0; row < rows; ++row) {
    const float total = _mm512_reduce_add_ps(rowSum[row]);
    forward.rowMax[place + row] = shifts[row];
    forward.logRowSum[place + row] = shifts[row] == kShiftOfNothing ? 0 : std::log2(total);
    factors[row] = total == 0 ? 0 : 1 / total;
  }
  for (int64_t column = 0; column < work.sizeBlocks; ++column) {
    if (column > 0) beginSums(room.sums);
    for (int64_t at = column > 0 ? 0 : std::max<int64_t>(0, count - 1); at < count; ++at) {
      addProduct(probabilities + 2 * at * kBlockNumbers, valuesOf(at, column), room.sums);
    }
    storeSums(room.sums);
    writeLines(room.sums, factors, forward.output.at(batch, head), line, column * kBlockSize);
  }
}

// Blocks of queries `from` … `to` − 1 of all heads.
ASTRA_TILE_CODE void forwardBlocks(const Forward& forward, ForwardRoom& room, int64_t from, int64_t to) {
  const Work& work = forward.work;
  const TileScope tiles(kTile);
  for (int64_t block = from; block < to; ++block) {
    const int64_t head = block / work.queryBlocks, batch = head / work.heads;
    const int64_t group = head / work.shared();
    if (isNew(room, work, group)) {
      const Rows keys = work.key.at(batch, group % work.groups), values = work.value.at(batch, group % work.groups);
      for (int64_t keyBlock = 0; keyBlock < work.keyBlocks; ++keyBlock) {
        const int64_t at = keyBlock * work.sizeBlocks * kBlockNumbers;
        arrange<Form::words>(keys, keyBlock * kBlockSize, room.keys + at);
        arrange<Form::pairs>(values, keyBlock * kBlockSize, room.values + at);
      }
    }
    forwardBlock(forward, room, batch, head % work.heads, block % work.queryBlocks);
  }
}
}  // namespace

void forwardOnTiles(const Given& given, const at::Tensor& output, const at::Tensor& measures) {
  const Segments segments(given);
  auto* rowMax = floatsOf(measures);
  std::vector<Forward> parts;
  std::vector<int64_t> counts;
  int64_t blocks = 0;
  for (const Work& work : segments.works()) {
    parts.push_back({work, Segments::headsOf(work, output), rowMax, rowMax + measures.numel() / 2});
    counts.push_back(work.batch * work.heads * work.queryBlocks);
    blocks += counts.back();
  }
  Rooms<ForwardRoom> rooms(segments.extent());
  // Adjacent blocks share the packed keys and values.
  const int64_t even = blocks / (4 * at::get_num_threads());
  inPiecesOf(counts, std::max({int64_t{1}, even, kWorth / segments.extent().keyBlocks}),
             [&](size_t at, int64_t from, int64_t to) { forwardBlocks(parts[at], rooms.own(), from, to); });
}
#endif

}  // namespace astra::attention
