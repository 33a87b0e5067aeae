/*
 * Emulates Intel's tiles (AMX) on a processor without them: loaded before all other libraries, this handles the
 * illegal-instruction signal of each tile instruction, and executes it according to Intel's manual (Software
 * Developer's Manual, volume 2). For tests of the kernels' results, not of their speed: a signal costs more than many
 * tile instructions. Invalid uses end the process, with the reason. scripts/emulated-tiles.mjs compiles it.
 */
#define _GNU_SOURCE
#include <immintrin.h>
#include <signal.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <ucontext.h>
#include <unistd.h>

enum { kTiles = 8, kMostRows = 16, kMostBytes = 64 };

/* As LDTILECFG reads it. */
typedef struct {
  uint8_t palette, startRow, reserved[14];
  uint16_t rowBytes[16];
  uint8_t rows[16];
} Configuration;

/* Per thread; the processor also preserves them across a signal. */
static __thread Configuration configured __attribute__((tls_model("initial-exec")));
static __thread uint8_t tiles[kTiles][kMostRows][kMostBytes] __attribute__((aligned(64), tls_model("initial-exec")));
static struct sigaction before;

static void refuse(const char* why) {
  static const char head[] = "emulated tiles: ", tail[] = "\n";
  if (write(2, head, sizeof head - 1) < 0 || write(2, why, strlen(why)) < 0 || write(2, tail, sizeof tail - 1) < 0) {
    /* Standard error is closed: the signal has to report it. */
  }
  abort();
}

/* The general-purpose register with this number in the processor's order. */
static uint64_t valueOf(const greg_t* registers, int number) {
  static const int places[16] = {REG_RAX, REG_RCX, REG_RDX, REG_RBX, REG_RSP, REG_RBP, REG_RSI, REG_RDI,
                                 REG_R8,  REG_R9,  REG_R10, REG_R11, REG_R12, REG_R13, REG_R14, REG_R15};
  return (uint64_t)registers[places[number]];
}

static void release(void) {
  memset(&configured, 0, sizeof configured);
  memset(tiles, 0, sizeof tiles);
}

static void load(const Configuration* from) {
  Configuration wanted;
  memcpy(&wanted, from, sizeof wanted);
  if (wanted.palette == 0) return release();
  if (wanted.palette != 1) refuse("LDTILECFG: no such palette");
  for (int at = 0; at < 14; ++at) {
    if (wanted.reserved[at] != 0) refuse("LDTILECFG: a reserved byte is not 0");
  }
  for (int tile = 0; tile < 16; ++tile) {
    const int rows = wanted.rows[tile], bytes = wanted.rowBytes[tile];
    if (rows > kMostRows || bytes > kMostBytes) refuse("LDTILECFG: a tile is larger than any");
    if ((rows == 0) != (bytes == 0)) refuse("LDTILECFG: a tile without rows has columns, or the other way round");
    if (tile >= kTiles && rows > 0) refuse("LDTILECFG: there are eight tiles");
  }
  release();
  configured = wanted;
}

static int rowsOf(int tile) {
  if (configured.palette == 0) refuse("a tile without a configuration");
  if (configured.rows[tile] == 0) refuse("a tile that is not configured");
  return configured.rows[tile];
}

static void multiply(int to, int left, int right) {
  const int rows = rowsOf(to), pairs = rowsOf(right);
  if (to == left || to == right || left == right) refuse("TDPBF16PS: the tiles are not three");
  if (rowsOf(left) != rows || configured.rowBytes[left] != 4 * pairs ||
      configured.rowBytes[right] != configured.rowBytes[to] || configured.rowBytes[to] % 4 != 0) {
    refuse("TDPBF16PS: the tiles' shapes do not fit");
  }
  /* The sums of the even and of the odd numbers start at 0 and are added at the end. Lanes beyond a tile's columns are
   * 0 in both operands and stay so. */
  const __m512i high = _mm512_set1_epi32((int)0xffff0000u);
  for (int row = 0; row < rows; ++row) {
    __m512 even = _mm512_setzero_ps(), odd = _mm512_setzero_ps();
    for (int pair = 0; pair < pairs; ++pair) {
      uint32_t own;
      memcpy(&own, tiles[left][row] + 4 * pair, sizeof own);
      const __m512i other = _mm512_load_si512(tiles[right][pair]);
      const __m512 ownEven = _mm512_castsi512_ps(_mm512_set1_epi32((int)(own << 16)));
      const __m512 ownOdd = _mm512_castsi512_ps(_mm512_set1_epi32((int)(own & 0xffff0000u)));
      even = _mm512_fmadd_ps(ownEven, _mm512_castsi512_ps(_mm512_slli_epi32(other, 16)), even);
      odd = _mm512_fmadd_ps(ownOdd, _mm512_castsi512_ps(_mm512_and_si512(other, high)), odd);
    }
    const __m512 sums = _mm512_load_ps(tiles[to][row]);
    _mm512_store_ps(tiles[to][row], _mm512_add_ps(sums, _mm512_add_ps(even, odd)));
  }
}

/* Executes the instruction at `code` if it is a tile instruction. Returns its length in bytes, or 0. */
static int execute(const uint8_t* code, const greg_t* registers) {
  /* VEX of three bytes: C4, inverted high bits of the registers and the map (0F38), W (0), the inverted register of the second
   * operand, L (0) and the prefix. */
  if (code[0] != 0xc4 || (code[1] & 0x1f) != 2 || (code[2] & 0x84) != 0) return 0;
  const int prefix = code[2] & 3; /* 0: none, 1: 66, 2: F3, 3: F2 */
  const int operation = code[3], mode = code[4] >> 6, tile = code[4] >> 3 & 7, low = code[4] & 7;
  const int second = ~code[2] >> 3 & 15;
  if (operation == 0x5c && prefix == 2 && mode == 3) {
    multiply(tile, low, second);
    return 5;
  }
  if (operation == 0x49 && mode == 3) {
    if (prefix == 0 && code[4] == 0xc0) release();
    else if (prefix == 3 && low == 0) memset(tiles[tile], 0, rowsOf(tile) > 0 ? sizeof tiles[tile] : 0);
    else return 0;
    return 5;
  }
  const int isConfiguration = operation == 0x49 && prefix < 2 && tile == 0;
  const int isMemory = operation == 0x4b && prefix > 0 && low == 4;
  if (mode == 3 || !(isConfiguration || isMemory)) return 0;

  /* The address: a base, an index with its scale (for a tile the distance of its rows), and an offset. */
  int length = 5;
  const int highIndex = (code[1] & 0x40) == 0 ? 8 : 0, highBase = (code[1] & 0x20) == 0 ? 8 : 0;
  uint64_t address = 0, distance = 0;
  if (low == 4) {
    const int byte = code[length++], base = byte & 7, index = (byte >> 3 & 7) | highIndex;
    if (index != 4) distance = valueOf(registers, index) << (byte >> 6);
    if (mode == 0 && base == 5) {
      int32_t offset;
      memcpy(&offset, code + length, sizeof offset);
      address = (uint64_t)(int64_t)offset;
      length += 4;
    } else {
      address = valueOf(registers, base | highBase);
    }
  } else if (mode == 0 && low == 5) {
    int32_t offset;
    memcpy(&offset, code + length, sizeof offset);
    length += 4;
    address = (uint64_t)(uintptr_t)(code + length) + (uint64_t)(int64_t)offset;
  } else {
    address = valueOf(registers, low | highBase);
  }
  if (mode == 1) address += (uint64_t)(int64_t)(int8_t)code[length++];
  if (mode == 2) {
    int32_t offset;
    memcpy(&offset, code + length, sizeof offset);
    address += (uint64_t)(int64_t)offset;
    length += 4;
  }

  if (isConfiguration) {
    address += distance;
    if (prefix == 0) load((const Configuration*)address);
    else memcpy((void*)address, &configured, sizeof configured);
    return length;
  }
  const int rows = rowsOf(tile), bytes = configured.rowBytes[tile];
  if (prefix == 2) {
    for (int row = 0; row < rows; ++row) memcpy((void*)(address + distance * (uint64_t)row), tiles[tile][row], bytes);
    return length;
  }
  memset(tiles[tile], 0, sizeof tiles[tile]);
  for (int row = 0; row < rows; ++row) memcpy(tiles[tile][row], (const void*)(address + distance * (uint64_t)row), bytes);
  return length;
}

static void onUnknownInstruction(int number, siginfo_t* information, void* context) {
  (void)information;
  greg_t* registers = ((ucontext_t*)context)->uc_mcontext.gregs;
  /* Tiles treat subnormal numbers as 0, regardless of the thread's mode, which is restored at the end of the signal. */
  _mm_setcsr(_mm_getcsr() | _MM_FLUSH_ZERO_ON | 0x0040 /* denormals are zeros */);
  int length = execute((const uint8_t*)registers[REG_RIP], registers);
  if (length == 0) {
    /* Not a tile instruction: restores the default behaviour, which applies when the instruction is executed again. */
    sigaction(number, &before, NULL);
    return;
  }
  /* Tile instructions often follow each other, and each signal costs more than one of them. */
  do {
    registers[REG_RIP] += length;
    length = execute((const uint8_t*)registers[REG_RIP], registers);
  } while (length > 0);
}

/* Requested by isa.h. */
__attribute__((visibility("default"))) int astraTilesAreEmulated(void) { return 1; }

__attribute__((constructor)) static void begin(void) {
  struct sigaction own;
  memset(&own, 0, sizeof own);
  own.sa_sigaction = onUnknownInstruction;
  own.sa_flags = SA_SIGINFO | SA_NODEFER;
  sigemptyset(&own.sa_mask);
  sigaction(SIGILL, &own, &before);
}
