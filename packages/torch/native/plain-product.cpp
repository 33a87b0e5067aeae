// Products of bfloat16 numbers with sums in float32 for processors without tiles. Numbers that were rounded to bfloat16 have
// exact products in float32, so that the BLAS may multiply them as such; they are widened piece by piece, in the caches.
#include <algorithm>

#include <ATen/core/Tensor.h>
#include <ATen/ops/add.h>
#include <ATen/ops/addmm.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/mm.h>
#include <ATen/ops/zeros.h>

#include "plain-tensor.h"
#include "product.h"

namespace astra {
namespace {

constexpr int64_t kMoving = 1 << 20;   // numbers that are widened together: 4 MiB
constexpr int64_t kStaying = 1 << 22;  // of the other side, which meets all of them

// float32, rounded to bfloat16, in the order of memory.
at::Tensor rounded(const at::Tensor& matrix) {
  const bool turned = matrix.stride(0) == 1 && matrix.stride(1) != 1;
  const at::Tensor rows = turned ? matrix.t() : matrix;
  const at::Tensor result = rows.to(at::kBFloat16).to(at::kFloat);
  return turned ? result.t() : result;
}

// A view that repeats its memory, laid out: what no memory could hold is refused here, where a loop over it would not end.
at::Tensor held(const at::Tensor& matrix) {
  const size_t stored = matrix.storage().nbytes() / matrix.element_size();
  return static_cast<size_t>(matrix.numel()) > stored ? matrix.contiguous() : matrix;
}

// left [m, k] · right [k, n], handed over in float32 by parts: put(first row, first column, part).
template <typename Put>
void forEachPart(const at::Tensor& left, const at::Tensor& right, const Put& put) {
  const int64_t inner = left.size(1);
  const bool leftMoves = left.size(0) > right.size(1);
  const int64_t lines = leftMoves ? left.size(0) : right.size(1), others = leftMoves ? right.size(1) : left.size(0);
  const int64_t block = std::min(inner, std::max<int64_t>(1, kStaying / others));
  const int64_t share = std::min(lines, std::max<int64_t>(1, kMoving / block));
  const auto multiply = [&](int64_t line, int64_t count, const at::Tensor& staying, int64_t k, int64_t length,
                            at::Tensor& sums) {
    const at::Tensor moving = rounded(leftMoves ? left.narrow(0, line, count).narrow(1, k, length)
                                                : right.narrow(1, line, count).narrow(0, k, length));
    const at::Tensor& first = leftMoves ? moving : staying;
    const at::Tensor& second = leftMoves ? staying : moving;
    if (k == 0) {
      at::mm_out(sums, first, second);
    } else {
      at::addmm_out(sums, sums, first, second);
    }
  };
  const auto stayingFrom = [&](int64_t k, int64_t length) {
    return rounded(leftMoves ? right.narrow(0, k, length) : left.narrow(1, k, length));
  };
  const auto floats = at::TensorOptions().dtype(at::kFloat);
  if (block == inner) {
    const at::Tensor staying = stayingFrom(0, inner);
    for (int64_t line = 0; line < lines; line += share) {
      const int64_t count = std::min(share, lines - line);
      at::Tensor sums = leftMoves ? at::empty({count, others}, floats) : at::empty({others, count}, floats);
      multiply(line, count, staying, 0, inner, sums);
      put(leftMoves ? line : 0, leftMoves ? 0 : line, sums);
    }
    return;
  }
  // Long sums: all of them wait, which are few beside the operands.
  at::Tensor sums = at::empty({left.size(0), right.size(1)}, floats);
  for (int64_t k = 0; k < inner; k += block) {
    const int64_t length = std::min(block, inner - k);
    const at::Tensor staying = stayingFrom(k, length);
    for (int64_t line = 0; line < lines; line += share) {
      const int64_t count = std::min(share, lines - line);
      at::Tensor part = sums.narrow(leftMoves ? 0 : 1, line, count);
      multiply(line, count, staying, k, length, part);
    }
  }
  put(0, 0, sums);
}

}  // namespace

at::Tensor plainProduct(const at::Tensor& givenLeft, const at::Tensor& givenRight, const at::Tensor& bias, bool wide,
                        const at::Tensor& residual, at::IntArrayRef shape) {
  const at::Tensor left = held(givenLeft), right = held(givenRight);
  const auto type = at::TensorOptions().dtype(wide ? at::kFloat : at::kBFloat16);
  const int64_t rows = left.size(0), columns = right.size(1), inner = left.size(1);
  // A tensor of its own, whatever the shape: a view could not become a function's output.
  at::Tensor result = inner == 0 ? at::zeros(shape, type) : at::empty(shape, type);
  if (result.numel() == 0) return result;
  at::Tensor matrix = result.view({rows, columns});
  const at::Tensor offset = bias.defined() ? bias.to(at::kFloat) : bias;
  const at::Tensor added = residual.defined() ? residual.reshape({rows, columns}) : residual;
  const auto put = [&](int64_t row, int64_t column, at::Tensor part) {
    const int64_t height = part.size(0), width = part.size(1);
    if (offset.defined()) part.add_(offset.narrow(0, column, width));
    if (added.defined()) part.add_(added.narrow(0, row, height).narrow(1, column, width));
    matrix.narrow(0, row, height).narrow(1, column, width).copy_(part);
  };
  if (inner == 0) {
    put(0, 0, at::zeros({rows, columns}, type.dtype(at::kFloat)));
  } else {
    forEachPart(left, right, put);
  }
  return result;
}

}  // namespace astra
