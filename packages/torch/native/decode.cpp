// The two products of decoding, where each weight and each cached key serves few rows, so that the memory's rate is the
// bound. libtorch's own reach a third to a half of it: they rearrange weights at each call.
#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstring>
#include <vector>

#include <ATen/Parallel.h>
#include <ATen/core/Tensor.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/linear.h>

#include "engine.h"
#include "plain-tensor.h"
#include "vector-math.h"

#if defined(__x86_64__) && defined(__linux__) && defined(__GNUC__) && (__GNUC__ >= 11 || defined(__clang__))
#define ASTRA_TILES 1
#include <cpuid.h>
#include <immintrin.h>
#include <sys/syscall.h>
#include <unistd.h>
#endif

namespace astra {
namespace {

bool anyRequiresGradient(std::initializer_list<const at::Tensor*> tensors) {
  return std::any_of(tensors.begin(), tensors.end(),
                     [](const at::Tensor* tensor) { return tensor->defined() && tensor->requires_grad(); });
}

bool isPlainBfloat16(const at::Tensor& tensor) { return isPlain(tensor, at::kBFloat16); }

// Threads take pieces of [0, total) as they come: one that was held up keeps nobody waiting for its share. A piece should
// be worth a thread's start.
template <typename Work>
void inPieces(int64_t total, int64_t piece, const Work& work) {
  std::atomic<int64_t> next{0};
  const int64_t threads = std::min<int64_t>(at::get_num_threads(), (total + piece - 1) / piece);
  at::parallel_for(0, threads, 1, [&](int64_t, int64_t) {
    for (int64_t from = next.fetch_add(piece); from < total; from = next.fetch_add(piece)) {
      work(from, std::min(total, from + piece));
    }
  });
}

#ifdef ASTRA_TILES
#define ASTRA_TILE_CODE __attribute__((target("amx-tile,amx-bf16,avx512f,avx512bw,avx512vl,avx512bf16")))

constexpr int64_t kMostRows = 64;  // beyond it products are bound by arithmetic, and libtorch's own are as fast
constexpr int kTile = 16;          // rows of a tile, and its columns in 32-bit lanes

// Whether the processor multiplies bfloat16 tiles (Intel AMX) and the kernel lets this process use them.
bool mayUseTiles() {
  static const bool may = [] {
    unsigned a = 0, b = 0, c = 0, d = 0;
    if (!__get_cpuid_count(7, 0, &a, &b, &c, &d)) return false;
    const bool tiles = (d & (1u << 22)) != 0 && (d & (1u << 24)) != 0;  // AMX-BF16, AMX-TILE
    if (!tiles || !__get_cpuid_count(7, 1, &a, &b, &c, &d) || (a & (1u << 5)) == 0) return false;  // AVX512-BF16
    constexpr long kRequestPermission = 0x1023, kTileData = 18;  // ARCH_REQ_XCOMP_PERM, XFEATURE_XTILEDATA
    return syscall(SYS_arch_prctl, kRequestPermission, kTileData) == 0;
  }();
  return may;
}

struct alignas(64) TileConfiguration {
  uint8_t palette = 1, startRow = 0, reserved[14] = {};
  uint16_t rowBytes[16] = {};
  uint8_t rows[16] = {};
};

// Tiles 0 … 3 are sums [outputs, rows of the input], 4 a piece of the weight, 5 … 7 pieces of the input. For the
// length of its life: oneDNN's kernels run on the same threads and find their own configuration again.
class TileScope {
 public:
  ASTRA_TILE_CODE explicit TileScope(int outputs) {
    _tile_storeconfig(&before_);
    isReadOrWritten(&before_);
    TileConfiguration now;
    for (int tile = 0; tile < 8; ++tile) {
      now.rowBytes[tile] = 64;
      now.rows[tile] = static_cast<uint8_t>(tile < 5 ? outputs : kTile);
    }
    isReadOrWritten(&now);
    _tile_loadconfig(&now);
  }
  ASTRA_TILE_CODE ~TileScope() {
    if (before_.palette == 0) {
      _tile_release();
    } else {
      isReadOrWritten(&before_);
      _tile_loadconfig(&before_);
    }
  }
  TileScope(const TileScope&) = delete;
  TileScope& operator=(const TileScope&) = delete;

 private:
  // GCC 12 takes a configuration for 8 bytes long and might leave out what is stored beyond them.
  static void isReadOrWritten(TileConfiguration* configuration) { asm volatile("" : : "r"(configuration) : "memory"); }

  TileConfiguration before_;
};

// 16 × 16 lanes of 32 bits, in place.
ASTRA_TILE_CODE inline void transpose(__m512i (&r)[16]) {
  __m512i t[16];
  for (int i = 0; i < 16; i += 2) {
    t[i] = _mm512_unpacklo_epi32(r[i], r[i + 1]);
    t[i + 1] = _mm512_unpackhi_epi32(r[i], r[i + 1]);
  }
  for (int i = 0; i < 16; i += 4) {
    r[i] = _mm512_unpacklo_epi64(t[i], t[i + 2]);
    r[i + 1] = _mm512_unpackhi_epi64(t[i], t[i + 2]);
    r[i + 2] = _mm512_unpacklo_epi64(t[i + 1], t[i + 3]);
    r[i + 3] = _mm512_unpackhi_epi64(t[i + 1], t[i + 3]);
  }
  for (int i = 0; i < 4; ++i) {
    t[i] = _mm512_shuffle_i32x4(r[i], r[i + 4], 0x88);
    t[i + 4] = _mm512_shuffle_i32x4(r[i], r[i + 4], 0xdd);
    t[i + 8] = _mm512_shuffle_i32x4(r[i + 8], r[i + 12], 0x88);
    t[i + 12] = _mm512_shuffle_i32x4(r[i + 8], r[i + 12], 0xdd);
  }
  for (int i = 0; i < 8; ++i) {
    r[i] = _mm512_shuffle_i32x4(t[i], t[i + 8], 0x88);
    r[i + 8] = _mm512_shuffle_i32x4(t[i], t[i + 8], 0xdd);
  }
}

// The input as the tile product wants its second operand: [K/32 pieces, groups of 16 rows, 16 pairs of neighbouring
// numbers, 16 rows]; missing rows are 0.
ASTRA_TILE_CODE void arrangeInput(const uint16_t* input, int64_t rows, int64_t inner, int groups, uint16_t* arranged) {
  for (int64_t piece = 0; piece < inner / 32; ++piece) {
    for (int group = 0; group < groups; ++group) {
      __m512i lanes[16];
      for (int row = 0; row < kTile; ++row) {
        const int64_t at = group * kTile + row;
        lanes[row] = at < rows ? _mm512_loadu_si512(input + at * inner + piece * 32) : _mm512_setzero_si512();
      }
      transpose(lanes);
      uint16_t* to = arranged + (piece * groups + group) * 512;
      for (int pair = 0; pair < kTile; ++pair) _mm512_store_si512(to + pair * 32, lanes[pair]);
    }
  }
}

// Sums of 16 (or the configured number of) outputs for all rows.
template <int groups>
ASTRA_TILE_CODE inline void multiply(const uint16_t* weight, const uint16_t* arranged, int64_t inner,
                                     const char* ahead, float* sums) {
  _tile_zero(0);
  if constexpr (groups > 1) _tile_zero(1);
  if constexpr (groups > 2) _tile_zero(2);
  if constexpr (groups > 3) _tile_zero(3);
  for (int64_t at = 0; at < inner; at += 32) {
    _tile_loadd(4, weight + at, inner * 2);
    // 16 rows are one stretch of memory; it is fetched in its order while an earlier one is multiplied in another.
    for (int line = 0; line < 16; ++line) _mm_prefetch(ahead + at * 32 + line * 64, _MM_HINT_T1);
    const uint16_t* piece = arranged + (at / 32) * groups * 512;
    _tile_loadd(5, piece, 64);
    _tile_dpbf16ps(0, 4, 5);
    if constexpr (groups > 1) {
      _tile_loadd(6, piece + 512, 64);
      _tile_dpbf16ps(1, 4, 6);
    }
    if constexpr (groups > 2) {
      _tile_loadd(7, piece + 1024, 64);
      _tile_dpbf16ps(2, 4, 7);
    }
    if constexpr (groups > 3) {
      _tile_loadd(5, piece + 1536, 64);
      _tile_dpbf16ps(3, 4, 5);
    }
  }
  _tile_stored(0, sums, 64);
  if constexpr (groups > 1) _tile_stored(1, sums + 256, 64);
  if constexpr (groups > 2) _tile_stored(2, sums + 512, 64);
  if constexpr (groups > 3) _tile_stored(3, sums + 768, 64);
}

struct FewRows {
  const uint16_t* weight;    // [outputs, inner]
  const uint16_t* arranged;  // as arrangeInput leaves it
  const uint16_t* bias;      // [outputs] or null
  uint16_t* result;          // [rows, outputs]
  int64_t rows, outputs, inner;
};

// `count` outputs from `first` on, for all rows.
template <int groups>
ASTRA_TILE_CODE void outputsOf(const FewRows& work, int64_t first, int count, const char* ahead) {
  alignas(64) float sums[groups * 256];
  multiply<groups>(work.weight + first * work.inner, work.arranged, work.inner, ahead, sums);
  const __mmask16 present = static_cast<__mmask16>((1u << count) - 1);
  __m512 bias = _mm512_setzero_ps();
  if (work.bias != nullptr) {
    const __m256i stored = _mm256_maskz_loadu_epi16(present, work.bias + first);
    bias = _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(stored), 16));
  }
  for (int group = 0; group < groups; ++group) {
    __m512i lanes[16];
    for (int output = 0; output < kTile; ++output) {
      lanes[output] = output < count ? _mm512_load_si512(sums + group * 256 + output * 16) : _mm512_setzero_si512();
    }
    transpose(lanes);  // [outputs, rows] → [rows, outputs]
    const int64_t rows = std::min<int64_t>(kTile, work.rows - group * kTile);
    for (int64_t row = 0; row < rows; ++row) {
      const __m256bh rounded = _mm512_cvtneps_pbh(_mm512_add_ps(_mm512_castsi512_ps(lanes[row]), bias));
      _mm256_mask_storeu_epi16(work.result + (group * kTile + row) * work.outputs + first, present,
                               reinterpret_cast<__m256i>(rounded));
    }
  }
}

template <int groups>
ASTRA_TILE_CODE void blocksOf(const FewRows& work, int64_t from, int64_t to) {
  const int64_t whole = work.outputs / kTile;
  const int64_t blockBytes = kTile * work.inner * 2;
  const char* start = reinterpret_cast<const char*>(work.weight);
  if (from < std::min(to, whole)) {
    const TileScope tiles(kTile);
    for (int64_t block = from; block < std::min(to, whole); ++block) {
      // Two blocks ahead, but not past the weight: what lies there is not wanted.
      const int64_t next = std::min(block + 2, std::max<int64_t>(whole - 1, 0));
      outputsOf<groups>(work, block * kTile, kTile, start + next * blockBytes);
    }
  }
  const int rest = static_cast<int>(work.outputs % kTile);
  if (to > whole && rest > 0) {
    const TileScope tiles(rest);
    outputsOf<groups>(work, whole * kTile, rest, start + std::max<int64_t>(whole - 1, 0) * blockBytes);
  }
}

at::Tensor linearOfFewRows(const at::Tensor& input, const at::Tensor& weight, const at::Tensor& bias, int64_t rows) {
  const int64_t outputs = weight.size(0), inner = weight.size(1);
  const int groups = static_cast<int>((rows + kTile - 1) / kTile);
  const at::Tensor plain = input.contiguous();
  const at::Tensor offset = bias.defined() ? bias.contiguous() : bias;
  // at::empty aligns to 64 bytes, which the aligned stores above rely on.
  const at::Tensor arranged = at::empty({inner / 32, groups, kTile, 32}, input.options());
  std::vector<int64_t> shape = input.sizes().vec();
  shape.back() = outputs;
  at::Tensor result = at::empty(shape, input.options());
  arrangeInput(words(plain), rows, inner, groups, words(arranged));
  const FewRows work{words(weight), words(arranged), offset.defined() ? words(offset) : nullptr,
                     words(result), rows, outputs, inner};
  const int64_t blocks = (outputs + kTile - 1) / kTile;
  const int64_t piece = std::max((int64_t{1} << 17) / (kTile * inner) + 1, blocks / 64);
  inPieces(blocks, piece, [&](int64_t from, int64_t to) {
    switch (groups) {
      case 1: return blocksOf<1>(work, from, to);
      case 2: return blocksOf<2>(work, from, to);
      case 3: return blocksOf<3>(work, from, to);
      default: return blocksOf<4>(work, from, to);
    }
  });
  return result;
}

bool fitsTiles(const at::Tensor& input, const at::Tensor& weight, const at::Tensor& bias) {
  if (!isPlainBfloat16(input) || !isPlainBfloat16(weight) || weight.dim() != 2 || !weight.is_contiguous()) return false;
  const int64_t inner = weight.size(1);
  if (input.dim() < 1 || inner == 0 || inner % 32 != 0 || input.size(-1) != inner || weight.size(0) == 0) return false;
  if (bias.defined() && (!isPlainBfloat16(bias) || bias.dim() != 1 || bias.size(0) != weight.size(0))) return false;
  const int64_t rows = input.numel() / inner;
  return rows >= 1 && rows <= kMostRows && mayUseTiles();
}
#endif

// decodeLinear(recording, input, weight, bias): at::linear, faster for few rows of bfloat16 without gradients
napi_value decodeLinear(Call& call) {
  const bool recording = call.boolean(0, "recording");
  const at::Tensor& input = call.tensor(1, "input");
  const at::Tensor& weight = call.tensor(2, "weight");
  const at::Tensor bias = call.absent(3) ? at::Tensor() : call.tensor(3, "bias");
  const at::AutoGradMode mode(recording);
#ifdef ASTRA_TILES
  if (!(recording && anyRequiresGradient({&input, &weight, &bias})) && fitsTiles(input, weight, bias)) {
    return wrapTensor(*call.engine, call.env, linearOfFewRows(input, weight, bias, input.numel() / weight.size(1)));
  }
#endif
  return wrapTensor(*call.engine, call.env,
                    at::linear(input, weight, bias.defined() ? c10::optional<at::Tensor>(bias) : c10::nullopt));
}

constexpr int64_t kMostHeadSize = 256;

// One group of query heads and the keys and values that they share.
struct Heads {
  const uint16_t* query;  // [R, E], rows apart by queryStride
  const uint16_t* key;    // [S, E]
  const uint16_t* value;  // [S, E]
  const uint16_t* bias;   // [R or 1, S] or null
  uint16_t* result;       // [R, E]
  int64_t queryStride, keyStride, valueStride, biasStride;
  int64_t heads, columns, size;
  float scale;
  float* scores;  // room for S
};

ASTRA_VECTOR_CLONES
void attendOneToken(const Heads& work) {
  const int64_t size = work.size, columns = work.columns;
  float* __restrict scores = work.scores;
  for (int64_t head = 0; head < work.heads; ++head) {
    float query[kMostHeadSize], sums[kMostHeadSize];
    for (int64_t e = 0; e < size; ++e) {
      query[e] = widen(work.query[head * work.queryStride + e]) * work.scale;
      sums[e] = 0;
    }
    float greatest = -INFINITY;
    for (int64_t s = 0; s < columns; ++s) {
      const uint16_t* __restrict key = work.key + s * work.keyStride;
      float score = 0;
#pragma omp simd reduction(+ : score)
      for (int64_t e = 0; e < size; ++e) score += query[e] * widen(key[e]);
      scores[s] = score;
      // The values, and keys further on, come from memory while these keys are worked on.
      const uint16_t* value = work.value + s * work.valueStride;
      const uint16_t* later = key + std::min<int64_t>(16, columns - 1 - s) * work.keyStride;
      for (int64_t e = 0; e < size; e += 32) {
        __builtin_prefetch(value + e);
        __builtin_prefetch(later + e);
      }
    }
    if (work.bias != nullptr) {
      const uint16_t* __restrict bias = work.bias + head * work.biasStride;
#pragma omp simd
      for (int64_t s = 0; s < columns; ++s) scores[s] += widen(bias[s]);
    }
#pragma omp simd reduction(max : greatest)
    for (int64_t s = 0; s < columns; ++s) greatest = scores[s] > greatest ? scores[s] : greatest;
    float total = 0;
#pragma omp simd reduction(+ : total)
    for (int64_t s = 0; s < columns; ++s) {
      scores[s] = exponential(scores[s] - greatest);
      total += scores[s];
    }
    int64_t s = 0;
    for (; s + 4 <= columns; s += 4) {
      const uint16_t* __restrict v = work.value + s * work.valueStride;
      const int64_t stride = work.valueStride;
      const float a = scores[s], b = scores[s + 1], c = scores[s + 2], d = scores[s + 3];
#pragma omp simd
      for (int64_t e = 0; e < size; ++e) {
        sums[e] += (a * widen(v[e]) + b * widen(v[stride + e])) +
                   (c * widen(v[2 * stride + e]) + d * widen(v[3 * stride + e]));
      }
    }
    for (; s < columns; ++s) {
      const uint16_t* __restrict v = work.value + s * work.valueStride;
      for (int64_t e = 0; e < size; ++e) sums[e] += scores[s] * widen(v[e]);
    }
    for (int64_t e = 0; e < size; ++e) work.result[head * size + e] = narrow(sums[e] / total);
  }
}

// decodeAttention(recording, query, key, value, bias, scale): attention of one new token a row; null where it does not apply
napi_value decodeAttention(Call& call) {
  const at::Tensor& query = call.tensor(1, "query");
  const at::Tensor& key = call.tensor(2, "key");
  const at::Tensor& value = call.tensor(3, "value");
  const at::Tensor bias = call.absent(4) ? at::Tensor() : call.tensor(4, "bias");
  const double scale = call.number(5, "scale");
  const at::AutoGradMode mode(false);
  if (call.boolean(0, "recording") && anyRequiresGradient({&query, &key, &value, &bias})) return makeNull(call.env);
  for (const at::Tensor* tensor : {&query, &key, &value}) {
    if (!isPlainBfloat16(*tensor) || tensor->dim() != 4 || tensor->stride(3) != 1) return makeNull(call.env);
  }
  const int64_t batch = query.size(0), heads = query.size(1), size = query.size(3);
  const int64_t groups = key.size(1), columns = key.size(2);
  if (query.size(2) != 1 || heads < 1 || size < 1 || size > kMostHeadSize || columns < 1 || groups < 1 ||
      heads % groups != 0 || key.size(0) != batch || key.size(3) != size || value.sizes() != key.sizes()) {
    return makeNull(call.env);
  }
  const int64_t shared = heads / groups;
  if (bias.defined() &&
      (!isPlainBfloat16(bias) || bias.dim() != 3 || bias.stride(2) != 1 || bias.size(2) != columns ||
       (bias.size(0) != 1 && bias.size(0) != batch * groups) || (bias.size(1) != 1 && bias.size(1) != shared))) {
    return makeNull(call.env);
  }
  at::Tensor result = at::empty({batch, 1, heads * size}, query.options());
  const auto attend = [&](int64_t task, float* scores) {
    const int64_t row = task / groups, group = task % groups;
    Heads work{};
    work.query = words(query) + row * query.stride(0) + group * shared * query.stride(1);
    work.key = words(key) + row * key.stride(0) + group * key.stride(1);
    work.value = words(value) + row * value.stride(0) + group * value.stride(1);
    work.result = words(result) + (row * heads + group * shared) * size;
    work.queryStride = query.stride(1);
    work.keyStride = key.stride(2);
    work.valueStride = value.stride(2);
    if (bias.defined()) {
      work.bias = words(bias) + (bias.size(0) == 1 ? 0 : task) * bias.stride(0);
      work.biasStride = bias.size(1) == 1 ? 0 : bias.stride(1);
    }
    work.heads = shared;
    work.columns = columns;
    work.size = size;
    work.scale = static_cast<float>(scale);
    work.scores = scores;
    attendOneToken(work);
  };
  const int64_t piece = std::max<int64_t>(1, (int64_t{1} << 15) / (columns * size * shared));
  inPieces(batch * groups, piece, [&](int64_t from, int64_t to) {
    std::vector<float> scores(static_cast<size_t>(columns));
    for (int64_t task = from; task < to; ++task) attend(task, scores.data());
  });
  return wrapTensor(*call.engine, call.env, std::move(result));
}

}  // namespace

void defineDecode(napi_env env, napi_value exports, Engine* engine) {
  define(env, exports, engine, "decodeLinear", decodeLinear);
  define(env, exports, engine, "decodeAttention", decodeAttention);
}

}  // namespace astra
