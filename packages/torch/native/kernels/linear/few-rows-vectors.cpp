// The product of few rows with a weight on vector registers, Y = X · Wᵀ, which is bound by memory bandwidth: the weight
// is read in place, bfloat16 or float32, once for all rows that fit the caches, and each loaded vector is used for
// several rows.
//
//   M, N, K  rows of X and Y, columns of Y (outputs), columns of X and W
//   VL       numbers of a vector register
//   MR, NR   rows and outputs of a block: its MR · NR sums stay in registers, enough to hide how long each sum takes
//
// The order of the sum for a number of Y depends only on K: a row's result does not depend on other rows.
#include <algorithm>
#include <cstring>
#include <type_traits>
#include <vector>

#include <ATen/Parallel.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>

#include "pieces.h"
#include "kernels/plain-tensor.h"
#include "kernels/linear/product.h"
#include "kernels/vector-math.h"

namespace astra {
namespace {

// If a register holds four numbers, two registers are used as one, in the order of eight lanes.
template <int VL>
constexpr int kLanes = VL < 8 ? 8 : VL;

// A bfloat16 number of a pair that one instruction multiplies and sums (AVX512-BF16).
struct Paired {
  uint16_t bits;
};

// The type of X: bfloat16 numbers that are multiplied as float32 are converted once.
template <typename Number>
using Factor = std::conditional_t<std::is_same_v<Number, uint16_t>, float, Number>;

template <typename Number>
struct FewRows {
  const Factor<Number>* x;  // [M rounded up to blocks, padded]: K rounded up to steps, as arrange() leaves it
  const Number* weight;     // [N, K], rows `stride` apart
  float* y;                 // [M, N]
  int64_t M, N, K, padded, stride;
};

// Numbers of a line that are multiplied together. Two bfloat16 numbers form one word; each is converted by one
// operation on words: even ones by a shift, odd ones by a mask. X has the same order.
template <int VL, typename Number>
constexpr int kStep = VL * 4 / sizeof(Number);

// NR: with 32 registers 24 of them hold sums, with 16 twelve.
template <int VL, int MR>
constexpr int kOutputs = MR < 4 ? VL / MR : VL < 16 ? 3 : 6;

// Lines of the next outputs that a block prefetches into the second-level cache as it multiplies, different ones for
// each block of rows: otherwise the first block would wait for memory while memory is idle during the others.
constexpr int kAhead = 3;

template <typename Number, typename Floats>
ASTRA_INLINE void addProduct(Floats& sum, const Floats& x, const Floats& weight) {
#ifdef ASTRA_AVX512
  if constexpr (std::is_same_v<Number, Paired>) {
    Floats added = sum;
    // Compiler intrinsics for it would require its instruction set in every function that includes this one.
    asm("vdpbf16ps %2, %1, %0" : "+v"(added) : "v"(weight), "vm"(x));
    sum = added;
    return;
  }
#endif
  sum += x * weight;
}

template <int VL, int MR, typename Number>
ASTRA_INLINE void addStep(typename Vector<VL>::Floats* sums, const Factor<Number>* x, int64_t padded,
                          const Number* const* w, int64_t k, const Number* const* ahead) {
  using Floats = typename Vector<VL>::Floats;
  for (int i = 0; i < kAhead; ++i) __builtin_prefetch(ahead[i] + k, 0, 2);
  constexpr int NR = kOutputs<VL, MR>, parts = sizeof(Factor<Number>) / sizeof(Number);
#pragma GCC unroll 16
  for (int n = 0; n < NR; ++n) {
    const auto words = load<typename Vector<VL>::Words>(w[n] + k);
    Floats weights[2] = {reinterpret_cast<Floats>(parts == 1 ? words : words << 16),
                         reinterpret_cast<Floats>(words & 0xffff0000u)};
#pragma GCC unroll 4
    for (int m = 0; m < MR; ++m) {
      for (int part = 0; part < parts; ++part) {
        addProduct<Number>(sums[m * NR + n], load<Floats>(x + m * padded + k + part * VL), weights[part]);
      }
    }
  }
}

// Rows m … of the outputs given.
template <int VL, int MR, typename Number>
ASTRA_INLINE void addBlock(const FewRows<Number>& work, int64_t m, const int64_t* outputs) {
  constexpr int NR = kOutputs<VL, MR>, step = kStep<VL, Number>;
  const Factor<Number>* x = work.x + m * work.padded;
  const Number *w[NR], *ahead[kAhead];
  for (int n = 0; n < NR; ++n) w[n] = work.weight + outputs[n] * work.stride;
  const int64_t blocks = (work.M + MR - 1) / MR;
  for (int i = 0; i < kAhead; ++i) {
    const int64_t n = m / MR + i * blocks;
    ahead[i] = n < NR ? w[n] + work.stride : w[0];
  }
  typename Vector<VL>::Floats sums[MR * NR] = {};
  int64_t k = 0;
  for (; k + step <= work.K; k += step) addStep<VL, MR>(sums, x, work.padded, w, k, ahead);
  if (k < work.K) {
    Number rest[NR][step] = {};
    const Number* last[NR];
    for (int n = 0; n < NR; ++n) {
      std::copy(w[n] + k, w[n] + work.K, rest[n]);
      last[n] = rest[n];
    }
    addStep<VL, MR>(sums, x + k, work.padded, last, 0, last);
  }
  float total[MR * NR];
  sumLanes<VL, MR * NR>(sums, total);
  const int present = static_cast<int>(std::min<int64_t>(MR, work.M - m));
  for (int row = 0; row < present; ++row) {
    for (int n = 0; n < NR; ++n) work.y[(m + row) * work.N + outputs[n]] = total[row * NR + n];
  }
}

// Outputs `from` … `to` − 1 of all rows. Those of a block are far apart, and the next block's follow them: memory is
// read in NR streams, which the hardware prefetcher can follow.
template <int VL, int MR, typename Number>
ASTRA_INLINE void addOutputs(const FewRows<Number>& work, int64_t from, int64_t to) {
  constexpr int NR = kOutputs<VL, MR>;
  const int64_t apart = (to - from + NR - 1) / NR;
  for (int64_t at = from; at < from + apart; ++at) {
    int64_t outputs[NR];
    for (int n = 0; n < NR; ++n) outputs[n] = std::min(at + n * apart, to - 1);  // some of them twice
    for (int64_t m = 0; m < work.M; m += MR) addBlock<VL, MR>(work, m, outputs);
  }
}

ASTRA_PRODUCT_LOOP(void, product, (const FewRows<Number>& work, int64_t from, int64_t to), (work, from, to)) {
  if (work.M == 1) return addOutputs<kLanes<VL>, 1>(work, from, to);
  if (work.M == 2) return addOutputs<kLanes<VL>, 2>(work, from, to);
  addOutputs<kLanes<VL>, 4>(work, from, to);
}

#ifdef ASTRA_AVX512
template <>
void product(const FewRows<Paired>& work, int64_t from, int64_t to) {
  productOnAvx512<Paired>(work, from, to);
}
#endif

ASTRA_VECTOR_LOOP(void, arrange, (const Number* from, int64_t K, Factor<Number>* to), (from, K, to)) {
  using Words = typename Vector<kLanes<VL>>::Words;
  constexpr int step = kStep<kLanes<VL>, Number>;
  for (int64_t k = 0; k < K; k += step) {
    Number rest[step] = {};
    if (k + step > K) std::copy(from + k, from + K, rest);
    const Words given = load<Words>(k + step > K ? rest : from + k);
    if constexpr (std::is_same_v<Factor<Number>, Number>) {
      std::memcpy(to + k, &given, sizeof given);
    } else {
      const Words even = given << 16, odd = given & 0xffff0000u;
      std::memcpy(to + k, &even, sizeof even);
      std::memcpy(to + k + kLanes<VL>, &odd, sizeof odd);
    }
  }
}

// Added to the sums of a row, and the row in bfloat16 if requested.
ASTRA_VECTOR_LOOP(void, finish,
                  (float* __restrict sums, const float* __restrict bias, const float* __restrict residual,
                   uint16_t* __restrict narrowed, int64_t count),
                  (sums, bias, residual, narrowed, count)) {
  if (bias != nullptr) {
    for (int64_t n = 0; n < count; ++n) sums[n] += bias[n];
  }
  if (residual != nullptr) {
    for (int64_t n = 0; n < count; ++n) sums[n] += residual[n];
  }
  if (narrowed != nullptr) {
    for (int64_t n = 0; n < count; ++n) narrowed[n] = narrow(sums[n]);
  }
}

// Above this number of rows arithmetic is the bound, and blocking both operands is faster: packed pairs, or the BLAS.
constexpr int64_t kMostRows = 128;
// Outputs per group of sums: for many rows, more would need more pages than the TLB holds.
constexpr int64_t kTogether = 768;
// Bytes of X that are multiplied with these outputs before the next rows: fits the second-level cache together with the
// weight.
constexpr int64_t kRoomOfRows = 768 << 10;

template <typename Number>
at::Tensor multiply(const at::Tensor& input, const at::Tensor& weight, const float* bias, bool wide,
                    const at::Tensor& residual) {
  const int64_t N = weight.size(0), K = weight.size(1), M = input.numel() / K;
  const int64_t blocks = M < 3 ? M : (M + 3) / 4 * 4, step = 64 / sizeof(Number);
  const int64_t padded = (K + step - 1) / step * step;
  const auto floats = at::TensorOptions().dtype(at::kFloat);
  const at::Tensor given = input.to(weight.scalar_type()).contiguous();
  const at::Tensor arranged = at::empty({blocks * padded}, sizeof(Factor<Number>) == 4 ? floats : given.options());
  std::vector<int64_t> shape = input.sizes().vec();
  shape.back() = N;
  const at::Tensor sums = at::empty(shape, floats);
  at::Tensor result = wide ? sums : at::empty(shape, floats.dtype(at::kBFloat16));
  auto* x = static_cast<Factor<Number>*>(arranged.data_ptr());
  auto* y = static_cast<float*>(sums.data_ptr());
  std::fill(x + M * padded, x + blocks * padded, Factor<Number>{});
  at::parallel_for(0, M, 4 * kGrain / K + 1, [&](int64_t first, int64_t last) {
    for (int64_t m = first; m < last; ++m) {
      arrange(static_cast<const Number*>(given.data_ptr()) + m * K, K, x + m * padded);
    }
  });
  const auto* w = static_cast<const Number*>(weight.data_ptr());
  const int64_t fitting = kRoomOfRows / (padded * static_cast<int64_t>(sizeof(Factor<Number>)));
  const int64_t together = std::max<int64_t>(4, fitting / 4 * 4);
  // One piece per thread: at the start of each, the prefetcher has to detect its streams again.
  constexpr int64_t line = 64;  // outputs that are not shared among threads
  at::parallel_for(0, (N + line - 1) / line, kGrain / (line * K * M) + 1, [&](int64_t first, int64_t last) {
    for (int64_t from = first * line; from < std::min(N, last * line); from += kTogether) {
      const int64_t to = std::min({N, last * line, from + kTogether});
      for (int64_t m = 0; m < M; m += together) {
        const int64_t rows = std::min(together, M - m);
        product(FewRows<Number>{x + m * padded, w, y + m * N, rows, N, K, padded, weight.stride(0)}, from, to);
      }
      for (int64_t m = 0; m < M; ++m) {
        const int64_t at = m * N + from;
        finish(y + at, bias == nullptr ? nullptr : bias + from, numbersOf<float>(residual, at),
               wide ? nullptr : words(result) + at, to - from);
      }
    }
  });
  return result;
}

}  // namespace

at::Tensor fewRowsOnVectors(const at::Tensor& input, const at::Tensor& weight, const float* bias, bool wide,
                            const at::Tensor& residual) {
  const bool isFloat = weight.scalar_type() == at::kFloat;
  if ((isFloat || mayUseTiles()) && input.numel() / weight.size(1) > kMostRows) return {};
  if (isFloat) return multiply<float>(input, weight, bias, wide, residual);
#ifdef ASTRA_AVX512
  if (mayUseTiles()) return multiply<Paired>(input, weight, bias, wide, residual);
#endif
  // For any number of rows: nothing else is faster for such operands.
  return multiply<uint16_t>(input, weight, bias, wide, residual);
}

}  // namespace astra
