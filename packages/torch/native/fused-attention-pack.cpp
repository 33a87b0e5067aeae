// Packing for attention on tiles: blocks of rows as the tiles read them, what biases do to each block, and what a call is about.
#include <algorithm>

#include "fused-attention.h"

namespace astra::attention {

#ifdef ASTRA_TILES
namespace {

// The biases of one row that differ from 0, and from what forbids, added to what is known of its blocks.
ASTRA_TILE_CODE void inspectRow(const uint16_t* bias, int64_t columns, uint8_t* kinds) {
  const __m512i least = _mm512_set1_epi16(static_cast<int16_t>(0xefa2));  // the first bfloat16 below kForbids
  const __m512i infinite = _mm512_set1_epi16(static_cast<int16_t>(0xff80));
  const __m512i magnitude = _mm512_set1_epi16(0x7fff);
  for (int64_t column = 0; column < columns; column += kBlockSize) {
    const __mmask32 present = columns - column >= kBlockSize ? ~__mmask32{0} : (__mmask32{1} << (columns - column)) - 1;
    const __m512i biases = _mm512_maskz_loadu_epi16(present, bias + column);
    const __mmask32 forbidden =
        _mm512_cmpge_epu16_mask(biases, least) & _mm512_cmple_epu16_mask(biases, infinite) & present;
    uint8_t kind = forbidden == present ? 0 : kHasAllowed;
    if (_mm512_test_epi16_mask(biases, magnitude) != 0) kind |= kHasBias;
    kinds[column / kBlockSize] |= kind;
  }
}

Bias biasOf(const at::Tensor& tensor, int64_t groups, int64_t shared, int64_t queries, int64_t columns) {
  Bias bias;
  bias.queries = queries;
  bias.queryBlocks = blocksOf(queries);
  bias.keyBlocks = blocksOf(columns);
  if (tensor.defined()) {
    bias.tensor = tensor.stride(2) == 1 || columns == 1 ? tensor : tensor.contiguous();
    bias.perGroup = groups > 1 && tensor.size(0) > 1;
    bias.perQuery = tensor.size(1) > 1;
  }
  const int64_t lines = (bias.perGroup ? groups : 1) * (bias.perQuery ? shared * bias.queryBlocks : 1);
  bias.kinds = at::empty({lines, bias.keyBlocks}, at::TensorOptions().dtype(at::kByte));
  auto* const kinds = static_cast<uint8_t*>(bias.kinds.data_ptr());
  std::fill_n(kinds, lines * bias.keyBlocks, tensor.defined() ? 0 : kHasAllowed);
  if (tensor.defined()) {
    const int64_t perGroup = bias.perQuery ? shared * bias.queryBlocks : 1;
    const int64_t piece = std::max<int64_t>(1, (1 << 12) / (columns + 1));
    inPieces(lines, piece, [&](int64_t from, int64_t to) {
      for (int64_t line = from; line < to; ++line) {
        const int64_t within = line % perGroup;
        const int64_t head = within / bias.queryBlocks, first = within % bias.queryBlocks * kBlockSize;
        const int64_t rows = bias.perQuery ? std::min(kBlockSize, queries - first) : 1;
        const uint16_t* row = bias.row(line / perGroup, head, first);
        for (int64_t at = 0; at < rows; ++at) {
          inspectRow(row + at * bias.rowStride(), columns, kinds + line * bias.keyBlocks);
        }
      }
    });
  }
  if (columns % kBlockSize != 0) {
    for (int64_t line = 1; line <= lines; ++line) {
      kinds[line * bias.keyBlocks - 1] |= kHasBias;
    }
  }
  return bias;
}
}  // namespace

template <Form form>
ASTRA_TILE_CODE void arrange(const Rows& rows, int64_t line, uint16_t* to) {
  alignas(64) static constexpr uint16_t kPaired[64] = {
      0,  32, 1,  33, 2,  34, 3,  35, 4,  36, 5,  37, 6,  38, 7,  39, 8,  40, 9,  41, 10, 42,
      11, 43, 12, 44, 13, 45, 14, 46, 15, 47, 16, 48, 17, 49, 18, 50, 19, 51, 20, 52, 21, 53,
      22, 54, 23, 55, 24, 56, 25, 57, 26, 58, 27, 59, 28, 60, 29, 61, 30, 62, 31, 63,
  };
  const __m512i low = _mm512_load_si512(kPaired), high = _mm512_load_si512(kPaired + 32);
  for (int64_t tile = 0; tile < 2; ++tile) {
    const int64_t first = line + tile * kTile;
    for (int64_t column = 0; column < rows.size; column += kBlockSize) {
      const int64_t present = rows.size - column;
      const __mmask32 mask = present >= kBlockSize ? ~__mmask32{0} : (__mmask32{1} << present) - 1;
      uint16_t* block = to + column * kBlockSize;
      __m512i lanes[kTile];
      for (int64_t i = 0; i < kTile; ++i) {
        const uint16_t* from = rows.first + (first + i) * rows.stride + column;
        lanes[i] = first + i < rows.count ? _mm512_maskz_loadu_epi16(mask, from) : _mm512_setzero_si512();
        if (first + i + kBlockSize < rows.count) __builtin_prefetch(from + kBlockSize * rows.stride);
      }
      if constexpr (form == Form::lines || form == Form::words) {
        if constexpr (form == Form::words) transpose(lanes);
        for (int64_t i = 0; i < kTile; ++i) _mm512_store_si512(block + (tile * kTile + i) * 32, lanes[i]);
      } else {
        for (int64_t pair = 0; pair < kTile / 2; ++pair) {
          uint16_t* half = block + (tile * kTile / 2 + pair) * 32;
          _mm512_store_si512(half, _mm512_permutex2var_epi16(lanes[2 * pair], low, lanes[2 * pair + 1]));
          _mm512_store_si512(half + 512, _mm512_permutex2var_epi16(lanes[2 * pair], high, lanes[2 * pair + 1]));
        }
      }
    }
  }
  if constexpr (form == Form::columns) {
    for (int64_t tile = 0; tile < 2 * blocksOf(rows.size); ++tile) {
      __m512i lanes[kTile];
      for (int64_t i = 0; i < kTile; ++i) lanes[i] = _mm512_load_si512(to + tile * 512 + i * 32);
      transpose(lanes);
      for (int64_t i = 0; i < kTile; ++i) _mm512_store_si512(to + tile * 512 + i * 32, lanes[i]);
    }
  }
}
template void arrange<Form::lines>(const Rows&, int64_t, uint16_t*);
template void arrange<Form::words>(const Rows&, int64_t, uint16_t*);
template void arrange<Form::pairs>(const Rows&, int64_t, uint16_t*);
template void arrange<Form::columns>(const Rows&, int64_t, uint16_t*);

ASTRA_TILE_CODE void addBias(const Work& work, int64_t group, int64_t head, int64_t queryBlock, int64_t keyBlock,
                             float* scores) {
  const int64_t column = keyBlock * kBlockSize, query = queryBlock * kBlockSize;
  const int64_t there = work.columns - column;
  const __mmask32 present = there >= kBlockSize ? ~__mmask32{0} : (__mmask32{1} << there) - 1;
  const __m512 perScale = _mm512_set1_ps(1.0f / work.scale);
  const __m512 forbids = _mm512_set1_ps(kForbids), never = _mm512_set1_ps(kForbiddenScore);
  const int64_t rows = std::min(kBlockSize, work.queries - query);
  const uint16_t* bias = work.bias.row(group, head, query);
  const int64_t stride = bias == nullptr ? 0 : work.bias.rowStride();
  for (int64_t row = 0; row < rows; ++row) {
    for (int64_t half = 0; half < 2; ++half) {
      const __mmask16 mask = static_cast<__mmask16>(present >> (16 * half));
      float* at = scores + row * kBlockSize + half * kTile;
      __m512 sums = _mm512_load_ps(at);
      __mmask16 allowed = mask;
      if (bias != nullptr) {
        const __m512 biases = loadWide(bias + row * stride + column + half * kTile, mask);
        allowed = _mm512_mask_cmp_ps_mask(mask, biases, forbids, _CMP_NLE_UQ);
        sums = _mm512_fmadd_ps(biases, perScale, sums);
      }
      _mm512_store_ps(at, _mm512_mask_blend_ps(allowed, never, sums));
    }
  }
}
ASTRA_TILE_CODE void writeLines(const float* sums, const float* factors, const Rows& to, int64_t line, int64_t column) {
  const int64_t present = to.size - column;
  const __mmask32 mask = present >= kBlockSize ? ~__mmask32{0} : (__mmask32{1} << present) - 1;
  const int64_t rows = std::min(kBlockSize, to.count - line);
  for (int64_t row = 0; row < rows; ++row) {
    const __m512 factor = _mm512_set1_ps(factors[row]);
    const __m512 first = _mm512_mul_ps(_mm512_load_ps(sums + row * kBlockSize), factor);
    const __m512 second = _mm512_mul_ps(_mm512_load_ps(sums + row * kBlockSize + kTile), factor);
    _mm512_mask_storeu_epi16(to.first + (line + row) * to.stride + column, mask, rounded(first, second));
  }
}
bool Given::fitsBias(const at::Tensor& bias, int64_t queries) const {
  return bias.defined() && isPlain(bias, at::kBFloat16) && bias.dim() == 3 && bias.numel() > 0 &&
         (bias.size(0) == 1 || bias.size(0) == query.size(0) * key.size(1)) &&
         (bias.size(1) == 1 || bias.size(1) == shared() * queries);
}

bool Given::applies() const {
  for (const at::Tensor* tensor : {&query, &key, &value}) {
    if (!isPlain(*tensor, at::kBFloat16) || tensor->dim() != 4 || tensor->numel() == 0) return false;
    if (tensor->stride(3) != 1 && tensor->size(3) != 1) return false;
  }
  if (query.size(3) > kMostHeadSize || query.size(1) % key.size(1) != 0 || key.size(0) != query.size(0) ||
      key.size(3) != query.size(3) || value.sizes() != key.sizes()) {
    return false;
  }
  const int64_t rows = query.size(0) * query.size(1);
  if (rows > kMostRows || std::max(query.size(2), key.size(2)) > kMostRows / rows) return false;
  // Biases divided by the scale stay finite.
  if (!(scale >= 1e-6 && scale <= 1e6)) return false;
  if (biases.size() == 1) {
    if (!fitsBias(biases[0], query.size(2)) || biases[0].size(2) != key.size(2)) return false;
  } else if (biases.size() > 1) {
    int64_t tokens = 0;
    for (const at::Tensor& bias : biases) {
      if (!bias.defined() || bias.dim() != 3 || !fitsBias(bias, bias.size(2))) return false;
      tokens += bias.size(2);
    }
    if (tokens != query.size(2) || tokens != key.size(2)) return false;
  }
  return mayUseTiles();
}

void Segments::add(const Given& given, const at::Tensor& bias, int64_t first, int64_t queries, int64_t columns) {
  const int64_t batch = given.query.size(0), groups = given.key.size(1);
  works_.push_back({part(given.query, first, queries), part(given.key, first, columns),
                    part(given.value, first, columns),
                    biasOf(bias, batch * groups, given.shared(), queries, columns), batch, given.query.size(1),
                    groups, queries, columns, given.query.size(3), blocksOf(queries), blocksOf(columns),
                    blocksOf(given.query.size(3)), first, given.query.size(2), static_cast<float>(given.scale)});
  const Work& work = works_.back();
  extent_ = {std::max(extent_.queryBlocks, work.queryBlocks), std::max(extent_.keyBlocks, work.keyBlocks),
             work.sizeBlocks, work.shared()};
  next_ += queries;
}
#endif

}  // namespace astra::attention
