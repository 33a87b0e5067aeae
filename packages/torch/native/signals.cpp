// A second signal ends the process immediately, even while a computation blocks JavaScript from handling the first.
#include <signal.h>
#include <time.h>
#include <unistd.h>

#include "engine.h"

namespace astra {

namespace {

constexpr int kSignals[] = {SIGINT, SIGTERM};
// npm forwards signals that the terminal has already sent to its child: within this time, two count as one.
constexpr int64_t kSameWish = 150'000'000;  // nanoseconds
constexpr char kMessage[] = "\nStopped at once.\n";

struct sigaction before[2];
bool active = false;
volatile sig_atomic_t asked = 0;
volatile int64_t firstAt = 0;

int64_t nanoseconds() {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return int64_t{now.tv_sec} * 1'000'000'000 + now.tv_nsec;
}

// Only async-signal-safe functions.
void onSignal(int signal) {
  if (asked == 0) {
    asked = 1;
    firstAt = nanoseconds();
  } else if (nanoseconds() - firstAt > kSameWish) {
    [[maybe_unused]] const ssize_t written = write(STDERR_FILENO, kMessage, sizeof kMessage - 1);
    _exit(128 + signal);
  }
  const auto& next = before[signal == SIGINT ? 0 : 1];
  if ((next.sa_flags & SA_SIGINFO) == 0 && next.sa_handler != SIG_DFL && next.sa_handler != SIG_IGN) {
    next.sa_handler(signal);
  }
}

// endOnSecondSignal(active): JavaScript's own handlers of these signals must be installed before, and stay until it is
// ended.
napi_value endOnSecondSignal(Call& call) {
  const bool wanted = call.boolean(0, "active");
  if (wanted == active) return makeUndefined(call.env);
  active = wanted;
  asked = 0;
  for (int index = 0; index < 2; ++index) {
    if (wanted) {
      struct sigaction action = {};
      action.sa_handler = onSignal;
      action.sa_flags = SA_RESTART;
      sigfillset(&action.sa_mask);
      sigaction(kSignals[index], &action, &before[index]);
    } else {
      sigaction(kSignals[index], &before[index], nullptr);
    }
  }
  return makeUndefined(call.env);
}

const Exports exports{{"endOnSecondSignal", endOnSecondSignal}};

}  // namespace

}  // namespace astra
