/*
 * The instruction set of this process: what the processor and the kernel allow, or less if set by ASTRA_ISA. This is
 * the only place that decides it; in C, because preload.c configures the libraries before the addon is loaded.
 */
#pragma once

#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#if defined(__x86_64__)
#include <cpuid.h>
#if defined(__linux__)
#include <sys/syscall.h>
#include <unistd.h>
#endif
#elif defined(__aarch64__) && defined(__linux__)
#include <sys/auxv.h>
#endif

/* Tiles need a compiler that supports them. */
#if defined(__x86_64__) && defined(__linux__) && defined(__GNUC__) && (__GNUC__ >= 11 || defined(__clang__))
#define ASTRA_TILES 1
/* Defined by the library that emulates tiles in tests, on processors without them. */
#ifdef __cplusplus
extern "C"
#endif
    __attribute__((weak, visibility("default"))) int astraTilesAreEmulated(void);
#endif

/* Each includes all before it. Processors other than x86-64 have only the first. */
enum AstraIsa {
  kIsaBaseline,   /* the compiler's default */
  kIsaAvx2,       /* x86-64-v3: AVX2, FMA, F16C, BMI */
  kIsaAvx512,     /* x86-64-v4: AVX-512 F, BW, CD, DQ, VL */
  kIsaAvx512Bf16, /* products of bfloat16 pairs: AVX512-BF16 */
  kIsaAmx,        /* products of bfloat16 tiles: AMX-BF16, with the kernel's permission */
  kIsaCount,
  kIsaUnknown = -1,
};

static inline const char* astraIsaName(int isa) {
  static const char* const names[kIsaCount] = {"baseline", "avx2", "avx512", "avx512_bf16", "amx"};
  return isa >= 0 && isa < kIsaCount ? names[isa] : "unknown";
}

static inline int astraIsaNamed(const char* name) {
  for (int isa = 0; isa < kIsaCount; ++isa) {
    if (strcmp(astraIsaName(isa), name) == 0) return isa;
  }
  return kIsaUnknown;
}

/* The machine's instruction set. With `tiles` the kernel is asked for permission to use them, which is permanent. */
static inline int astraMachineIsa(int tiles) {
#if defined(__x86_64__)
  unsigned a = 0, b = 0, c = 0, d = 0, extended = 0;
  if (!__get_cpuid_count(0x80000001, 0, &a, &b, &extended, &d)) return kIsaBaseline;
  if (!__get_cpuid_count(1, 0, &a, &b, &c, &d)) return kIsaBaseline;
  const unsigned basic = 1u << 12 | 1u << 22 | 1u << 27 | 1u << 28 | 1u << 29; /* FMA, MOVBE, OSXSAVE, AVX, F16C */
  if ((c & basic) != basic || (extended & 1u << 5) == 0 /* LZCNT */) return kIsaBaseline;
  unsigned saved = 0, savedHigh = 0; /* registers that the kernel saves */
  __asm__("xgetbv" : "=a"(saved), "=d"(savedHigh) : "c"(0));
  if (!__get_cpuid_count(7, 0, &a, &b, &c, &d)) return kIsaBaseline;
  const unsigned v3 = 1u << 3 | 1u << 5 | 1u << 8; /* BMI1, AVX2, BMI2 */
  if ((b & v3) != v3 || (saved & 0x6) != 0x6) return kIsaBaseline;
  const unsigned v4 = 1u << 16 | 1u << 17 | 1u << 28 | 1u << 30 | 1u << 31; /* AVX-512 F, DQ, CD, BW, VL */
  if ((b & v4) != v4 || (saved & 0xe6) != 0xe6) return kIsaAvx2;
  const int hasTiles = (d & 1u << 22) != 0 && (d & 1u << 24) != 0; /* AMX-BF16, AMX-TILE */
  if (!__get_cpuid_count(7, 1, &a, &b, &c, &d) || (a & 1u << 5) == 0) return kIsaAvx512;
#ifdef ASTRA_TILES
  if (tiles && astraTilesAreEmulated != NULL) return kIsaAmx;
  const long requestPermission = 0x1023, tileData = 18; /* ARCH_REQ_XCOMP_PERM, XFEATURE_XTILEDATA */
  if (tiles && hasTiles && (saved & 0x60000) == 0x60000 &&
      syscall(SYS_arch_prctl, requestPermission, tileData) == 0) {
    return kIsaAmx;
  }
#endif
  (void)hasTiles;
  (void)tiles;
  return kIsaAvx512Bf16;
#else
  (void)tiles;
  return kIsaBaseline;
#endif
}

/* Whether products of bfloat16 pairs are faster than float32's: twice as fast on AMD's processors, half as fast on Intel's,
 * measured on one of each. On Intel's they are used only if requested by name. */
static inline int astraPairsAreFast(void) {
#if defined(__x86_64__)
  unsigned a = 0, b = 0, c = 0, d = 0;
  return __get_cpuid(0, &a, &b, &c, &d) && b == 0x68747541 && d == 0x69746e65 && c == 0x444d4163; /* AuthenticAMD */
#else
  return 0;
#endif
}

/* The instruction set in use; kIsaUnknown if ASTRA_ISA names no instruction set, or one that the machine lacks. */
static inline int astraIsaInForce(void) {
  const char* wanted = getenv("ASTRA_ISA");
  if (wanted == NULL || wanted[0] == '\0') {
    const int machine = astraMachineIsa(1);
    return machine == kIsaAvx512Bf16 && !astraPairsAreFast() ? kIsaAvx512 : machine;
  }
  const int named = astraIsaNamed(wanted);
  /* Permission for unwanted tiles is not requested: it would also apply to libtorch. */
  return named <= astraMachineIsa(named == kIsaAmx) ? named : kIsaUnknown;
}

/* Whether bfloat16 numbers are multiplied natively. */
static inline int astraMultipliesBfloat16(int isa) {
#if defined(__aarch64__) && defined(__linux__)
  (void)isa;
  return (getauxval(AT_HWCAP2) & 1ul << 14 /* HWCAP2_BF16 */) != 0;
#else
  return isa >= kIsaAvx512Bf16;
#endif
}

#ifdef __cplusplus
namespace astra {

// Never unknown: the addon would not be loaded.
inline int isa() {
  static const int inForce = astraIsaInForce();
  return inForce;
}

// Whether the processor multiplies bfloat16 tiles (Intel AMX) and the kernel lets this process use them.
inline bool hasTiles() { return isa() == kIsaAmx; }

// Whether the kernels written for tiles apply: without tiles, vectors of bfloat16 pairs replace them.
inline bool mayUseTiles() { return isa() >= kIsaAvx512Bf16; }

}  // namespace astra
#endif
