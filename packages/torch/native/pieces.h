// Work shared among threads.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>

#include <ATen/Parallel.h>

namespace astra {

// Numbers passed over once, below which a second thread costs more than it saves.
constexpr int64_t kGrain = 1 << 14;

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

}  // namespace astra
