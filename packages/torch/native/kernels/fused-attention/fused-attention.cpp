// The functions of attention: describe a call, classify its blocks by bias, and choose the implementation.
#include <algorithm>

#include <ATen/core/grad_mode.h>

#include "kernels/fused-attention/fused-attention.h"

namespace astra::attention {
namespace {

// Marks, for each block of columns, whether one row's biases allow any column, and whether any bias differs from 0.
ASTRA_VECTOR_LOOP(void, inspectRow, (const Number* bias, int64_t columns, uint8_t* kinds), (bias, columns, kinds)) {
  for (int64_t column = 0; column < columns; column += kBlockSize) {
    const int64_t present = std::min(kBlockSize, columns - column);
    uint32_t allowed = 0, biased = 0;
#pragma omp simd reduction(| : allowed, biased)
    for (int64_t i = 0; i < present; ++i) {
      const float value = widen(bias[column + i]);
      allowed |= value <= kForbids ? 0u : kHasAllowed;
      biased |= value == 0 ? 0u : kHasBias;
    }
    kinds[column / kBlockSize] |= static_cast<uint8_t>(allowed | biased);
  }
}

template <typename Number>
Bias biasOf(const at::Tensor& tensor, int64_t groups, int64_t shared, int64_t queries, int64_t columns) {
  const int64_t queryBlocks = blocksOf(queries), keyBlocks = blocksOf(columns);
  const bool perGroup = tensor.defined() && tensor.size(0) > 1, perQuery = tensor.defined() && tensor.size(1) > 1;
  const int64_t blocks = perQuery ? shared * queryBlocks : 1;
  // Copied first, so that a copy that does not fit in memory is refused before anything is computed.
  const bool isByLines = !tensor.defined() || tensor.stride(2) == 1 || columns == 1;
  const at::Tensor lines = isByLines ? tensor : tensor.contiguous();
  const at::Tensor own = at::empty({perGroup ? groups : 1, blocks, keyBlocks}, at::TensorOptions().dtype(at::kByte));
  auto* const kinds = static_cast<uint8_t*>(own.data_ptr());
  std::fill_n(kinds, own.numel(), tensor.defined() ? 0 : kHasAllowed);
  Bias bias{tensor, own.expand({groups, shared * queryBlocks, keyBlocks})};
  if (tensor.defined()) {
    bias.tensor = lines.expand({groups, shared * queries, columns});
    inPieces(own.size(0) * blocks, std::max<int64_t>(1, (1 << 12) / (columns + 1)), [&](int64_t from, int64_t to) {
      for (int64_t line = from; line < to; ++line) {
        const int64_t head = line % blocks / queryBlocks, first = line % blocks % queryBlocks * kBlockSize;
        const int64_t rows = perQuery ? std::min(kBlockSize, queries - first) : 1;
        for (int64_t at = 0; at < rows; ++at) {
          inspectRow(bias.row<Number>(line / blocks, head * queries + first + at), columns, kinds + line * keyBlocks);
        }
      }
    });
  }
  for (int64_t end = keyBlocks; columns % kBlockSize != 0 && end <= own.numel(); end += keyBlocks) kinds[end - 1] |= kHasBias;
  return bias;
}
}  // namespace

bool Given::fitsBias(const at::Tensor& bias, int64_t queries) const {
  return bias.defined() && isPlain(bias, query.scalar_type()) && bias.dim() == 3 && bias.numel() > 0 &&
         (bias.size(0) == 1 || bias.size(0) == query.size(0) * key.size(1)) &&
         (bias.size(1) == 1 || bias.size(1) == shared() * queries);
}

bool Given::applies() const {
  for (const at::Tensor* tensor : {&query, &key, &value}) {
    if (!isPlain(*tensor, query.scalar_type()) || tensor->dim() != 4 || tensor->numel() == 0) return false;
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
  if (isPlain(query, at::kFloat)) return query.size(3) % kLane == 0;
#ifdef ASTRA_TILES
  return isPlain(query, at::kBFloat16) && mayUseTiles();
#else
  return false;
#endif
}

template <typename Number>
void SegmentsOf<Number>::add(const Given& given, const at::Tensor& bias, int64_t first, int64_t queries, int64_t columns) {
  const int64_t batch = given.query.size(0), groups = given.key.size(1);
  works_.push_back({part(given.query, first, queries), part(given.key, first, columns),
                    part(given.value, first, columns),
                    biasOf<Number>(bias, batch * groups, given.shared(), queries, columns), batch, given.query.size(1),
                    groups, queries, columns, given.query.size(3), blocksOf(queries), blocksOf(columns),
                    blocksOf(given.query.size(3)), first, given.query.size(2), static_cast<float>(given.scale)});
  const Work& work = works_.back();
  extent_ = {std::max(extent_.queryBlocks, work.queryBlocks), std::max(extent_.keyBlocks, work.keyBlocks),
             work.sizeBlocks, work.shared()};
  next_ += queries;
}
template class SegmentsOf<float>;
template class SegmentsOf<uint16_t>;

namespace {

// fusedAttention(query, key, value, biases, scale): [[B, T, H·E], measures [2, B, H, T]: greatest scores and logarithms of the
// sums, in the measures of each pass], or null where it does not apply
napi_value fusedAttention(Call& call) {
  const at::AutoGradMode mode(false);
  const Given given(call);
  if (!given.applies()) return makeNull(call.env);
  const at::Tensor& query = given.query;
  at::Tensor output = at::empty({query.size(0), query.size(2), given.width()}, query.options());
  at::Tensor measures = at::empty(given.measuresShape(), query.options().dtype(at::kFloat));
#ifdef ASTRA_TILES
  if (!isWide(query)) forwardOnTiles(given, output, measures);
#endif
  if (isWide(query)) forwardOnVectors(given, output, measures);
  return wrapTensors(*call.engine, call.env, {output, measures});
}

// fusedAttentionBackward(query, key, value, biases, scale, output, measures, gradient): of the query, key and value
napi_value fusedAttentionBackward(Call& call) {
  const at::AutoGradMode mode(false);
  const Given given(call);
  const at::Tensor output = call.tensor(5, "output");
  const at::Tensor measures = call.tensor(6, "measures");
  const at::Tensor gradient = call.tensor(7, "gradient");
  if (!given.applies()) throw Refusal("there is no fused attention of these tensors");
  const std::vector<int64_t> outputShape{given.query.size(0), given.query.size(2), given.width()};
  for (const at::Tensor* tensor : {&output, &gradient}) {
    if (!isPlain(*tensor, given.query.scalar_type()) || tensor->sizes() != outputShape) {
      throw Refusal("output and gradient must be of the query's type, [B, T, H·E], got " + describeTensor(*tensor));
    }
  }
  if (!isPlain(measures, at::kFloat) || measures.sizes() != at::IntArrayRef(given.measuresShape())) {
    throw Refusal("measures must be float32[2, B, H, T], got " + describeTensor(measures));
  }
  // Token by token, in the layout of the projections before the attention.
  const auto like = [](const at::Tensor& tensor) {
    const std::vector<int64_t> byToken{tensor.size(0), tensor.size(2), tensor.size(1), tensor.size(3)};
    return at::empty(byToken, tensor.options()).transpose(1, 2);
  };
  const Arrived arrived{output.contiguous(), gradient.contiguous(), measures.contiguous()};
  Gradients results{like(given.query), like(given.key), like(given.value)};
#ifdef ASTRA_TILES
  if (!isWide(given.query)) backwardOnTiles(given, arrived, results);
#endif
  if (isWide(given.query)) backwardOnVectors(given, arrived, results);
  return wrapTensors(*call.engine, call.env, {results.query, results.key, results.value});
}
}  // namespace
}  // namespace astra::attention

namespace astra {

const Exports exports{
    {"fusedAttention", attention::fusedAttention}, {"fusedAttentionBackward", attention::fusedAttentionBackward}};

}  // namespace astra
