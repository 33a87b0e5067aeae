/* Loaded before the addon: sets environment variables that libraries read when they load (Node's process.env does
 * not reach the C environment from worker threads), and loads a library ahead of the one the linker would find. */
#include <dlfcn.h>
#include <stdlib.h>
#include <time.h>
#include <node_api.h>

#include "isa.h"

static int readText(napi_env env, napi_value value, char* buffer, size_t size) {
  size_t length = 0;
  return napi_get_value_string_utf8(env, value, buffer, size, &length) == napi_ok && length + 1 < size;
}

/* setVariable(name, value): never overrides what the user has set. Returns whether it was set. */
static napi_value setVariable(napi_env env, napi_callback_info info) {
  size_t count = 2;
  napi_value arguments[2], result = NULL;
  char name[256], value[256];
  int done = 0;
  if (napi_get_cb_info(env, info, &count, arguments, NULL, NULL) == napi_ok && count == 2 &&
      readText(env, arguments[0], name, sizeof name) && readText(env, arguments[1], value, sizeof value) &&
      getenv(name) == NULL) {
    done = setenv(name, value, 0) == 0;
  }
  napi_get_boolean(env, done, &result);
  return result;
}

/* instructionSets(): [the one in use, or "unknown" if ASTRA_ISA cannot be satisfied; the machine's]. */
static napi_value instructionSets(napi_env env, napi_callback_info info) {
  napi_value pair = NULL;
  if (napi_create_array(env, &pair) != napi_ok) return NULL;
  const int inForce = astraIsaInForce();
  const int sets[2] = {inForce, inForce == kIsaUnknown ? astraMachineIsa(1) : inForce};
  for (uint32_t at = 0; at < 2; ++at) {
    napi_value name = NULL;
    if (napi_create_string_utf8(env, astraIsaName(sets[at]), NAPI_AUTO_LENGTH, &name) == napi_ok) {
      napi_set_element(env, pair, at, name);
    }
  }
  return pair;
}

/* load(path): the library's symbols become global. Returns null, or the reason of the failure. */
static napi_value load(napi_env env, napi_callback_info info) {
  size_t count = 1;
  napi_value arguments[1], result = NULL;
  char path[4096];
  napi_get_null(env, &result);
  if (napi_get_cb_info(env, info, &count, arguments, NULL, NULL) != napi_ok || count != 1 ||
      !readText(env, arguments[0], path, sizeof path)) {
    napi_create_string_utf8(env, "the path is not a string", NAPI_AUTO_LENGTH, &result);
  } else if (dlopen(path, RTLD_NOW | RTLD_GLOBAL) == NULL) {
    const char* reason = dlerror();
    napi_create_string_utf8(env, reason == NULL ? "unknown" : reason, NAPI_AUTO_LENGTH, &result);
  }
  return result;
}

/* pauseNanoseconds(): duration of one iteration of the loop in which GNU's OpenMP waits for work. */
static napi_value pauseNanoseconds(napi_env env, napi_callback_info info) {
  enum { kTurns = 500, kTries = 8 };
  volatile int awaited = 0;
  double least = 0;
  napi_value result = NULL;
  (void)info;
  for (int attempt = 0; attempt < kTries; ++attempt) {
    struct timespec before, after;
    clock_gettime(CLOCK_MONOTONIC, &before);
    for (int turn = 0; turn < kTurns && awaited == 0; ++turn) {
#if defined(__x86_64__) || defined(__i386__)
      __builtin_ia32_pause();
#else
      __asm volatile("" : : : "memory");
#endif
    }
    clock_gettime(CLOCK_MONOTONIC, &after);
    const double taken = ((double)(after.tv_sec - before.tv_sec) * 1e9 + (double)(after.tv_nsec - before.tv_nsec)) / kTurns;
    /* Another process may have used the processor meanwhile. */
    if (attempt == 0 || taken < least) least = taken;
  }
  napi_create_double(env, least, &result);
  return result;
}

NAPI_MODULE_INIT() {
  static const struct {
    const char* name;
    napi_callback body;
  } functions[] = {{"setVariable", setVariable}, {"pauseNanoseconds", pauseNanoseconds},
                   {"instructionSets", instructionSets}, {"load", load}};
  for (size_t at = 0; at < sizeof functions / sizeof functions[0]; ++at) {
    napi_value function = NULL;
    if (napi_create_function(env, functions[at].name, NAPI_AUTO_LENGTH, functions[at].body, NULL, &function) == napi_ok) {
      napi_set_named_property(env, exports, functions[at].name, function);
    }
  }
  return exports;
}
